"""Parts of the queries: pictures of the few rows that matter, and a shaded table of all rows."""

from markupsafe import Markup

from flows.report.row_chart import HALF, ChartRow, dot_of, for_any_screen, shortened
from training.compare import cells, compare_wording
from training.compare.compare_wording import MEASURE, Comparison, Row
from training.wording import measure_name

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
    systems, (width, left, chars) = drawn(comparison), HALF
    charts: dict[str, list[ChartRow]] = {}
    for name, sizes in parts(comparison):
        charts[name] = []
        for part, size in sizes:
            values = [(kind, compare_wording.in_part(row, name, part)) for kind, row in systems]
            dots = [dot_of(value[MEASURE], kind) for kind, value in values if value]
            charts[name].append(ChartRow(name=shortened(part, chars), dots=dots, remark=f"{size:,}"))
    ends = [end for rows in charts.values() for row in rows for dot in row.dots for end in dot.ends]
    made = []
    for name, rows in charts.items():
        label, height = f"{measure_name(MEASURE)} by {name}, number of queries", 22 + 9 * len(systems)
        made.append((name, for_any_screen(rows, label, width=width, left=left, row_height=height, around=ends)))
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
