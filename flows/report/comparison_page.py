"""A comparison -> blocks: the answer, the tables with what stands in every cell, and what is behind them.

A comparison here is the value of comparison.json.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from flows.report import html
from flows.report.blocks import (
    BY_CLICKS,
    SIMULATED,
    Beside,
    Block,
    Cell,
    Figures,
    Heading,
    Items,
    Page,
    Picture,
    Section,
    Table,
    Text,
    grade_legend,
    ranked,
)
from flows.report.comparison_wording import (
    BM25,
    MEASURE,
    Comparison,
    Row,
    against_chosen,
    answer,
    best,
    capital,
    cautions,
    chosen,
    difference_remark,
    done,
    figure,
    figures,
    in_part,
    interval,
    legend,
    mark,
    outcome,
    paper_remark,
    part_sizes,
    protocol,
    row_notes,
    side,
    signed,
    signed_interval,
    title_of,
    to_bm25,
    verdict,
    without_figures,
)
from flows.report.figures import HALF, WIDE, ChartRow, Dot, dot_of, row_chart
from training.wording import duration, measure_name

SHADE = 0.5  # of the cell that lies farthest from the chosen row
KINDS = ("first", "second", "third")  # tones of the rows that are drawn by parts
RULES_SHOWN = ("ties", "unjudged")  # in a terminal; the page has all
NUM_QUERIES = 3  # in a terminal: that gained, and as many that lost
Columns = list[tuple[str, Callable[[Row], Cell]]]  # of a table: the name of each, and its cell of a row


def write_comparison(path: str, result: Mapping[str, Any]) -> None:
    """Write the page of a comparison; it replaces an older one as a whole. result: the JSON of a compare stage.

    Raises OSError where it cannot be written.
    """
    html.write_page(path, comparison_page(result))


def comparison_page(result: Mapping[str, Any]) -> Page:
    """A page of a comparison alone. result: the JSON of a compare stage."""
    comparison = result["metrics"]
    where = {name: result[name] for name in ("digest", "path") if result.get(name)}  # with failed rows it is not kept
    num_rows, n = len(comparison["rows"]), comparison["n"]
    rows = [[name, f"{value:,}" if isinstance(value, int) else value] for name, value in
            {**where, **result["counts"]}.items()]  # fmt: skip
    record = Section(
        title="For the record", only="page", blocks=[Table(caption="This comparison", header=("Name", "Value"),
                                                           rows=rows, left=(0, 1))]
    )  # fmt: skip
    simulated = bool(result["labels"].get("simulated"))
    by_clicks = comparison["judgments"] == "click-derived"
    return Page(
        kind="comparison",
        title=f"{num_rows} {'row' if num_rows == 1 else 'rows'} on {n:,} judged {'query' if n == 1 else 'queries'}",
        banners=[BY_CLICKS] * by_clicks + [SIMULATED] * simulated,
        blocks=[*comparison_blocks(comparison), *([record] if rows else [])],
    )


def comparison_blocks(comparison: Comparison) -> list[Section]:
    """The comparison, section by section; one of which nothing is known is left out."""
    sections = [
        Section(title="Comparison", blocks=_answer(comparison)),
        _section("The judged documents, ranked", _judged(comparison)),
        _section("The whole collection, searched", _collection(comparison), only="page"),
        _section("Beside the paper", _paper(comparison)),
        _section("For which queries", _parts(comparison), only="page"),
        _section("What it costs", _costs(comparison), only="page"),
        _section("Queries that gained and lost most", _queries(comparison)),
        Section(title="How it was measured", blocks=_measured(comparison)),
    ]
    return [section for section in sections if section.blocks]


def _section(title: str, blocks: Sequence[Block], only: str = "") -> Section:
    """Without a block where no table of it has a figure."""
    tables = [block for block in blocks if isinstance(block, Table)]
    empty = tables and not any(table.rows for table in tables)
    return Section(title=title, blocks=[] if empty else blocks, only=only)


def _answer(comparison: Comparison) -> list[Block]:
    against = title_of(comparison, comparison["against"])
    colours = [
        ("above", f"above {against}, beyond chance"), ("below", "below, beyond chance"), ("alike", "not significant"),
        ("chosen", f"{against}, dotted line"),
    ]  # fmt: skip
    return [
        Text(text=answer(comparison), tone=verdict(comparison)),
        Figures(figures=figures(comparison), only="page"),
        *_whiskers(comparison, [MEASURE], WIDE, colours if legend(comparison) else []),
        Items(items=[*cautions(comparison), *(f"{row['title']} {why}" for row, why in without_figures(comparison))]),
    ]


def _whiskers(
    comparison: Comparison, measures: Sequence[str], width: int, colours: Sequence[tuple[str, str]] = ()
) -> list[Block]:
    """A figure for each of some measures: every row with its interval, beside the chosen one."""
    top, base, pictures = best(comparison), chosen(comparison), []
    for name in measures:
        rows = []
        for row in (row for row in done(comparison) if name in row["values"]):
            value, difference = row["values"][name], against_chosen(row, name)
            kind = "chosen" if row["name"] == comparison["against"] else side(difference) or "alike"
            rows.append(
                ChartRow(
                    name=row["title"],
                    dots=[dot_of(value, kind)],
                    remark=f"{figure(value['mean'])} {mark(difference)}",
                    ours=row is top,
                    aloof=row["family"] == "floor",
                )
            )
        level = base["values"][name]["mean"] if base is not None and name in base["values"] else None
        if rows and name in comparison["measures"]:
            pictures.append(
                Picture(
                    title=measure_name(name),
                    remark=f"with {comparison['confidence']:.0%} intervals",
                    picture=partial(row_chart, rows, measure_name(name), width=width, level=level),
                    legend=colours,
                )
            )
    return [Beside(blocks=pictures, only="page")] if len(pictures) > 1 else list(pictures)


def _judged(comparison: Comparison) -> list[Block]:
    names = [name for name in comparison["measures"] if name.startswith("ndcg@")]
    if not names:
        return []
    columns: Columns = [(measure_name(name), partial(_value, comparison, name)) for name in names]
    if any(against_chosen(row, names[-1]) for row in comparison["rows"]):
        against = title_of(comparison, comparison["against"])
        columns.append((f"{measure_name(names[-1])} − {against}", partial(_difference, names[-1])))
    over = f"Mean over {comparison['n']:,} queries, with {comparison['confidence']:.0%} interval"
    others = [name for name in names if name != MEASURE]
    return [
        *_whiskers(comparison, others, HALF),
        _table(comparison, over, columns, states=True),
        *([Text(text=legend(comparison), tone="quiet")] if legend(comparison) else []),
    ]


def _collection(comparison: Comparison) -> list[Block]:
    names = [name for name in comparison["measures"] if name.startswith("collection_")]
    told = (
        "Ranking only what was judged hides what a system never finds. Here every document may be found, and one that"
        " nobody judged gains nothing."
    )
    columns: Columns = [
        (measure_name(name).removesuffix(", all documents"), partial(_value, comparison, name)) for name in names
    ]
    caption = f"Mean with {comparison['confidence']:.0%} interval"
    return [Text(text=told), _table(comparison, caption, columns, states=True)] if names else []


def _paper(comparison: Comparison) -> list[Block]:
    """The paper's figures, and each row's difference to BM25 here and there; only rows that the paper has."""
    rows = [row for row in comparison["rows"] if row.get("paper")]
    names = [name for name in comparison["measures"] if any(name in row["paper"] for row in rows)]
    if not names:
        return []
    columns: Columns = [(measure_name(name), partial(_paper_figure, name)) for name in names]
    for name in names:
        columns += [("here", partial(_here, comparison, name)), ("paper", partial(_there, name))]
    groups = [("", 1), ("In the paper", len(names)), *((f"{measure_name(name)} − BM25", 2) for name in names)]
    drawn = []
    for row in comparison["rows"]:
        here, there = to_bm25(comparison, row), (row.get("paper_to_bm25") or {}).get(MEASURE)
        if row["name"] == BM25 or there is None:
            continue
        tested = against_chosen(row) if comparison["against"] == BM25 else None
        dots = [Dot(value=there / 100, kind="there")]
        if here is not None:
            dots.append(dot_of(tested, "here") if tested else Dot(value=here, kind="here"))
        drawn.append(ChartRow(name=row["title"], dots=dots, remark="" if here is None else signed(here)))
    label = f"{measure_name(MEASURE)} minus BM25, here and in the paper"
    return [
        Text(text=paper_remark()),
        Picture(
            title=f"{measure_name(MEASURE)} − BM25",
            picture=partial(row_chart, drawn, label, width=WIDE, level=0.0, joined=True),
            legend=[("here", "here"), ("there", "in the paper")],
        ),
        _table(
            comparison,
            "The figures of Table IV, and each row’s difference to BM25",
            columns,
            rows,
            groups=groups,
            only="page",
        ),
        _table(comparison, f"{measure_name(MEASURE)} − BM25", columns[-2:], rows, only="terminal"),
    ]


def _parts(comparison: Comparison) -> list[Block]:
    """Kinds of queries: figures of the few rows that matter, and a shaded table of all rows.

    A slice of which only one part has queries is left out: that is all queries again.
    """
    slices = {name: part_sizes(comparison, name) for name in comparison["slices"]}
    slices = {name: sizes for name, sizes in slices.items() if len(sizes) > 1}
    rows, base = done(comparison), chosen(comparison)
    bm25 = next((row for row in rows if row["name"] == BM25), None)
    matter = {row["name"]: row for row in (best(comparison), base, bm25) if row and row.get("slices")}
    drawn = list(zip(KINDS, matter.values(), strict=False))
    charts = {
        name: [ChartRow(name=part, dots=_dots(drawn, name, part), remark=f"{size:,}") for part, size in sizes.items()]
        for name, sizes in slices.items()
    }
    ends = [end for chart in charts.values() for row in chart for dot in row.dots for end in dot.ends]
    leads = [
        abs(_lead(row, base, name, part))
        for row in rows if row["family"] != "floor"  # knows nothing and lies far below: all others would be pale
        for name, sizes in slices.items() for part in sizes
    ]  # fmt: skip
    most, columns = max(leads, default=0.0), Columns()
    for name, sizes in slices.items():
        for part, size in sizes.items():
            columns.append((f"{part} (n = {size:,})", partial(_in_part, rows, base, name, part, most)))
    shaded = "; shaded where it lies above or below {} in the same column, which is not tested"
    pictures = [
        Picture(
            title=f"{measure_name(MEASURE)} by {name}",
            remark="queries at the right",
            picture=partial(row_chart, chart, f"{measure_name(MEASURE)} by {name}, number of queries",
                            row_height=22 + 9 * len(drawn), around=ends),
            legend=[(kind, row["title"]) for kind, row in drawn],
        )
        for name, chart in charts.items()
    ]  # fmt: skip
    groups = [("", 1), *((name, len(sizes)) for name, sizes in slices.items())]
    caption = f"{measure_name(MEASURE)} of every row{shaded.format(base['title']) if base else ''}"
    return [Beside(blocks=pictures), _table(comparison, caption, columns, rows, groups=groups)] if slices else []


def _dots(drawn: Sequence[tuple[str, Row]], name: str, part: str) -> list[Dot]:
    values = [(kind, in_part(row, name, part)) for kind, row in drawn]
    return [dot_of(value[MEASURE], kind) for kind, value in values if value]


def _lead(row: Row, base: Row | None, name: str, part: str) -> float:
    """Of a row over the chosen one in a part of the queries."""
    of, to = in_part(row, name, part), (in_part(base, name, part) if base else None)
    return of[MEASURE]["mean"] - to[MEASURE]["mean"] if of and to else 0.0


def _in_part(rows: Sequence[Row], base: Row | None, name: str, part: str, most: float, row: Row) -> Cell:
    found = in_part(row, name, part)
    if found is None:
        return Cell()
    value, lead = found[MEASURE], _lead(row, base, name, part)
    others = [other for row_of in rows if (other := in_part(row_of, name, part))]
    top = value["mean"] == max(other[MEASURE]["mean"] for other in others)
    shade = max(-SHADE, min(SHADE, SHADE * lead / most)) if most else 0.0
    return Cell(text=figure(value["mean"]), strong=top, shade=shade, tip=interval(value))


def _costs(comparison: Comparison) -> list[Block]:
    """What each row costs. What a row does not have, such as parameters of BM25, is empty."""
    names = ("parameters", "dimensions", "train_seconds", "texts_per_second")
    rows = [row for row in done(comparison) if any(row.get(name) is not None for name in names)]
    # A bar where more is more to pay or to gain: a vector's length is neither.
    largest = {name: max((row.get(name) or 0 for row in rows), default=0) for name in names if name != "dimensions"}

    def cost(name: str, row: Row) -> Cell:
        value = row.get(name)
        if value is None:
            return Cell()
        reused = "reused" if name == "train_seconds" and row["reused"] else ""
        text = duration(value) if name == "train_seconds" else f"{value:,.0f}"
        return Cell(text=text, aside=reused, share=value / largest[name] if largest.get(name) else None)

    columns: Columns = [(measure_name(MEASURE), lambda row: Cell(text=figure(row["values"][MEASURE]["mean"])))]
    titles = ("Parameters", "Dimensions", "Training", "Texts per second")
    columns += [(title, partial(cost, name)) for title, name in zip(titles, names, strict=True)]
    return [_table(comparison, "Bars are shares of the largest of their column", columns, rows)] if rows else []


def _queries(comparison: Comparison) -> list[Block]:
    difference = comparison.get("difference")
    if not difference or not difference["queries"]:
        return []
    told = [
        f"{figure(query['of'])} against {figure(query['to'])}  {query['query']}"
        for why in ("gain", "loss")
        for query in [query for query in difference["queries"] if query["why"] == why][:NUM_QUERIES]
    ]
    blocks: list[Block] = [Text(text=difference_remark(comparison)), Items(items=told, tone="", only="terminal")]
    blocks.append(Text(text=grade_legend(comparison["judgments"] == "click-derived").text, tone="quiet", only="page"))
    for query in difference["queries"]:
        rankings = [
            ranked(
                title_of(comparison, name),
                [(d.get("grade"), d["title"], "") for d in query["rankings"].get(name, ())],
            )
            for name in (difference["of"], difference["to"])
        ]
        blocks += [
            Heading(text=query["query"], only="page"),
            Text(text=capital(outcome(comparison, query)), tone="quiet", only="page"),
            Beside(blocks=rankings, only="page"),
        ]
    return blocks


def _measured(comparison: Comparison) -> list[Block]:
    notes = row_notes(comparison)
    return [
        Items(items=protocol(comparison), only="page"),
        Items(items=protocol(comparison, RULES_SHOWN), only="terminal"),
        *([Section(title="Notes on rows", folded=True, blocks=[Items(items=notes)], only="page")] if notes else []),
    ]


def _table(
    comparison: Comparison,
    caption: str,
    columns: Columns,
    rows: Sequence[Row] | None = None,
    *,
    states: bool = False,
    groups: Sequence[tuple[str, int]] = (),
    only: str = "",
) -> Table:
    """A row for each of `rows`, by default all; states: one without figures says in which state it is."""
    made: list[list[Cell | str]] = []
    rows = comparison["rows"] if rows is None else rows
    for row in rows:
        aside = "chosen" if row["name"] == comparison["against"] else ""
        cells = [cell_of(row) for _, cell_of in columns]
        if states and row["state"] != "done" and not any(cell.text for cell in cells):
            cells[:1] = [Cell(text=row["state"], tone=row["state"])]
        made.append([Cell(text=row["title"], aside=aside), *cells])
    top = [at for at, row in enumerate(rows) if row is best(comparison)]
    header = ["Row", *(name for name, _ in columns)]
    return Table(caption=caption, header=header, rows=made, groups=groups, strong=top, only=only)


def _value(comparison: Comparison, name: str, row: Row) -> Cell:
    if name not in row["values"]:
        return Cell()
    value, difference = row["values"][name], against_chosen(row, name)
    top = max(other["values"][name]["mean"] for other in done(comparison) if name in other["values"])
    return Cell(
        text=figure(value["mean"]), aside=interval(value), mark=mark(difference), tone=side(difference),
        strong=value["mean"] == top,
    )  # fmt: skip


def _difference(measure: str, row: Row) -> Cell:
    """A row's difference to the chosen one, with its interval and its stars."""
    value = against_chosen(row, measure)
    if value is None:
        return Cell()
    return Cell(text=signed(value["mean"]), aside=signed_interval(value), mark=mark(value), tone=side(value))


def _here(comparison: Comparison, measure: str, row: Row) -> Cell:
    """A row's difference to BM25 here; BM25's own is empty."""
    value = None if row["name"] == BM25 else to_bm25(comparison, row, measure)
    return Cell() if value is None else Cell(text=signed(value))


def _there(measure: str, row: Row) -> Cell:
    """A row's difference to BM25 in the paper; BM25's own is empty."""
    return Cell() if row["name"] == BM25 else _of_paper((row.get("paper_to_bm25") or {}).get(measure), signed)


def _paper_figure(measure: str, row: Row) -> Cell:
    return _of_paper(row["paper"].get(measure), figure)


def _of_paper(points: float | None, show: Callable[[float], str]) -> Cell:
    """A figure of the paper, which has points of a hundred, on the scale of ours."""
    return Cell() if points is None else Cell(text=show(points / 100))
