"""The report's sentences and numbers as a person reads them."""

from collections.abc import Mapping
from typing import Any

from flows.report.summary import RunSummary
from training.wording import measure_name

SYSTEM_NAMES = {"model": "Ours", "bm25": "BM25", "random": "Random"}
GRADE_NAMES = {0: "Bad", 1: "Fair", 2: "Good", 3: "Excellent"}
WHY = {
    "gain": "among those where we gain most",
    "loss": "among those where we lose most",
    "no shared word": "shares no word with a relevant title",
    "drawn": "drawn at random",
}


def percent(part: float, whole: float) -> str:
    """A share with as many digits as it needs; never 0% of something that is there."""
    if not whole:
        return "—"
    share = 100 * part / whole
    if 0 < share < 0.01:
        return "< 0.01%"
    return f"{share:.1f}%" if share >= 1 or share == 0 else f"{share:.2f}%"


def system_name(key: str) -> str:
    return SYSTEM_NAMES.get(key, key)


def result(run: RunSummary, measure: str = "ndcg@10") -> str:
    """The outcome in a paragraph of plain words; what the run did not measure is said to be missing."""
    if not run.table or measure not in run.table["systems"].get("model", {}):
        return "This run measured no ranking: there is no table of NDCG to report."
    systems = run.table["systems"]
    ours, n = systems["model"][measure], run.table.get("n")
    over = f"Over {n:,} judged queries, our" if n else "Our"
    first = f"{over} {measure_name(measure)} is {_interval(ours)}."
    if measure not in systems.get("bm25", {}):
        return first + " BM25 was not measured."
    bm25 = systems["bm25"][measure]
    first = f"{over} {measure_name(measure)} is {_interval(ours)}, and BM25's is {_interval(bm25)}."
    difference = _difference(run.table, measure)
    if difference is None:
        return first + " The two were not compared query by query, so nothing is said about chance."
    confidence = f"{run.table.get('confidence', 0.95):.0%}"
    low, high = difference["low"], difference["high"]
    second = (
        f" Query by query the difference is {difference['mean']:+.3f} ({confidence} interval {low:+.3f} to {high:+.3f})"
    )
    if low > 0:
        return first + second + ", which excludes zero: ours is better, and chance does not explain it."
    if high < 0:
        return first + second + ", which excludes zero: BM25 is better, and chance does not explain it."
    return first + second + ", which includes zero: these queries cannot tell the two apart."


def verdict(run: RunSummary, measure: str = "ndcg@10") -> str:
    """better, worse, open, or unknown."""
    difference = _difference(run.table, measure) if run.table else None
    if difference is None:
        return "unknown"
    return "better" if difference["low"] > 0 else "worse" if difference["high"] < 0 else "open"


def flatten(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as rows: ("train.step", "0.002")."""
    rows: list[tuple[str, str]] = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            rows += flatten(value, f"{prefix}{name}.")
        else:
            rows.append((f"{prefix}{name}", "—" if value is None else str(value)))
    return rows


def _difference(table: Mapping[str, Any], measure: str) -> Mapping[str, float] | None:
    found = table.get("difference") or {}
    if (found.get("of", "model"), found.get("to", "bm25")) != ("model", "bm25"):
        return None
    return found.get("measures", {}).get(measure)


def _interval(value: Mapping[str, float]) -> str:
    if "low" not in value:
        return f"{value['mean']:.3f}"
    return f"{value['mean']:.3f} ({value['low']:.3f} to {value['high']:.3f})"
