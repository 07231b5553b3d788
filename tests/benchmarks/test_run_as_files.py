"""Benchmarks are run as files: what they import of the project must not be found among themselves (`training`)."""

import re
from pathlib import Path

import pytest

SCRIPTS = [
    path
    for path in sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))
    if "__main__" in (text := path.read_text(encoding="utf-8"))
    and re.search(r"^from (training|benchmarks)[. ]", text, re.M)
]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_looks_in_the_project_before_it_looks_beside_itself(path):
    text = path.read_text(encoding="utf-8")
    first = re.search(r"^from (training|benchmarks)[. ]", text, re.M)
    assert "sys.path.insert(0, " in text[: first.start()]
