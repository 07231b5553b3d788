"""A comparison as a page of Markdown: the answer, the table, and what stands behind it."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from training.compare.cells import Cell, Table, collection_table, cost_table, ndcg_table, paper_table, slice_tables
from training.compare.compare_wording import (
    Comparison,
    answer,
    cautions,
    difference_remark,
    legend,
    outcome,
    paper_remark,
    protocol,
    row_notes,
    title_of,
    without_figures,
)
from training.wording import visible


def page(comparison: Comparison) -> str:
    """The page of a comparison in Markdown. Titles, queries and reasons are foreign text and cannot break it."""
    num_rows = len(comparison["rows"])
    rows = "1 row" if num_rows == 1 else f"{num_rows} rows"
    lines = [f"# {rows} on {comparison['n']:,} judged queries", "", escaped(answer(comparison)), ""]
    lines += _section(ndcg_table(comparison), legend(comparison))
    if left_out := without_figures(comparison):
        lines += [*(f"- {escaped(row['title'])} {escaped(why)}" for row, why in left_out), ""]
    lines += _section(collection_table(comparison))
    lines += _section(paper_table(comparison), paper_remark())
    lines += _section(cost_table(comparison))
    for name, table in slice_tables(comparison):
        lines += _section(table, "NDCG@10 with its interval; no differences are tested here.", title=f"By {name}")
    lines += _difference(comparison)
    lines += ["## How it was measured", ""]
    told = [*cautions(comparison), *protocol(comparison), *row_notes(comparison)]
    lines += [f"- {escaped(sentence)}" for sentence in told]
    return "\n".join(lines) + "\n"


def escaped(text: str) -> str:
    """Text that Markdown shows as it is: on one line, without markup of its own."""
    one_line = visible(" ".join(text.split()))
    html = one_line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", html)


def _section(table: Table, remark: str = "", *, title: str = "") -> list[str]:
    """A heading, the table and a remark; nothing where the table has no cell."""
    if not table.header or not any(cell.text for _, cells in table.rows for cell in cells):
        return []
    lines = [f"## {escaped(_capital(title or table.title))}", ""]
    lines += [f"| | {' | '.join(map(escaped, table.header))} |", f"|---|{'---:|' * len(table.header)}"]
    for row, cells in table.rows:
        shown = [_cell(cell) for cell in cells]
        if row["state"] != "done" and shown and not any(shown):
            shown[0] = row["state"]
        lines.append(f"| {escaped(row['title'])} | {' | '.join(shown)} |")
    return [*lines, "", *([escaped(remark), ""] if remark else [])]


def _cell(cell: Cell) -> str:
    text = f"**{cell.text}**" if cell.best else cell.text
    return " ".join(filter(None, [text, escaped(cell.mark), f"({cell.aside})" if cell.aside else ""]))


def _difference(comparison: Comparison) -> list[str]:
    difference = comparison.get("difference")
    if not difference or not difference["queries"]:
        return []
    names = (difference["of"], difference["to"])
    lines = ["## Queries to look at", "", escaped(difference_remark(comparison)), ""]
    for query in difference["queries"]:
        lines += [f"### {escaped(query['query'])}", "", escaped(_capital(outcome(comparison, query))), ""]
        titles = (escaped(title_of(comparison, name)) for name in names)
        lines += [f"| | {' | | '.join(titles)} | |", "|---:|---|---|---|---|"]
        lines += _side_by_side(*(query["rankings"].get(name, ()) for name in names))
        lines.append("")
    return lines


def _side_by_side(of: Sequence[Mapping[str, Any]], to: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each rank: title and grade of either ranking; a ranking that ended has none."""
    lines = []
    for place in range(max(len(of), len(to))):
        cells = [cell for ranking in (of, to) for cell in _ranked(ranking[place] if place < len(ranking) else None)]
        lines.append(f"| {place + 1} | {' | '.join(cells)} |")
    return lines


def _ranked(document: Mapping[str, Any] | None) -> list[str]:
    if document is None:
        return ["", ""]
    grade = document.get("grade")
    return [escaped(document["title"]), "–" if grade is None else str(grade)]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
