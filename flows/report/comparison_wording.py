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
ALIKE = "≈"  # marks a row whose difference from the chosen one is not significant
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
    return f"Against {title}, p after Holm's correction: {stars}, {ALIKE} not significant."


def paper_remark() -> str:
    """Why differences are set beside the paper's, and not the figures themselves."""
    return "The paper's figures come from its authors' own data, so only the differences to BM25 are comparable."


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


# What came out of a comparison: which row is best, by how much, whether to believe it, and what to beware of.


def headline(comparison: Comparison) -> str:
    """The comparison in a line: how many rows, and the best beside the chosen one."""
    rows, measured, top, base = comparison["rows"], done(comparison), best(comparison), chosen(comparison)
    told = counted(len(measured), "row") if len(measured) == len(rows) else f"{len(measured)} of {len(rows)} rows"
    if top is None:
        return f"{told} measured"
    told += f"; highest {measure_name(MEASURE)} {figure(top['values'][MEASURE]['mean'])} ({top['title']})"
    if base is not None and base is not top:
        told += f", {base['title']} {figure(base['values'][MEASURE]['mean'])}"
    return f"{told}, over {comparison['n']:,} queries"


def answer(comparison: Comparison) -> str:
    """The outcome in a paragraph: the best row, its lead over the chosen row and over BM25, and what chance may do."""
    rows, top, base = done(comparison), best(comparison), chosen(comparison)
    if top is None:
        return f"No row could be measured ({states(comparison)}): there is nothing to compare."
    name, value = measure_name(MEASURE), top["values"][MEASURE]
    around = f"{figure(value['mean'])} ({figure(value['low'])} to {figure(value['high'])})"
    over = f"{around} over {counted(comparison['n'], 'query')}"
    if len(rows) == 1:
        return f"The only row that was measured is {top['title']}: {name} {over}. There is nothing to compare it with."
    if top is base:
        told = f"No row is above {base['title']}: {name} {over}."
    else:
        lead = _no_base(comparison) if base is None else _lead(comparison, top, base)
        told = f"Highest {name}: {top['title']}, {over}. {lead}"
    return " ".join(
        filter(None, [told, _level(comparison, top), _over_bm25(comparison, top), _others(comparison, top)])
    )


def verdict(comparison: Comparison) -> str:
    """better or worse (is any row above the chosen one, beyond chance?), open where chance may explain it, unknown."""
    base = chosen(comparison)
    sides = [side(against_chosen(row)) for row in done(comparison)]
    if base is None or not any(sides):
        return "unknown"
    top = best(comparison)
    if top is not None and top is not base:
        return "better" if side(against_chosen(top)) == "above" else "open"
    return "open" if "alike" in sides else "worse"


def states(comparison: Comparison) -> str:
    """How many rows are done, failed, empty: those of the three that are not none."""
    rows = comparison["rows"]
    counts = [(sum(row["state"] == state for row in rows), state) for state in ("done", "failed", "empty")]
    return ", ".join(f"{count} {state}" for count, state in counts if count) or "there are none"


def cautions(comparison: Comparison) -> list[str]:
    """What to beware of, a sentence or two each."""
    told = [*_finds_less(comparison), *(capital(sentence(warning)) for warning in comparison["warnings"])]
    if len(done(comparison)) > 2:
        told.append(
            "The best of several rows is best partly by luck: where these queries choose one, judge it again on queries"
            " that chose nothing."
        )
    return told


def figures(comparison: Comparison) -> list[tuple[str, str, str]]:
    """The few figures that matter: (name, value, remark)."""
    top, base, name = best(comparison), chosen(comparison), measure_name(MEASURE)
    told = []
    if top is not None:
        told.append((f"Best {name}", figure(top["values"][MEASURE]["mean"]), top["title"]))
    if top is not None and base is not None and (difference := against_chosen(top)):
        chance = {"above": "beyond chance", "below": "beyond chance", "alike": "not significant"}[side(difference)]
        told.append((f"Over {base['title']}", signed(difference["mean"]), f"{chance}, {p_text(difference['p_holm'])}"))
    alone = max(_towers(comparison), key=lambda row: row["values"][MEASURE]["mean"], default=None)
    if alone is not None and alone is not top:
        told.append(("Best tower alone", figure(alone["values"][MEASURE]["mean"]), alone["title"]))
    told.append(("Judged queries", f"{comparison['n']:,}", f"{comparison['n_informative']:,} can tell rankings apart"))
    told.append(("Rows", f"{len(done(comparison))} of {len(comparison['rows'])}", states(comparison)))
    return told


def _lead(comparison: Comparison, top: Row, base: Row) -> str:
    difference = against_chosen(top)
    if difference is None:
        gap = top["values"][MEASURE]["mean"] - base["values"][MEASURE]["mean"]
        return f"That is {signed(gap)} over {base['title']}; nothing is known of chance."
    told = (
        f"That is {signed(difference['mean'])} over {base['title']} ({comparison['confidence']:.0%} interval"
        f" {signed_interval(difference)}), "
    )
    p = f"{p_text(difference['p_holm'])} after Holm's correction"
    if difference["p_holm"] < LEVEL:
        return told + f"and chance does not explain it: {p}."
    alone = " Tested alone it would have passed." if difference["p"] < LEVEL else ""
    return told + f"but these queries cannot tell the two apart: {p}.{alone}"


def _no_base(comparison: Comparison) -> str:
    if comparison["against"] is None:
        return "Nothing is said about chance: the row that they were to be tested against was not measured."
    row = row_of(comparison, comparison["against"])
    what = {"failed": "failed", "empty": "is empty"}.get(row["state"], "has no figure") if row else "is not among them"
    title = title_of(comparison, comparison["against"])
    return f"Nothing is said about chance: {title}, which they were to be tested against, {what}."


def _level(comparison: Comparison, top: Row) -> str:
    """The rows that have exactly the figure of the best."""
    rows = [row for row in done(comparison) if row["values"][MEASURE]["mean"] == top["values"][MEASURE]["mean"]]
    return f"Level with it: {', '.join(row['title'] for row in rows if row is not top)}." if len(rows) > 1 else ""


def _finds_less(comparison: Comparison) -> list[str]:
    """Whether the best row is good at ordering what is given to it, yet worse at finding it than the chosen one."""
    top, base = best(comparison), chosen(comparison)
    if top is None or base is None:
        return []
    names = [name for name in comparison["measures"] if name.startswith("collection_")]
    differences = {name: against_chosen(top, name) for name in names}
    below = {name: value for name, value in differences.items() if value and side(value) == "below"}
    if not below:
        return []
    told = ", ".join(
        f"{measure_name(name).removesuffix(', all documents')} {signed(value['mean'])}" for name, value in below.items()
    )
    return [
        f"Where every document of the collection may be found, {top['title']} is below {base['title']} beyond chance"
        f" ({told}): it orders given documents better than it finds them. Documents that nobody judged gain nothing"
        " there."
    ]


def _over_bm25(comparison: Comparison, top: Row) -> str:
    """A sentence of its own only where BM25 is not what the lead was told over already."""
    gap = to_bm25(comparison, top)
    if BM25 in (comparison["against"], top["name"]) or gap is None:
        return ""
    bm25 = row_of(comparison, BM25)
    assert bm25 is not None  # or there would be no gap
    mean = figure(bm25["values"][MEASURE]["mean"])
    return f"Over {bm25['title']}, which has {mean}, it is {signed(gap)}, a difference that was not tested here."


def _others(comparison: Comparison, top: Row) -> str:
    """How the rest stands to the chosen row."""
    sides = [side(against_chosen(row)) for row in done(comparison) if row is not top]
    kinds = (("above", "above it beyond chance"), ("below", "below it beyond chance"), ("alike", "not significant"))
    told = ", ".join(f"{sides.count(kind)} {words}" for kind, words in kinds if kind in sides)
    if not told:
        return ""
    if top["name"] == comparison["against"]:
        return f"Rows tested against it: {told}."
    return f"Other rows tested against {title_of(comparison, comparison['against'])}: {told}."


def _towers(comparison: Comparison) -> list[Row]:
    return [row for row in done(comparison) if row["family"] in ("tower", "model")]
