"""What the page shows of a comparison: sentences and cells as the terminal and Markdown have them, and pictures."""

from typing import Any

from markupsafe import Markup

from flows.report.row_chart import ChartRow, Dot, dot_of, for_any_screen
from training.compare import cells, wording
from training.compare.wording import MEASURE, Comparison, Row
from training.wording import measure_name, visible

WIDE, HALF = (920, 290), (520, 196)  # the width of a picture, and the room for titles in it
TITLE_CHARS = 32  # of a title that fits beside a wide picture and above a narrow one
HALF_CHARS = 24  # beside one of half the width
SHADE = 0.5  # of the cell that lies farthest from the chosen row
SYSTEMS = ("first", "second", "third")  # classes of the rows whose slices are drawn


def told(comparison: Comparison) -> dict[str, Any]:
    """What the template shows of a comparison beside the value itself."""
    against = wording.title_of(comparison, comparison["against"])
    costs = cells.cost_table(comparison)
    difference = comparison.get("difference")
    return {
        "answer": wording.answer(comparison),
        "verdict": wording.verdict(comparison),
        "figures": wording.figures(comparison),
        "cautions": wording.cautions(comparison),
        "protocol": wording.protocol(comparison),
        "row_notes": wording.row_notes(comparison),
        "legend": wording.legend(comparison),
        "against": against,
        "measure": measure_name(MEASURE),
        "decisive": _whiskers(comparison, wide=True),
        "whiskers": _whiskers(comparison, wide=False),
        "judged": cells.ndcg_table(comparison),
        "collection": cells.collection_table(comparison),
        "paper": cells.paper_table(comparison),
        "paper_remark": wording.paper_remark(),
        "paper_picture": _beside_the_paper(comparison),
        "slices": [
            (name, list(wording.part_sizes(comparison, name).items())) for name, _ in cells.slice_tables(comparison)
        ],
        "slice_systems": [(kind, row["title"]) for kind, row in _drawn(comparison)],
        "slice_pictures": _slice_pictures(comparison),
        "slice_rows": _slice_rows(comparison),
        "shaded": wording.chosen(comparison) is not None,
        "cost_header": costs.header,
        "cost": _costs(costs),
        "titles": {name: wording.title_of(comparison, name) for name in _compared(comparison)},
        "difference_remark": wording.difference_remark(comparison) if difference else "",
        "outcomes": [wording.outcome(comparison, query) for query in difference["queries"]] if difference else [],
    }


def _compared(comparison: Comparison) -> list[str]:
    """The two rows of the difference between queries."""
    difference = comparison.get("difference")
    return [difference["of"], difference["to"]] if difference else []


def _whiskers(comparison: Comparison, wide: bool) -> list[tuple[str, Markup]]:
    """(title, picture): wide, of the cutoff that decides; or of the others."""
    names = [m for m in comparison["measures"] if m.startswith("ndcg@") and (m == MEASURE) == wide]
    return [(measure_name(name), picture) for name in names if (picture := _of_measure(comparison, name, wide))]


def _of_measure(comparison: Comparison, name: str, wide: bool) -> Markup:
    top, base = wording.best(comparison), wording.chosen(comparison)
    (width, left), chars = (WIDE, TITLE_CHARS) if wide else (HALF, HALF_CHARS)
    rows = []
    for row in wording.done(comparison):
        if name in row["values"]:
            stars = wording.mark(wording.against_chosen(row, name))
            rows.append(
                ChartRow(
                    name=_short(row["title"], chars),
                    dots=[dot_of(row["values"][name], _kind(comparison, row, name))],
                    remark=f"{wording.figure(row['values'][name]['mean'])} {stars}",
                    ours=row is top,
                    aloof=row["family"] == "floor",
                )
            )
    level = base["values"][name]["mean"] if base is not None and name in base["values"] else None
    return for_any_screen(rows, measure_name(name), width=width, left=left, level=level)


def _kind(comparison: Comparison, row: Row, measure: str) -> str:
    if row["name"] == comparison["against"]:
        return "chosen"
    return wording.side(wording.against_chosen(row, measure)) or "alike"


def _beside_the_paper(comparison: Comparison) -> Markup:
    """Each row's difference to BM25 here, with its interval where it was tested against BM25, and in the paper."""
    rows = []
    for row in comparison["rows"]:
        here, there = wording.to_bm25(comparison, row), (row.get("paper_to_bm25") or {}).get(MEASURE)
        if row["name"] == wording.BM25 or there is None:
            continue
        tested = wording.against_chosen(row) if comparison["against"] == wording.BM25 else None
        dots = [Dot(value=there / 100, kind="there")]
        if here is not None:
            dots.append(dot_of(tested, "here") if tested else Dot(value=here, kind="here"))
        remark = "" if here is None else wording.signed(here)
        rows.append(ChartRow(name=_short(row["title"]), dots=dots, remark=remark))
    label = f"{measure_name(MEASURE)} minus BM25, here and in the paper"
    return for_any_screen(rows, label, width=WIDE[0], left=WIDE[1], level=0.0, joined=True)


def _drawn(comparison: Comparison) -> list[tuple[str, Row]]:
    """The rows whose slices are drawn: the best, the chosen one, BM25."""
    bm25 = next((row for row in wording.done(comparison) if row["name"] == wording.BM25), None)
    rows = [row for row in (wording.best(comparison), wording.chosen(comparison), bm25) if row and row.get("slices")]
    different = list({row["name"]: row for row in rows}.values())
    return list(zip(SYSTEMS, different, strict=False))


def _slice_pictures(comparison: Comparison) -> list[tuple[str, Markup]]:
    """(slice, picture of its parts), all on one scale."""
    drawn = _drawn(comparison)
    charts = {}
    for name, _ in cells.slice_tables(comparison):
        charts[name] = []
        for part, size in wording.part_sizes(comparison, name).items():
            values = [(kind, row["slices"].get(name, {}).get(part)) for kind, row in drawn]
            dots = [dot_of(value[MEASURE], kind) for kind, value in values if value]
            charts[name].append(ChartRow(name=_short(part, HALF_CHARS), dots=dots, remark=f"{size:,}"))
    ends = [end for rows in charts.values() for row in rows for dot in row.dots for end in dot.ends]
    pictures = []
    for name, rows in charts.items():
        label = f"{measure_name(MEASURE)} by {name}, number of queries"
        height = 22 + 9 * len(drawn)
        picture = for_any_screen(rows, label, width=HALF[0], left=HALF[1], row_height=height, around=ends)
        pictures.append((name, picture))
    return [(name, picture) for name, picture in pictures if picture]


def _slice_rows(comparison: Comparison) -> list[tuple[Row, list[tuple[cells.Cell, float, bool]]]]:
    """Each row with its cells of all slices: (cell, shade from -0.5 to 0.5, whether a slice begins here)."""
    tables = [table for _, table in cells.slice_tables(comparison)]
    if not tables:
        return []
    joined = [
        (row, [(cell, at == 0) for table in tables for at, cell in enumerate(table.rows[place][1])])
        for place, (row, _) in enumerate(tables[0].rows)
    ]
    base = next((line for row, line in joined if row["name"] == comparison["against"]), None)
    gaps = [
        [
            cell.value - base[at][0].value if base and cell.value is not None and base[at][0].value is not None else 0.0
            for at, (cell, _) in enumerate(line)
        ]
        for _, line in joined
    ]
    # What knows nothing lies far below: it shall not make all others pale.
    most = max((abs(gap) for (row, _), line in zip(joined, gaps, strict=True) for gap in line
                if row["family"] != "floor"), default=0.0)  # fmt: skip
    return [
        (row, [(cell, _shade(gap, most), first) for (cell, first), gap in zip(line, of_row, strict=True)])
        for (row, line), of_row in zip(joined, gaps, strict=True)
    ]


def _shade(gap: float, most: float) -> float:
    return 0.0 if not most else max(-SHADE, min(SHADE, SHADE * gap / most))


def _costs(table: cells.Table) -> list[tuple[Row, str, list[tuple[cells.Cell, float | None]]]]:
    """(row, its NDCG@10, its cells with their share of the column's largest), of rows of which a cost is known."""
    # A bar where more is more to pay or to gain: a vector's length is neither.
    largest = [
        0.0 if name == "Dimensions" else max((row[at].value or 0.0 for _, row in table.rows), default=0.0)
        for at, name in enumerate(table.header)
    ]
    return [
        (row, wording.figure(row["values"][MEASURE]["mean"]),
         [(cell, _share(cell.value, most)) for cell, most in zip(line, largest, strict=True)])
        for row, line in table.rows
        if any(cell.text for cell in line)
    ]  # fmt: skip


def _share(value: float | None, most: float) -> float | None:
    return None if value is None or not most else value / most


def _short(text: str, chars: int = TITLE_CHARS) -> str:
    text = visible(text)
    return text if len(text) <= chars else f"{text[: chars - 1].rstrip()}…"
