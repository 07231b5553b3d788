"""Figures of README and docs are those that benchmarks recorded.

benchmarks/results/stated.txt says which page states what, and where:

    # docs/results.md
    ## Judgments from clicks
    click_judgments.json
    .3f logs/homedepot_log/*/estimates/pbm/order @ homedepot_log

Below a page and one of its headings come records and their figures. A figure is a format and a path of keys. `*` and
`field=value` (of a list) select several entries, which are averaged; a list at the end, and keys separated by commas,
are several figures, printed as "0.678 / 0.712 / 0.859". Behind `@` is how a cell, a list item or a paragraph of that
section begins, without its marks: the figure has to stand in that row. `[row]` is the first cell of each row that is
such a key. A table is compared in every row or in none; `not recorded @ row` excludes a row. `{a,b}` is two lines;
braces behind `@` follow the first before it that have as many names.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"


@dataclass(frozen=True, kw_only=True, slots=True)
class Stated:
    """A figure that a section of a page states."""

    page: str
    heading: str
    file: str
    style: str
    path: str
    row: str

    def __str__(self) -> str:
        return f"{self.page}, {self.heading}: {self.file} {self.path} @ {self.row}"


def expand(line: str) -> list[str]:
    """The lines that one with `{a,b}` stands for."""
    before, braces, rest = line.partition("{")
    if not braces:
        return [line]
    within, _, after = rest.partition("}")
    names = within.split(",")
    path, at, row = after.partition(" @ ")
    parallel = re.search(r"\{" + ",".join(["([^,}]*)"] * len(names)) + r"\}", row)
    rows = [row.replace(parallel[0], name, 1) for name in parallel.groups()] if parallel else [row] * len(names)
    return [line for name, row in zip(names, rows, strict=True) for line in expand(f"{before}{name}{path}{at}{row}")]


def read_stated(text: str) -> list[Stated]:
    figures: list[Stated] = []
    page = heading = file = ""
    for line in text.splitlines():
        if line.startswith("# "):
            page, heading, file = line[2:], "", ""
        elif line.startswith("## "):
            heading, file = line[3:], ""
        elif line.endswith(".json"):
            file = line
        elif line:
            for expanded in expand(f"{file} {line}"):
                record, style, path_and_row = expanded.split(" ", 2)
                path, _, row = path_and_row.partition(" @ ")
                figures.append(Stated(page=page, heading=heading, file=record, style=style, path=path, row=row))
    return figures


ALL = read_stated((RESULTS / "stated.txt").read_text(encoding="utf-8"))


@cache
def blocks(page: str, heading: str) -> list[str]:
    """The paragraphs, lists and tables between a heading and the next one."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.S)
    sections = dict(re.findall(r"^#+ (.+)\n((?:(?!#+ ).*\n)*)", text, re.M))
    return re.split(r"\n\n+", re.sub(r"[*`\\]", "", sections[heading]).replace("−", "-").strip())


def parts(block: str) -> list[str]:
    """The rows of a table below its head, the items of a list, or a paragraph."""
    return re.split(r"\n(?=[|-] )", block)[block.startswith("|") :]


def recorded(value: Any, path: Sequence[str]) -> np.ndarray:
    """The figures at a path of keys, float64 [how many stand side by side]."""
    if not path:
        return np.atleast_1d(np.array(value, np.float64))
    key, *rest = path
    if rest and f"{key}/{rest[0]}" in value:
        key, *rest = f"{key}/{rest[0]}", *rest[1:]
    field, _, wanted = key.partition("=")
    if key == "*":
        entries = list(value.values() if isinstance(value, dict) else value)
    elif isinstance(value, list):
        entries = [entry for entry in value if str(entry[field]) == wanted] if wanted else [value[int(key)]]
    elif key in value or "," not in key:
        entries = [value[key]]
    else:
        return np.concatenate([recorded(value, [part, *rest]) for part in key.split(",")])
    figures = [recorded(entry, rest) for entry in entries]
    return figures[0] if len(figures) == 1 else np.mean(figures, axis=0)  # a mean has no -0.0


def printed(figures: np.ndarray, style: str) -> str:
    return " / ".join(format(figure, style) for figure in figures)


def states(text: str, figures: str) -> bool:
    return bool(re.search(rf"(?<![\d.,]){re.escape(figures)}(?!\d|[.,]\d)", text))


@cache
def compared(stated: Stated) -> dict[str, str]:
    """The figures that each part of the section has to state."""
    rows = [part for block in blocks(stated.page, stated.heading) for part in parts(block)]
    if stated.row:
        rows = [row for row in rows if f"| {stated.row}" in row or row.removeprefix("- ").startswith(stated.row)]
        assert len(rows) == 1, f"{len(rows)} rows begin with {stated.row!r}"
    if stated.style == "not":
        return {rows[0]: ""}
    before, in_rows, after = stated.path.partition("[row]")
    record = json.loads((RESULTS / stated.file).read_text(encoding="utf-8"))
    if not in_rows:
        return {"\n".join(rows): printed(recorded(record, stated.path.split("/")), stated.style)}
    for key in before.split("/")[:-1]:
        record = record[key]
    cells = [(row.split("|")[1].strip(), row) for row in rows if row.startswith("|")]
    return {
        row: printed(recorded(record[name], after.split("/")[1:]), stated.style)
        for name, row in cells
        if name in record
    }


@pytest.mark.parametrize("stated", ALL, ids=str)
def test_a_page_states_what_was_recorded(stated):
    assert compared(stated), f"no row is a key of {stated.path}"
    for text, figures in compared(stated).items():
        assert states(text, figures), f"{figures} was recorded; the page says: {text}"


@pytest.mark.parametrize(("page", "heading"), sorted({(stated.page, stated.heading) for stated in ALL}))
def test_each_row_of_a_table_is_compared(page, heading):
    rows = {row for stated in ALL if (stated.page, stated.heading) == (page, heading) for row in compared(stated)}
    for block in blocks(page, heading):
        missing = [row for row in parts(block) if row not in rows] if block.startswith("|") else []
        assert not missing or len(missing) == len(parts(block)), f"stated.txt has no line for {missing}"


@pytest.mark.parametrize("file", sorted(path.name for path in RESULTS.glob("*.json")))
def test_a_goal_that_was_not_met_is_named(file):
    goals = json.loads((RESULTS / file).read_text(encoding="utf-8")).get("goals", {})
    missed = {f"goals/{name}/figure" for name, goal in goals.items() if not goal["met"]}
    assert missed <= {stated.path for stated in ALL if stated.file == file and "goal" in stated.row.lower()}


def test_a_figure_is_found_only_as_a_whole():
    assert states("ranks 0.678 / 0.718, then", "0.678 / 0.718")
    assert not states("10.678", "0.678")
    assert not states("0.6781", "0.678")
    assert not states("24,587", "24")
    found = {"seeds": [{"k": 1, "at": [0.2, 0.4]}, {"k": 1, "at": [0.4, 0.6]}, {"k": 5, "at": [9, 9]}]}
    assert printed(recorded(found, ["seeds", "k=1", "at"]), ".1f") == "0.3 / 0.5"
    assert printed(recorded({"a": {"x": 1}, "b": {"x": 2}}, ["b,a", "x"]), ".0f") == "2 / 1"
    assert expand("rows/name={a,b}/x") == ["rows/name=a/x", "rows/name=b/x"]
    assert expand("{a,b}/{1,2}") == ["a/1", "a/2", "b/1", "b/2"]
    assert expand("{a,b}/{1,2} @ {x,y}") == ["a/1 @ x", "a/2 @ x", "b/1 @ y", "b/2 @ y"]
