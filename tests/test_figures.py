"""Figures of README and docs are those that benchmarks recorded.

Above a paragraph, list or table, a comment names the file in benchmarks/results and what of it the text states:

    <!-- figures of real_log.json:
    .3f mean_over_seeds/{k = 1,bm25} @ {lstm-96,BM25}
    -->

A line is a format and a path of keys. `*` and `field=value` (of a list) stand for several entries and are averaged; a
list at the end, and keys parted by commas, are several figures, printed as "0.678 / 0.712 / 0.859". Behind `@` is how a
cell, or an item of a list, begins, without its marks: in that row the figure has to stand; `@ a > b` is the first such
b below a. `[row]` is the first cell of each row of the table that is such a key. A row that no line names is an error;
one without a record has the line `not recorded @ row`. `{a,b}` is two lines, or of the file's name two files; braces
behind `@` go along with the first before it that have as many names.
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
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

_COMMENT = r"<!-- figures of (?P<file>\S+\.json):\n(?P<lines>[^<]*?)-->\n"
_STATED = re.compile(rf"^{_COMMENT}(?=(?P<block>.*?)(?:\n\n|\Z))", re.M | re.S)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stated:
    """Figures that a block of a page states."""

    page: str
    file: str
    style: str
    path: str
    row: str
    block: str

    def __str__(self) -> str:
        return f"{self.page}: {self.file} {self.path} @ {self.row}"


def each(line: str) -> list[str]:
    """The lines that one with `{a,b}` stands for."""
    before, several, rest = line.partition("{")
    if not several:
        return [line]
    within, _, after = rest.partition("}")
    names = within.split(",")
    path, at, row = after.partition(" @ ")
    alike = re.search(r"\{" + ",".join(["([^,}]*)"] * len(names)) + r"\}", row)
    rows = [row.replace(alike[0], one, 1) for one in alike.groups()] if alike else [row] * len(names)
    return [one for name, row in zip(names, rows, strict=True) for one in each(f"{before}{name}{path}{at}{row}")]


def stated(page: Path) -> list[Stated]:
    return [
        Stated(
            page=page.name,
            file=file,
            style=style,
            path=path,
            row=row,
            block=re.sub(f"{_COMMENT}|[*`]", "", match["block"]).replace("−", "-"),
        )
        for match in _STATED.finditer(page.read_text(encoding="utf-8"))
        for line in match["lines"].splitlines()
        for one in each(f"{match['file']} {line}")
        for file, style, paths in [one.split(" ", 2)]
        for path, _, row in [paths.partition(" @ ")]
    ]


ALL = [one for page in PAGES for one in stated(page)]


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
        entries = [one for one in value if str(one[field]) == wanted] if wanted else [value[int(key)]]
    elif key in value or "," not in key:
        entries = [value[key]]
    else:
        return np.concatenate([recorded(value, [one, *rest]) for one in key.split(",")])
    figures = [recorded(one, rest) for one in entries]
    return figures[0] if len(figures) == 1 else np.mean(figures, axis=0)  # a mean has no -0.0


def printed(figures: np.ndarray, style: str) -> str:
    return " / ".join(format(figure, style) for figure in figures)


def states(text: str, figures: str) -> bool:
    return bool(re.search(rf"(?<![\d.,]){re.escape(figures)}(?!\d|[.,]\d)", text))


def parts(block: str) -> list[str]:
    """The rows of a table below its head, or the items of a list."""
    return re.split(r"\n(?=[|-] )", block)[block.startswith("|") :]


def part(block: str, row: str) -> str:
    """The one row or item with a cell that begins so; of `a > b` the first such below a."""
    above, _, begins = row.rpartition(" > ")
    below = parts(block)
    if above:
        below = below[below.index(part(block, above)) + 1 :]
    found = [one for one in below if f"| {begins}" in one or one.startswith(f"- {begins}")]
    assert len(found) == 1 or (above and found), f"{len(found)} rows begin with {row!r}: {block}"
    return found[0]


@cache
def wanted(one: Stated) -> dict[str, str]:
    """The figures that each part of the block has to state."""
    where = part(one.block, one.row) if one.row else one.block
    if one.style == "not":
        return {where: ""}
    before, in_rows, after = one.path.partition("[row]")
    at = json.loads((RESULTS / one.file).read_text(encoding="utf-8"))
    if not in_rows:
        return {where: printed(recorded(at, one.path.split("/")), one.style)}
    for key in before.split("/")[:-1]:
        at = at[key]
    cells = [(line.split("|")[1].strip(), line) for line in parts(one.block)]
    return {line: printed(recorded(at[name], after.split("/")[1:]), one.style) for name, line in cells if name in at}


@pytest.mark.parametrize("one", ALL, ids=str)
def test_a_page_states_what_was_recorded(one):
    assert wanted(one), f"no row is a key of {one.path}"
    for text, figures in wanted(one).items():
        assert states(text, figures), f"{figures} was recorded; the page says: {text}"


@pytest.mark.parametrize("block", sorted({one.block for one in ALL if one.block.startswith("|")}))
def test_each_row_of_a_table_is_compared(block):
    compared = {text for one in ALL if one.block == block for text in wanted(one)}
    missing = [row for row in parts(block) if row not in compared]
    assert not missing, f"no line of the comment is for {missing}"


@pytest.mark.parametrize("file", sorted(path.name for path in RESULTS.glob("*.json")))
def test_a_goal_that_was_not_met_is_named(file):
    goals = json.loads((RESULTS / file).read_text(encoding="utf-8")).get("goals", {})
    missed = {f"goals/{name}/figure" for name, goal in goals.items() if not goal["met"]}
    assert missed <= {one.path for one in ALL if one.file == file and "goal" in one.block}


def test_a_figure_is_found_only_as_a_whole():
    assert states("ranks 0.678 / 0.718, then", "0.678 / 0.718")
    assert not states("10.678", "0.678")
    assert not states("0.6781", "0.678")
    assert not states("24,587", "24")
    found = {"seeds": [{"k": 1, "at": [0.2, 0.4]}, {"k": 1, "at": [0.4, 0.6]}, {"k": 5, "at": [9, 9]}]}
    assert printed(recorded(found, ["seeds", "k=1", "at"]), ".1f") == "0.3 / 0.5"
    assert printed(recorded({"a": {"x": 1}, "b": {"x": 2}}, ["b,a", "x"]), ".0f") == "2 / 1"
    assert each("rows/name={a,b}/x") == ["rows/name=a/x", "rows/name=b/x"]
    assert each("{a,b}/{1,2}") == ["a/1", "a/2", "b/1", "b/2"]
    assert each("{a,b}/{1,2} @ {x,y}") == ["a/1 @ x", "a/2 @ x", "b/1 @ y", "b/2 @ y"]
    table = "| | |\n|---|---|\n| a | b: 1 |\n| c | 2 |\n| d | 3 |\n| c | 4 |"
    assert part(table, "b:") == "| a | b: 1 |"
    assert part(table, "d > c") == "| c | 4 |"
    with pytest.raises(AssertionError, match="2 rows begin with 'c'"):
        part(table, "c")
