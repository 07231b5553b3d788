"""Observations of runs, a few numbers per date, from which later runs know what is usual.

    STORE/observed/2026-09-01.json          of a dated log: the newest run of that date counts
    STORE/observed/ingest-DIGEST.json       of a log without a date: one for each log

Only counts, shares, means and quantiles of cosines: no text, no ids.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date as calendar_date
from datetime import timedelta
from typing import Any

from beam_jobs.ingest.day_versions import follow
from flows.config.pipeline_config import PipelineConfig, is_dated
from schemas import manifest as manifests
from schemas import storage
from schemas.errors import require_major
from schemas.search_log import Ledger, merge_ledgers
from schemas.stage import open_result

SCHEMA_VERSION = "1.0"
FOLDER = "observed"
NUM_POINTS = 100  # of the sketch of a distribution: points of equal mass

# Ledgers' fates that say "this was a bot".
BOTS = ("bot_user_agent", "bot_behaviour", "bot_crowd", "bot_unsure")


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """`values`: figure -> number. `asked`: figure -> a digest of the settings it was measured under: figures measured
    under others are not compared. `scores`: the best cosine of each judged query, as points of equal mass, ascending.
    """

    key: str  # as [drift] accept names it
    when: str  # ISO 8601: the date of a dated log, else when the log was ingested; what comes first is earlier
    dated: bool
    values: Mapping[str, float] = field(default_factory=dict)
    asked: Mapping[str, str] = field(default_factory=dict)
    num_days: int = 1  # that the build united
    scores: Sequence[float] = ()
    num_scores: int = 0

    @property
    def date(self) -> calendar_date:
        return calendar_date.fromisoformat(self.when[:10])


def observe(config: PipelineConfig, date: str, results: Mapping[str, Any]) -> Observation:
    """The observation of a run from the JSON results of its finished stages by name: `ingest` at least."""
    ingested = open_result(results["ingest"]["path"]).manifest
    key, dated = key_of(config, date, results["ingest"]), is_dated(config)
    seen = Observation(key=key, when=date if dated else ingested.created, dated=dated)
    seen = _with_day(seen, _parts_of(config.store, results["ingest"]), ingested.request)
    if "build" in results:
        seen = _with_build(seen, results["build"])
    if "evaluate" in results:
        seen = _with_model(seen, results["train"], results["evaluate"])
    if "publish" in results:
        seen = _with_live(seen, results["evaluate"], results["publish"])
    return seen


def key_of(config: PipelineConfig, date: str, day: Mapping[str, Any]) -> str:
    """The key of an observation: its date, or the digest of its ingest if the log has no date."""
    return date if is_dated(config) else f"ingest-{day['digest']}"


def _parts_of(store: str, day: Mapping[str, Any]) -> list[manifests.Manifest]:
    """All parts of a date: late files are ingested alone, and the result of an ingest covers only those."""
    digests = [part["ingest"] for part in day["day"]["parts"]] if "day" in day else []
    folders = [follow(storage.join(store, "ingest", digest)) for digest in digests]
    return [open_result(folder).manifest for folder in folders or [day["path"]]]


def _with_day(seen: Observation, parts: Sequence[manifests.Manifest], request: manifests.Request) -> Observation:
    ledger = merge_ledgers(part.outcome.ledger for part in parts if part.outcome.ledger)
    lines = max(ledger.total, 1)
    values = {
        "lines": ledger.total,
        "searches": sum(part.outcome.counts["searches"] for part in parts),
        "unreadable": ledger.of_kind("unreadable") / lines,
        "bots": sum(ledger.lines.get(fate, 0) for fate in BOTS) / lines,
    }
    return _and(seen, values, _digest({name: value for name, value in request.config.items() if name != "date"}))


def _with_build(seen: Observation, shards: Mapping[str, Any]) -> Observation:
    ledger, counts = Ledger.from_json(shards["ledger"]), shards["counts"]
    below_k = ledger.lines.get("query_below_k", 0)
    values = {
        "below_k": below_k / max(ledger.of_kind("kept") + below_k, 1),
        "pairs": counts["train_pairs"] + counts["dev_pairs"],
    }
    seen = _and(seen, values, _digest(open_result(shards["path"]).manifest.request.config))
    seen = _and(seen, {"documents": counts["documents"]}, "")
    return replace(seen, num_days=len(shards["metrics"]["window"]["versions"]) or 1)


def _with_model(seen: Observation, model: Mapping[str, Any], evaluation: Mapping[str, Any]) -> Observation:
    per_query = json.loads(storage.read_bytes(storage.join(evaluation["data"], "per_query.json")))
    best = sorted(score for score in per_query["best_score"] if score is not None)
    judged, recipe = _judged(evaluation), open_result(model["path"]).manifest.request.config
    seen = _and(seen, {"quality": evaluation["metrics"]["systems"]["model"]["ndcg@10"]["mean"]}, judged)
    asked = {**seen.asked, "scores": _digest([judged, recipe])}
    return replace(seen, asked=asked, scores=tuple(points(best)), num_scores=len(best))


def _with_live(seen: Observation, evaluation: Mapping[str, Any], published: Mapping[str, Any]) -> Observation:
    """Add what a promotion measured of the live model."""
    figures = (published["metrics"].get("decision") or {}).get("figures") or {}
    if figures.get("case") != "compared":
        return seen
    return _and(seen, {"live_quality": figures["live"]}, _digest([_judged(evaluation), figures["measure"]]))


def _and(seen: Observation, values: Mapping[str, float], asked: str) -> Observation:
    return replace(seen, values={**seen.values, **values}, asked={**seen.asked, **dict.fromkeys(values, asked)})


def points(ascending: Sequence[float]) -> list[float]:
    """NUM_POINTS points of equal mass that stand for sorted numbers; fewer numbers are repeated."""
    count = len(ascending)
    return [round(ascending[(2 * i + 1) * count // (2 * NUM_POINTS)], 4) for i in range(NUM_POINTS)] if count else []


def write(store: str, seen: Observation) -> None:
    """Write an observation. Further values of an earlier run of the same key stay: a run may have ended early."""
    if before := _read(_file(store, seen.key)):
        seen = replace(
            seen,
            values={**before.values, **seen.values},
            asked={**before.asked, **seen.asked},
            num_days=seen.num_days if "pairs" in seen.values else before.num_days,
            scores=seen.scores or before.scores,
            num_scores=seen.num_scores or before.num_scores,
        )
    content = json.dumps({"schema_version": SCHEMA_VERSION, **asdict(seen)}, indent=1).encode()
    storage.write_atomic(_file(store, seen.key), content)


def earlier(store: str, today: Observation, *, days: int) -> list[Observation]:
    """The earlier observations, oldest first; for a dated log those of at most so many days before.

    A damaged file is left out: it decides nothing that is published.
    """
    since = (today.date - timedelta(days=days)).isoformat() if today.dated else ""
    names = [name.removesuffix(".json") for name in storage.list_files(storage.join(store, FOLDER))]
    found = [_read(_file(store, name)) for name in names if name != today.key and (name >= since or not today.dated)]
    known = [o for o in found if o and o.dated == today.dated and o.when < today.when]
    return sorted(known, key=lambda o: o.when)


def _file(store: str, key: str) -> str:
    return storage.join(store, FOLDER, f"{key}.json")


def _read(uri: str) -> Observation | None:
    try:
        value = json.loads(storage.read_bytes(uri))
        require_major(uri, value.pop("schema_version"), SCHEMA_VERSION)
        return Observation(**value | {"scores": tuple(value["scores"])})
    except (ValueError, KeyError, TypeError, FileNotFoundError):
        return None


def _judged(evaluation: Mapping[str, Any]) -> str:
    """The inputs of an NDCG value besides the model. Click-derived judgments are expected to differ every time."""
    request = open_result(evaluation["path"]).manifest.request
    files = {} if evaluation["labels"].get("judgments") == "click-derived" else request.inputs
    return _digest([request.config, files.get("queries"), files.get("qrels")])


def _digest(value: Any) -> str:
    return hashlib.sha256(manifests.canonical_json(value)).hexdigest()[:12]
