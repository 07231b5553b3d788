"""A comparison in words: its rows by their part in it, figures and marks, and how everything was measured.

A comparison here is the value of comparison.json. A row is `done`, `failed` or `empty`; only rows that are done
have values. All sentences follow from the values.
"""

from collections.abc import Collection, Mapping
from typing import Any

from training.wording import measure_name

Comparison = Mapping[str, Any]
Row = Mapping[str, Any]

MEASURE = "ndcg@10"  # what decides which row is best
BM25 = "bm25"  # whose differences stand beside the paper's
LEVEL = 0.05  # a corrected p below it is beyond chance
STARS = ((0.001, "***"), (0.01, "**"), (LEVEL, "*"))
ALIKE = "≈"  # marks a row that cannot be told apart from the chosen one
GAINS = {"exponential": "2^grade - 1", "linear": "the grade"}
JUDGES = {
    "assessors": "Judgments: given by people.",
    "click-derived": "Judgments: derived from clicks, by no judge.",
}
WHY = {"gain": "gained", "loss": "lost"}


def done(comparison: Comparison) -> list[Row]:
    """The rows that have values."""
    return [row for row in comparison["rows"] if row["state"] == "done" and MEASURE in row["values"]]


def best(comparison: Comparison) -> Row | None:
    """The row with the highest NDCG@10; of equals the chosen one, or the first. None where no row is done."""

    def rank(row: Row) -> tuple[float, bool]:
        return row["values"][MEASURE]["mean"], row["name"] == comparison["against"]

    return max(done(comparison), key=rank, default=None)


def row_of(comparison: Comparison, name: str | None) -> Row | None:
    """The row of that name, in whatever state it is."""
    return next((row for row in comparison["rows"] if row["name"] == name), None)


def chosen(comparison: Comparison) -> Row | None:
    """The row that all others are tested against, if it is done."""
    return next((row for row in done(comparison) if row["name"] == comparison["against"]), None)


def title_of(comparison: Comparison, name: str | None) -> str:
    """The title of a row by its name; the name itself where there is no such row."""
    row = row_of(comparison, name)
    return row["title"] if row else name or "none"


def against_chosen(row: Row, measure: str = MEASURE) -> Mapping[str, float] | None:
    """A row's difference to the chosen one; None for the chosen one itself and where nothing was tested."""
    return (row.get("to_against") or {}).get(measure)


def to_bm25(comparison: Comparison, row: Row, measure: str = MEASURE) -> float | None:
    """How far a row's mean is above BM25's here; None where either was not measured."""
    bm25 = row_of(comparison, BM25)
    if bm25 is None or measure not in bm25["values"] or measure not in row["values"]:
        return None
    return row["values"][measure]["mean"] - bm25["values"][measure]["mean"]


def side(difference: Mapping[str, float] | None) -> str:
    """above, below (both beyond chance) or alike; empty where nothing was tested."""
    if difference is None:
        return ""
    if difference["p_holm"] >= LEVEL:
        return "alike"
    return "above" if difference["mean"] > 0 else "below"


def mark(difference: Mapping[str, float] | None) -> str:
    """Stars for a difference beyond chance, ≈ for one that chance may explain."""
    if difference is None:
        return ""
    return next((stars for below, stars in STARS if difference["p_holm"] < below), ALIKE)


def figure(value: float) -> str:
    return f"{value:.3f}"


def signed(value: float) -> str:
    """+0.007; never a minus before a zero."""
    return f"{value:+.3f}".replace("-0.000", "0.000").replace("+0.000", "0.000")


def interval(value: Mapping[str, float]) -> str:
    return f"{value['low']:.3f}–{value['high']:.3f}"


def signed_interval(value: Mapping[str, float]) -> str:
    return f"{signed(value['low'])} to {signed(value['high'])}"


def p_text(p: float) -> str:
    return "p < 0.0001" if p < 0.00005 else f"p = {p:.4f}"


def without_figures(comparison: Comparison) -> list[tuple[Row, str]]:
    """The rows that have no values, and why."""
    rows = [row for row in comparison["rows"] if row["state"] != "done"]
    states = {"empty": "is empty"}
    return [
        (row, states.get(row["state"], row["state"]) + (f": {sentence(row['why'])}" if row.get("why") else "."))
        for row in rows
    ]


def protocol(comparison: Comparison, only: Collection[str] = ()) -> list[str]:
    """How everything was measured, a sentence or two each. only: of the rules those of these names; all where none."""
    n, informative = comparison["n"], comparison["n_informative"]
    told = [
        f"{counted(n, 'query')}, of which {informative:,} can tell rankings apart: in the others all judged documents"
        " have one grade. All of them count in every mean.",
        JUDGES.get(comparison["judgments"], f"Judgments: {comparison['judgments']}."),
        f"Gain: {GAINS.get(comparison['gain'], comparison['gain'])}.",
        f"Intervals: {comparison['confidence']:.0%}.",
    ]
    rules = {name: rule for name, rule in comparison["rules"].items() if not only or name in only}
    return told + [f"{capital(name.replace('_', ' '))}: {sentence(rule)}" for name, rule in rules.items()]


def row_notes(comparison: Comparison) -> list[str]:
    """What the rows say of themselves."""
    return [f"{row['title']}: {sentence(note)}" for row in comparison["rows"] for note in row.get("notes") or ()]


def legend(comparison: Comparison) -> str:
    """What the marks mean; empty where nothing was tested."""
    if not any(row.get("to_against") for row in comparison["rows"]):
        return ""
    title = title_of(comparison, comparison["against"])
    stars = ", ".join(f"{stars} p < {below:g}" for below, stars in reversed(STARS))
    return f"Against {title}, p after Holm's correction: {stars}, {ALIKE} not told apart."


def paper_remark() -> str:
    """Why differences are set beside the paper's, and not the figures themselves."""
    return (
        "The paper's figures come from its authors' own data, so only the differences to BM25 can be held side by side."
    )


def in_part(row: Row, name: str, part: str) -> Mapping[str, Any] | None:
    """What a row is worth in a part of a slice, with the number of queries; None where it was not measured."""
    return (row.get("slices") or {}).get(name, {}).get(part)


def part_sizes(comparison: Comparison, name: str) -> dict[str, int]:
    """How many queries each part of a slice has: its parts in order, without those that no row has."""
    sizes = {}
    for part in comparison["slices"][name]:
        found = (in_part(row, name, part) for row in comparison["rows"])
        if known := next(filter(None, found), None):
            sizes[part] = known["n"]
    return sizes


def outcome(comparison: Comparison, query: Mapping[str, Any]) -> str:
    """What a query of the difference is worth with either row: gained: LSTM 0.900, BM25 0.100."""
    difference = comparison["difference"]
    of, to = (title_of(comparison, difference[key]) for key in ("of", "to"))
    return f"{WHY.get(query['why'], query['why'])}: {of} {figure(query['of'])}, {to} {figure(query['to'])}"


def difference_remark(comparison: Comparison) -> str:
    """What the queries of the difference are. Raises KeyError where there is no difference."""
    difference = comparison["difference"]
    of, to = (title_of(comparison, difference[key]) for key in ("of", "to"))
    return f"Where {of} gains and loses most against {to}, by {measure_name(difference['measure'])}."


def counted(count: int, thing: str) -> str:
    many = "queries" if thing == "query" else f"{thing}s"
    return f"{count:,} {thing if count == 1 else many}"


def capital(text: str) -> str:
    """With a capital, unless it is the name of a quantity: p."""
    return text if len(text) == 1 else text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
