"""Figures of README and docs are those that benchmarks recorded.

Above a paragraph, list or table, a comment names the file in benchmarks/results and what of it the text states:

    <!-- figures of real_log.json:
    .3f mean_over_seeds/k = 1
    -->

A line is a format and a path of keys. `*` and `field=value` (of a list) stand for several entries and are averaged; a
list at the end, and keys parted by commas, are several figures, printed as "0.678 / 0.712 / 0.859". `[row]` is the
first cell of each row of the table that is such a key, and the figure has to stand in that row. `{a,b}` is two lines,
or of the file's name two files.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ROW = "[row]"

_COMMENT = r"<!-- figures of (?P<file>\S+\.json):\n(?P<lines>[^<]*?)-->\n"
_STATED = re.compile(rf"^{_COMMENT}(?=(?P<block>.*?)(?:\n\n|\Z))", re.M | re.S)


@dataclass(frozen=True, kw_only=True, slots=True)
class Stated:
    """Figures that a block of a page states."""

    page: str
    file: str
    style: str
    path: str
    block: str

    def __str__(self) -> str:
        return f"{self.page}: {self.file} {self.path}"


def each(path: str) -> list[str]:
    """The names or paths that one with `{a,b}` stands for."""
    before, several, rest = path.partition("{")
    names, _, after = rest.partition("}")
    return [path for name in names.split(",") for path in each(f"{before}{name}{after}")] if several else [path]


def stated(page: Path) -> list[Stated]:
    return [
        Stated(
            page=page.name,
            file=file,
            style=style,
            path=path,
            block=re.sub(_COMMENT, "", match["block"]).replace("−", "-"),
        )
        for match in _STATED.finditer(page.read_text(encoding="utf-8"))
        for style, _, paths in (line.partition(" ") for line in match["lines"].splitlines())
        for path in each(paths)
        for file in each(match["file"])
    ]


ALL = [one for page in PAGES for one in stated(page)]


def recorded(value: Any, path: Sequence[str]) -> np.ndarray:
    """The figures at a path of keys, float64 [how many stand side by side]."""
    if not path:
        return np.atleast_1d(np.array(value, np.float64))
    key, *rest = path
    field, _, wanted = key.partition("=")
    if key == "*":
        entries = list(value.values() if isinstance(value, dict) else value)
    elif isinstance(value, list):
        entries = [one for one in value if str(one[field]) == wanted] if wanted else [value[int(key)]]
    elif key in value or "," not in key:
        entries = [value[key]]
    else:
        return np.concatenate([recorded(value, [one, *rest]) for one in key.split(",")])
    return np.mean([recorded(one, rest) for one in entries], axis=0)


def printed(figures: np.ndarray, style: str) -> str:
    return " / ".join(format(figure, style) for figure in figures)


def states(text: str, figures: str) -> bool:
    return bool(re.search(rf"(?<![\d.,]){re.escape(figures)}(?!\d|[.,]\d)", text))


def rows(block: str) -> dict[str, str]:
    """The rows of a table by their first cell, without its marks."""
    lines = [line for line in block.splitlines() if line.startswith("|")]
    return {re.sub(r"[*`]", "", line.split("|")[1]).strip(): line for line in lines}


@pytest.mark.parametrize("one", ALL, ids=str)
def test_a_page_states_what_was_recorded(one):
    value = json.loads((RESULTS / one.file).read_text(encoding="utf-8"))
    before, in_rows, after = one.path.partition(ROW)
    if not in_rows:
        figures = printed(recorded(value, one.path.split("/")), one.style)
        assert states(one.block, figures), f"{figures} was recorded; the page says: {one.block}"
        return
    at = value
    for key in before.strip("/").split("/") if before else ():
        at = at[key]
    measured = {name: line for name, line in rows(one.block).items() if name in at}
    assert measured, f"no row is one of {', '.join(at)}"
    for name, line in measured.items():
        figures = printed(recorded(at[name], after.strip("/").split("/") if after else []), one.style)
        assert states(line, figures), f"{figures} was recorded; the page says: {line}"


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
