"""A comparison -> blocks: the answer, the tables, and the rules behind them.

A comparison here is the value of comparison.json. A row is `done`, `failed` or `empty`; only done rows have values. All
sentences follow from the values.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from clicktower.flows.report.blocks import (
    BY_CLICKS,
    SIMULATED,
    Beside,
    Block,
    Cell,
    Heading,
    Items,
    Page,
    Picture,
    Section,
    Table,
    Text,
    duration,
    grade_legend,
    measurement_blocks,
    quantity,
    ranking_table,
    sentence,
)
from clicktower.flows.report.figures import WIDE, ChartRow, Dot, dot_of, row_chart
from clicktower.training.evaluation import TABLES
from clicktower.training.ranking.ndcg import measure_name

Comparison = Mapping[str, Any]
Row = Mapping[str, Any]
Difference = Mapping[str, float] | None  # {"mean", "low", "high", "p", "p_holm"}
Columns = list[tuple[str, Callable[[Row], Cell]]]  # of a table: each one's name, and its cell for a row

MEASURE = "ndcg@10"  # decides which row is best
BM25 = "bm25"  # the row whose differences are beside the paper's
LEVEL = 0.05  # a corrected p below it is beyond chance
STARS = ((0.001, "***"), (0.01, "**"), (LEVEL, "*"))
MIN_PART_QUERIES = 20  # a mean over fewer is chance
ALIKE = "≈"  # marks a row whose difference from the chosen one is not significant
JUDGES = {
    "assessors": "Judgments: those of the qrels file.",
    "click-derived": "Judgments: derived from clicks, by no judge.",
}
WHY = {"gain": "Gained", "loss": "Lost"}


def comparison_page(result: Mapping[str, Any]) -> Page:
    """A page of a comparison alone. result: the JSON of a compare stage."""
    comparison = result["metrics"]
    where = {
        name: result[name] for name in ("digest", "path") if result.get(name)
    }  # none with failed rows: it is not kept
    counts = {name: f"{count:,}" for name, count in result["counts"].items()}
    rows = [[name, value] for name, value in {**where, **counts}.items()]
    record = Table(caption="This comparison", header=("Name", "Value"), rows=rows, left=(0, 1))
    blocks = comparison_blocks(comparison)
    return Page(
        kind="comparison",
        title=f"{quantity(len(comparison['rows']), 'row')} on {quantity(comparison['n'], 'judged query')}",
        banners=[BY_CLICKS] * (comparison["judgments"] == "click-derived")
        + [SIMULATED] * bool(result["labels"].get("simulated")),
        blocks=[*blocks, Section(title="For the record", blocks=[record])] if rows else blocks,
    )


def comparison_blocks(comparison: Comparison) -> list[Section]:
    """The comparison, section by section; a section without data is left out."""
    sections = [
        Section(title="Comparison", blocks=_answer(comparison)),
        Section(title="The judged documents, ranked", blocks=_judged(comparison)),
        Section(title="The whole collection, searched", blocks=_collection(comparison), only="page"),
        Section(title="Beside the paper", blocks=_paper(comparison)),
        Section(title="For which queries", blocks=_parts(comparison), only="page"),
        Section(title="What it costs", blocks=_costs(comparison), only="page"),
        Section(title="Queries that gained and lost most", blocks=_queries(comparison)),
        Section(title="How it was measured", blocks=_measurement(comparison)),
    ]
    return [section for section in sections if section.blocks]


# The rows by their role in the comparison.


def finished_rows(comparison: Comparison) -> list[Row]:
    """The rows that have values."""
    return [row for row in comparison["rows"] if row["state"] == "done" and MEASURE in row["values"]]


def best(comparison: Comparison) -> Row | None:
    """The row with the highest NDCG@10; among equal ones the chosen row, or the first. None if no row is done."""

    def rank(row: Row) -> tuple[float, bool]:
        return row["values"][MEASURE]["mean"], row["name"] == comparison["against"]

    return max(finished_rows(comparison), key=rank, default=None)


def reference_row(comparison: Comparison) -> Row | None:
    """The row that all others are tested against, if it is done."""
    return next((row for row in finished_rows(comparison) if row["name"] == comparison["against"]), None)


def title_of(comparison: Comparison, name: str | None) -> str:
    """The title of the row with this name; the name itself if there is no such row."""
    return next((row["title"] for row in comparison["rows"] if row["name"] == name), name or "none")


def difference_to_reference(row: Row, measure: str = MEASURE) -> Difference:
    """A row's difference to the chosen one; None for the chosen one itself and without tests."""
    return (row.get("to_against") or {}).get(measure)


def to_bm25(comparison: Comparison, row: Row, measure: str = MEASURE) -> float | None:
    """How far a row's mean is above BM25's; None if either was not measured."""
    bm25 = next((row["values"].get(measure) for row in comparison["rows"] if row["name"] == BM25), None)
    return row["values"][measure]["mean"] - bm25["mean"] if bm25 and measure in row["values"] else None


# Figures and their marks.


def side(difference: Difference) -> str:
    """above, below (both beyond chance) or alike; empty without a test."""
    if difference is None:
        return ""
    if difference["p_holm"] >= LEVEL:
        return "alike"
    return "above" if difference["mean"] > 0 else "below"


def mark(difference: Difference) -> str:
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


# The answer: the best row, by how much, how certain, and caveats.


def _answer(comparison: Comparison) -> list[Block]:
    against, base, rows = title_of(comparison, comparison["against"]), reference_row(comparison), []
    for row in finished_rows(comparison):
        value, difference = row["values"][MEASURE], difference_to_reference(row)
        kind = "chosen" if row is base else side(difference) or "alike"
        rows.append(
            ChartRow(
                name=row["title"], dots=[dot_of(value, kind)], remark=f"{figure(value['mean'])} {mark(difference)}",
                ours=row is best(comparison), aloof=row["family"] == "floor",
            )
        )  # fmt: skip
    colours = [
        ("above", f"above {against}, beyond chance"), ("below", "below, beyond chance"), ("alike", "not significant"),
        ("chosen", f"{against}, dotted line"),
    ]  # fmt: skip
    level = base["values"][MEASURE]["mean"] if base else None
    picture = Picture(
        title=measure_name(MEASURE),
        remark=f"with {comparison['confidence']:.0%} intervals",
        picture=partial(row_chart, rows, measure_name(MEASURE), width=WIDE, level=level),
        legend=colours if legend(comparison) else [],
    )
    notes = [*cautions(comparison), *without_figures(comparison)]
    return [Text(text=answer(comparison), tone=verdict(comparison)), picture, Items(items=notes)]


def comparison_headline(result: Mapping[str, Any]) -> str:
    """A compare stage's result in one line: how many rows, and the best beside the chosen one."""
    comparison: Comparison = result["metrics"]
    rows, measured = comparison["rows"], finished_rows(comparison)
    top, base = best(comparison), reference_row(comparison)
    text = quantity(len(measured), "row") if len(measured) == len(rows) else f"{len(measured)} of {len(rows)} rows"
    if top is None:
        return f"{text} measured"
    text += f"; highest {measure_name(MEASURE)} {figure(top['values'][MEASURE]['mean'])} ({top['title']})"
    if base is not None and base is not top:
        text += f", {base['title']} {figure(base['values'][MEASURE]['mean'])}"
    return f"{text}, over {comparison['n']:,} queries"


def answer(comparison: Comparison) -> str:
    """The outcome in a paragraph: the best row, its lead over the chosen row, and the role of chance."""
    rows, top, base = finished_rows(comparison), best(comparison), reference_row(comparison)
    if top is None:
        return "No row could be measured: there is nothing to compare."
    name, value = measure_name(MEASURE), top["values"][MEASURE]
    around = f"{figure(value['mean'])} ({figure(value['low'])} to {figure(value['high'])})"
    over = f"{around} over {quantity(comparison['n'], 'query')}"
    if len(rows) == 1:
        return f"The only row that was measured is {top['title']}: {name} {over}. There is nothing to compare it with."
    if top is base:
        text = f"No row is above {base['title']}: {name} {over}."
    else:
        text = f"Highest {name}: {top['title']}, {over}. {_lead(comparison, top, base)}"
    sides = [side(difference_to_reference(row)) for row in rows if row is not top]
    kinds = (("above", "above it beyond chance"), ("below", "below it beyond chance"), ("alike", "not significant"))
    outcomes = ", ".join(f"{sides.count(kind)} {words}" for kind, words in kinds if kind in sides)
    against = "" if base is None or top is base else f" tested against {base['title']}"
    return f"{text} Other rows{against}: {outcomes}." if outcomes else text


def _lead(comparison: Comparison, top: Row, base: Row | None) -> str:
    difference = difference_to_reference(top)
    if base is None or difference is None:
        title = title_of(comparison, comparison["against"])
        return f"Nothing is said about chance: there is no figure of {title} to test them against."
    text = f"That is {signed(difference['mean'])} over {base['title']} ({comparison['confidence']:.0%} interval"
    p = "p < 0.0001" if difference["p_holm"] < 0.00005 else f"p = {difference['p_holm']:.4f}"
    end = (
        "and chance does not explain it"
        if difference["p_holm"] < LEVEL
        else "but these queries cannot tell the two apart"
    )
    return f"{text} {signed_interval(difference)}), {end}: {p} after Holm's correction."


def verdict(comparison: Comparison) -> str:
    """better or worse (is any row above the chosen one, beyond chance?), open if chance may explain it, unknown."""
    top, base = best(comparison), reference_row(comparison)
    sides = [side(difference_to_reference(row)) for row in finished_rows(comparison)]
    if top is None or base is None or not any(sides):
        return "unknown"
    if top is base:
        return "open" if "alike" in sides else "worse"
    return "better" if side(difference_to_reference(top)) == "above" else "open"


def cautions(comparison: Comparison) -> list[str]:
    """Caveats, a sentence or two each."""
    notes = [sentence(warning) for warning in comparison["warnings"]]
    names = [name for name in comparison["measures"] if name.startswith("collection_")]
    top, title = best(comparison), title_of(comparison, comparison["against"])
    if top and (below := [name for name in names if side(difference_to_reference(top, name)) == "below"]):
        notes.insert(
            0,
            f"{top['title']} orders given documents better than it finds them: where every document may be found, it is"
            f" below {title} beyond chance at {' and '.join(map(measure_name, below))}.",
        )
    if len(finished_rows(comparison)) > 2:
        notes.append(
            "The best of several rows is best partly by luck: where these queries choose one, judge it again on queries"
            " that chose nothing."
        )
    return notes


def without_figures(comparison: Comparison) -> list[str]:
    """The rows without values, and why."""
    return [
        f"{row['title']} {'is empty' if row['state'] == 'empty' else row['state']}"
        + (f": {row['why'].rstrip('.')}." if row.get("why") else ".")
        for row in comparison["rows"]
        if row["state"] != "done"
    ]


def legend(comparison: Comparison) -> str:
    """What the marks mean; empty without tests."""
    if not any(row.get("to_against") for row in comparison["rows"]):
        return ""
    title = title_of(comparison, comparison["against"])
    stars = ", ".join(f"{stars} p < {below:g}" for below, stars in reversed(STARS))
    return f"Against {title}, p after Holm's correction: {stars}, {ALIKE} not significant."


# The tables: a row for each row of the comparison.


def _table(
    comparison: Comparison,
    caption: str,
    columns: Columns,
    rows: Sequence[Row],
    *,
    groups: Sequence[tuple[str, int]] = (),
    only: str = "",
) -> Table:
    lines: list[list[Cell | str]] = []
    for row in rows:
        aside = "chosen" if row["name"] == comparison["against"] else ""
        cells = [cell_of(row) for _, cell_of in columns]
        if row["state"] != "done" and not any(cell.text for cell in cells):
            cells[0] = Cell(text=row["state"], tone=row["state"])
        lines.append([Cell(text=row["title"], aside=aside), *cells])
    top = [at for at, row in enumerate(rows) if row is best(comparison)]
    header = ["Row", *(name for name, _ in columns)]
    return Table(caption=caption, header=header, rows=lines, groups=groups, strong=top, only=only)


def _judged(comparison: Comparison) -> list[Block]:
    names = [name for name in comparison["measures"] if name.startswith("ndcg@")]
    if not finished_rows(comparison) or not names:
        return []
    columns: Columns = [(measure_name(name), partial(_value, comparison, name)) for name in names]
    if any(difference_to_reference(row, names[-1]) for row in comparison["rows"]):
        against = title_of(comparison, comparison["against"])
        columns.append((f"{measure_name(names[-1])} − {against}", partial(_difference, names[-1])))
    caption = f"Mean over {comparison['n']:,} queries, with {comparison['confidence']:.0%} interval"
    marks = legend(comparison)
    table = _table(comparison, caption, columns, comparison["rows"])
    return [table, *([Text(text=marks, tone="quiet")] if marks else [])]


def _collection(comparison: Comparison) -> list[Block]:
    names = [name for name in comparison["measures"] if name.startswith("collection_")]
    text = (
        "Ranking only what was judged hides what a system never finds. Here every document may be found, and one that"
        " nobody judged gains nothing."
    )
    columns: Columns = [
        (measure_name(name).removesuffix(", all documents"), partial(_value, comparison, name)) for name in names
    ]
    caption = f"Mean with {comparison['confidence']:.0%} interval"
    return [Text(text=text), _table(comparison, caption, columns, comparison["rows"])] if names else []


def _value(comparison: Comparison, name: str, row: Row) -> Cell:
    """A mean with its interval and its mark."""
    if name not in row["values"]:
        return Cell()
    value, difference = row["values"][name], difference_to_reference(row, name)
    top = max(row_done["values"][name]["mean"] for row_done in finished_rows(comparison) if name in row_done["values"])
    return Cell(
        text=figure(value["mean"]), aside=interval(value), mark=mark(difference), tone=side(difference),
        strong=value["mean"] == top,
    )  # fmt: skip


def _difference(measure: str, row: Row) -> Cell:
    """A row's difference to the chosen one, with its interval and its stars."""
    value = difference_to_reference(row, measure)
    if value is None:
        return Cell()
    return Cell(text=signed(value["mean"]), aside=signed_interval(value), mark=mark(value), tone=side(value))


def _paper(comparison: Comparison) -> list[Block]:
    """The two tables beside the paper's figures, and how similar the order of rows is to the paper's; only the paper's
    rows.

    A row that is neither printed nor tuned, such as BM25, is in both tables.
    """
    by_paper_row: dict[str, dict[str, Row]] = {}
    for row in comparison["rows"]:
        if row.get("paper"):
            row_of_table = dict.fromkeys([row["table"]] if row["table"] else TABLES, row)
            by_paper_row.setdefault(row["paper_row"], {}).update(row_of_table)
    rows = [
        {**next(iter(row_of_table.values())), "title": title, "tables": row_of_table}
        for title, row_of_table in by_paper_row.items()
    ]
    names = [name for name in comparison["measures"] if any(name in row["paper"] for row in rows)]
    if not names:
        return []
    text = "The paper's figures come from its authors' own data, so only differences to BM25 and orders are comparable."
    return [
        Text(text=text),
        _paper_picture(comparison, rows),
        *(_measure_block(comparison, name, rows) for name in names),
        *_orders(comparison, names),
    ]


def _measure_block(comparison: Comparison, name: str, rows: Sequence[Row]) -> Table:
    """A measure, and its distance from BM25's, in the paper and in the two tables."""

    def there(measure: str, show: Callable[[float], str], row: Row) -> Cell:
        points = (row.get(measure) or {}).get(name)  # of a hundred
        return Cell(text="" if points is None or (measure != "paper" and row["name"] == BM25) else show(points / 100))

    def here(table: str, row: Row) -> Cell:
        value = row["tables"].get(table, {}).get("values", {}).get(name)
        return Cell(text=figure(value["mean"])) if value else Cell()

    def above(table: str, row: Row) -> Cell:
        value = _above_bm25(comparison, row, table, name)
        return Cell() if value is None else Cell(text=signed(value))

    columns: Columns = [("paper", partial(there, "paper", figure))]
    columns += [(table, partial(here, table)) for table in TABLES]
    columns += [("paper", partial(there, "paper_to_bm25", signed))]
    columns += [(table, partial(above, table)) for table in TABLES]
    groups = [("", 1), (measure_name(name), 1 + len(TABLES)), ("− BM25", 1 + len(TABLES))]
    caption = f"{measure_name(name)}, and its difference to BM25"
    return _table(comparison, caption, columns, rows, groups=groups, only="" if name == MEASURE else "page")


def _above_bm25(comparison: Comparison, row: Row, table: str, name: str) -> float | None:
    row_of_table = row["tables"].get(table)
    return to_bm25(comparison, row_of_table, name) if row_of_table and row_of_table["name"] != BM25 else None


def _paper_picture(comparison: Comparison, rows: Sequence[Row]) -> Picture:
    drawn = []
    for row in rows:
        there = (row.get("paper_to_bm25") or {}).get(MEASURE)
        here = {table: _above_bm25(comparison, row, table, MEASURE) for table in TABLES}
        measured_values = {table: value for table, value in here.items() if value is not None}
        if there is not None:
            dots = [Dot(value=there / 100, kind="there")]
            dots += [Dot(value=value, kind=table) for table, value in measured_values.items()]
            drawn.append(ChartRow(name=row["title"], dots=dots, remark=" ".join(map(signed, measured_values.values()))))
    title = f"{measure_name(MEASURE)} − BM25"
    return Picture(
        title=title,
        picture=partial(row_chart, drawn, f"{title}, here and in the paper", width=WIDE, level=0.0, joined=True),
        legend=[("there", "in the paper"), *((table, table) for table in TABLES)],
    )


def _orders(comparison: Comparison, names: Sequence[str]) -> list[Block]:
    """How similar the order of rows in each of the two tables is to the paper's."""
    rows: list[list[Cell | str]] = []
    for table, order in (comparison.get("orders") or {}).items():
        count = len(order["rows"])
        chance = math.sqrt(2 * (2 * count + 5) / (9 * count * (count - 1)))  # of tau if all orders are equally likely
        taus = [Cell(text=f"{order[name]['tau']:+.2f}", aside=_tau_interval(order[name])) for name in names]
        rows.append([table, str(count), *taus, f"0 ± {chance:.2f}"])
    if not rows:
        return []
    header = ("Table", "Rows", *map(measure_name, names), "a random order")
    text = (
        "Kendall’s τ is 1 where the rows stand in the paper’s order, −1 where they stand in its reverse. The interval"
        " is of other queries, ± of other orders: the order here is like the paper’s where τ is beyond both."
    )
    caption = f"Kendall’s τ of the order of rows with the paper’s, with {comparison['confidence']:.0%} interval"
    return [Table(caption=caption, header=header, rows=rows), Text(text=text, tone="quiet")]


def _tau_interval(value: Mapping[str, float]) -> str:
    return f"{value['low']:+.2f} to {value['high']:+.2f}"


def _parts(comparison: Comparison) -> list[Block]:
    """Kinds of queries: every row in every part of each slice that has enough of them.

    A slice with only one part left is omitted: that part is nearly all queries.
    """
    rows, columns, groups = finished_rows(comparison), Columns(), [("", 1)]
    for name, parts in comparison["slices"].items():
        measured_parts = [(part, [figures for row in rows if (figures := _in_part(row, name, part))]) for part in parts]
        measured_parts = [(part, values) for part, values in measured_parts if values]
        if len(measured_parts) > 1:
            groups.append((name, len(measured_parts)))
            for part, values in measured_parts:
                top = max(figures[MEASURE]["mean"] for figures in values)
                columns.append((f"{part} (n = {values[0]['n']:,})", partial(_part_value, name, part, top)))
    caption = f"{measure_name(MEASURE)} of every row"
    return [_table(comparison, caption, columns, rows, groups=groups)] if columns else []


def _part_value(name: str, part: str, top: float, row: Row) -> Cell:
    figures = _in_part(row, name, part)
    if not figures:
        return Cell()
    value = figures[MEASURE]
    return Cell(text=figure(value["mean"]), strong=value["mean"] == top, tip=interval(value))


def _in_part(row: Row, name: str, part: str) -> Mapping[str, Any] | None:
    """A row's value in a part of a slice, with the number of queries; None if too few were measured."""
    figures = (row.get("slices") or {}).get(name, {}).get(part)
    return figures if figures and figures["n"] >= MIN_PART_QUERIES else None


def _costs(comparison: Comparison) -> list[Block]:
    """The cost of each row. A property that a row lacks, such as parameters of BM25, stays empty."""
    names = {"parameters": "Parameters", "dimensions": "Dimensions", "train_seconds": "Training",
             "texts_per_second": "Texts per second"}  # fmt: skip
    rows = [row for row in finished_rows(comparison) if any(row.get(name) is not None for name in names)]

    def cost(name: str, row: Row) -> Cell:
        value = row.get(name)
        if value is None:
            return Cell()
        reused = "reused" if name == "train_seconds" and row["reused"] else ""
        return Cell(text=duration(value) if name == "train_seconds" else f"{value:,.0f}", aside=reused)

    columns: Columns = [(measure_name(MEASURE), lambda row: Cell(text=figure(row["values"][MEASURE]["mean"])))]
    columns += [(title, partial(cost, name)) for name, title in names.items()]
    return [_table(comparison, "Training, and texts encoded, on this machine", columns, rows)] if rows else []


# The background of the tables.


def _queries(comparison: Comparison) -> list[Block]:
    difference = comparison.get("difference")
    if not difference or not difference["queries"]:
        return []
    title, to = (title_of(comparison, difference[key]) for key in ("of", "to"))
    text = f"Where {title} gains and loses most against {to}, by {measure_name(difference['measure'])}."
    legend = grade_legend(comparison["judgments"] == "click-derived")
    blocks: list[Block] = [Text(text=text), replace(legend, only="page")]
    for query in difference["queries"]:
        names = (difference["of"], difference["to"])
        rankings = [ranking_table(title_of(comparison, name), query["rankings"].get(name, ())) for name in names]
        outcome = f"{WHY[query['why']]}: {title} {figure(query['of'])}, {to} {figure(query['to'])}."
        blocks += [
            Heading(text=query["query"]), Text(text=outcome, tone="quiet"), Beside(blocks=rankings, only="page"),
        ]  # fmt: skip
    return blocks


def _measurement(comparison: Comparison) -> list[Block]:
    judges = JUDGES.get(comparison["judgments"], f"Judgments: {comparison['judgments']}.")
    notes = [f"{row['title']}: {note}" for row in comparison["rows"] for note in row.get("notes") or ()]
    folded = Section(title="Notes on rows", folded=True, blocks=[Items(items=notes)], only="page")
    return [Items(items=[judges]), *measurement_blocks(comparison), *([folded] if notes else [])]
