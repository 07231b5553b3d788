"""What came out of a comparison: which row is best, by how much, whether to believe it, and what to beware of."""

from training.compare.wording import (
    BM25,
    LEVEL,
    MEASURE,
    Comparison,
    Row,
    against_chosen,
    best,
    capital,
    chosen,
    counted,
    done,
    figure,
    p_text,
    row_of,
    sentence,
    side,
    signed,
    signed_interval,
    title_of,
    to_bm25,
)
from training.wording import measure_name


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
        chance = {"above": "beyond chance", "below": "beyond chance", "alike": "not told apart"}[side(difference)]
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
    kinds = (("above", "above it beyond chance"), ("below", "below it beyond chance"), ("alike", "not told apart"))
    told = ", ".join(f"{sides.count(kind)} {words}" for kind, words in kinds if kind in sides)
    if not told:
        return ""
    if top["name"] == comparison["against"]:
        return f"Rows tested against it: {told}."
    return f"Other rows tested against {title_of(comparison, comparison['against'])}: {told}."


def _towers(comparison: Comparison) -> list[Row]:
    return [row for row in done(comparison) if row["family"] in ("tower", "model")]
