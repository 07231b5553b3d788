"""What the page shows of a comparison: sentences and cells as the terminal and Markdown have them, and pictures."""

from typing import Any

from markupsafe import Markup

from flows.report.figures import HALF, WIDE, ChartRow, Dot, dot_of, row_chart
from training.compare import cells, compare_wording
from training.compare import compare_wording as outcome
from training.compare.compare_wording import MEASURE, Comparison, Row
from training.wording import measure_name


def told(comparison: Comparison) -> dict[str, Any]:
    """What the template shows of a comparison beside the value itself."""
    against = compare_wording.title_of(comparison, comparison["against"])
    costs = cells.cost_table(comparison)
    difference = comparison.get("difference")
    return {
        "answer": outcome.answer(comparison),
        "verdict": outcome.verdict(comparison),
        "figures": outcome.figures(comparison),
        "cautions": outcome.cautions(comparison),
        "protocol": compare_wording.protocol(comparison),
        "row_notes": compare_wording.row_notes(comparison),
        "legend": compare_wording.legend(comparison),
        "against": against,
        "measure": measure_name(MEASURE),
        "decisive": _whiskers(comparison, wide=True),
        "whiskers": _whiskers(comparison, wide=False),
        "judged": cells.ndcg_table(comparison),
        "collection": cells.collection_table(comparison),
        "paper": cells.paper_table(comparison),
        "paper_remark": compare_wording.paper_remark(),
        "paper_picture": _beside_the_paper(comparison),
        "slices": parts(comparison),
        "slice_systems": [(kind, row["title"]) for kind, row in drawn(comparison)],
        "slice_pictures": pictures(comparison),
        "slice_rows": shaded_rows(comparison),
        "shaded": compare_wording.chosen(comparison) is not None,
        "cost_header": costs.header,
        "cost": _costs(costs),
        "titles": {name: compare_wording.title_of(comparison, name) for name in _compared(comparison)},
        "difference_remark": compare_wording.difference_remark(comparison) if difference else "",
        "outcomes": [compare_wording.outcome(comparison, query) for query in difference["queries"]]
        if difference
        else [],
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
    top, base = compare_wording.best(comparison), compare_wording.chosen(comparison)
    rows = []
    for row in compare_wording.done(comparison):
        if name in row["values"]:
            stars = compare_wording.mark(compare_wording.against_chosen(row, name))
            rows.append(
                ChartRow(
                    name=row["title"],
                    dots=[dot_of(row["values"][name], _kind(comparison, row, name))],
                    remark=f"{compare_wording.figure(row['values'][name]['mean'])} {stars}",
                    ours=row is top,
                    aloof=row["family"] == "floor",
                )
            )
    level = base["values"][name]["mean"] if base is not None and name in base["values"] else None
    return row_chart(rows, measure_name(name), width=WIDE if wide else HALF, level=level)


def _kind(comparison: Comparison, row: Row, measure: str) -> str:
    if row["name"] == comparison["against"]:
        return "chosen"
    return compare_wording.side(compare_wording.against_chosen(row, measure)) or "alike"


def _beside_the_paper(comparison: Comparison) -> Markup:
    """Each row's difference to BM25 here, with its interval where it was tested against BM25, and in the paper."""
    rows = []
    for row in comparison["rows"]:
        here, there = compare_wording.to_bm25(comparison, row), (row.get("paper_to_bm25") or {}).get(MEASURE)
        if row["name"] == compare_wording.BM25 or there is None:
            continue
        tested = compare_wording.against_chosen(row) if comparison["against"] == compare_wording.BM25 else None
        dots = [Dot(value=there / 100, kind="there")]
        if here is not None:
            dots.append(dot_of(tested, "here") if tested else Dot(value=here, kind="here"))
        remark = "" if here is None else compare_wording.signed(here)
        rows.append(ChartRow(name=row["title"], dots=dots, remark=remark))
    label = f"{measure_name(MEASURE)} minus BM25, here and in the paper"
    return row_chart(rows, label, width=WIDE, level=0.0, joined=True)


def _costs(table: cells.Table) -> list[tuple[Row, str, list[tuple[cells.Cell, float | None]]]]:
    """(row, its NDCG@10, its cells with their share of the column's largest), of rows of which a cost is known."""
    # A bar where more is more to pay or to gain: a vector's length is neither.
    largest = [
        0.0 if name == "Dimensions" else max((row[at].value or 0.0 for _, row in table.rows), default=0.0)
        for at, name in enumerate(table.header)
    ]
    return [
        (row, compare_wording.figure(row["values"][MEASURE]["mean"]),
         [(cell, _share(cell.value, most)) for cell, most in zip(line, largest, strict=True)])
        for row, line in table.rows
        if any(cell.text for cell in line)
    ]  # fmt: skip


def _share(value: float | None, most: float) -> float | None:
    return None if value is None or not most else value / most


# Parts of the queries: pictures of the few rows that matter, and a shaded table of all rows.


SHADE = 0.5  # of the cell that lies farthest from the chosen row
KINDS = ("first", "second", "third")  # classes of the rows that are drawn


def parts(comparison: Comparison) -> list[tuple[str, list[tuple[str, int]]]]:
    """(slice, its parts with their number of queries), those of which something is known."""
    names = [name for name, _ in cells.slice_tables(comparison)]
    return [(name, list(compare_wording.part_sizes(comparison, name).items())) for name in names]


def drawn(comparison: Comparison) -> list[tuple[str, Row]]:
    """The rows whose parts are drawn, with their classes: the best, the chosen one, BM25."""
    bm25 = next((row for row in compare_wording.done(comparison) if row["name"] == compare_wording.BM25), None)
    rows = [
        row
        for row in (compare_wording.best(comparison), compare_wording.chosen(comparison), bm25)
        if row and row.get("slices")
    ]
    different = list({row["name"]: row for row in rows}.values())
    return list(zip(KINDS, different, strict=False))


def pictures(comparison: Comparison) -> list[tuple[str, Markup]]:
    """(slice, picture of its parts), all on one scale."""
    systems = drawn(comparison)
    charts: dict[str, list[ChartRow]] = {}
    for name, sizes in parts(comparison):
        charts[name] = []
        for part, size in sizes:
            values = [(kind, compare_wording.in_part(row, name, part)) for kind, row in systems]
            dots = [dot_of(value[MEASURE], kind) for kind, value in values if value]
            charts[name].append(ChartRow(name=part, dots=dots, remark=f"{size:,}"))
    ends = [end for rows in charts.values() for row in rows for dot in row.dots for end in dot.ends]
    made = []
    for name, rows in charts.items():
        label, height = f"{measure_name(MEASURE)} by {name}, number of queries", 22 + 9 * len(systems)
        made.append((name, row_chart(rows, label, row_height=height, around=ends)))
    return [(name, picture) for name, picture in made if picture]


def shaded_rows(comparison: Comparison) -> list[tuple[Row, list[tuple[cells.Cell, float, bool]]]]:
    """Each row with its cells of all slices: (cell, shade from -0.5 to 0.5, whether a slice begins here)."""
    tables = [table for _, table in cells.slice_tables(comparison)]
    rows = [
        (row, [(cell, at == 0) for table in tables for at, cell in enumerate(table.rows[place][1])])
        for place, (row, _) in enumerate(tables[0].rows if tables else ())
    ]
    # What knows nothing lies far below: it shall not make all others pale.
    leads = [abs(cell.lead) for row, line in rows if row["family"] != "floor" for cell, _ in line]
    most = max(leads, default=0.0)
    return [(row, [(cell, _shade(cell.lead, most), first) for cell, first in line]) for row, line in rows]


def _shade(lead: float, most: float) -> float:
    return max(-SHADE, min(SHADE, SHADE * lead / most)) if most else 0.0
