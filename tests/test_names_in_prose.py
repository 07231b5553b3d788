"""Comments, docstrings and pages name what is there."""

import pytest

from tests import house
from tests.documented import ROOT
from tests.named_in_prose import examples, in_page, in_python, is_there, names

PAGES = [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.slow
@pytest.mark.parametrize("package", house.PACKAGES)
def test_every_name_in_a_comment_or_docstring_is_there(package):
    gone = []
    for file in sorted((ROOT / package).rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        lines = "".join(source.split('"""')[::2]).splitlines()  # without docstrings
        code = "\n".join(line.partition("#")[0] for line in lines)
        named = {name for prose in in_python(source) for name in names(prose)}
        gone += [f"{file.relative_to(ROOT)}: {name}" for name in sorted(named) if not is_there(name, code)]
    assert gone == []


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_of_code_on_a_page_is_there(page):
    text = page.read_text(encoding="utf-8")
    named = {name for code in in_page(text) for name in names(code)}
    assert [name for name in sorted(named) if not is_there(name, examples(text))] == []


@pytest.mark.parametrize(
    ("name", "is_right"),
    [
        ("search_log.QUERIES", True), ("schemas.search_log", True), ("clicktower.schemas.search_log.QUERIES", True),
        ("trainer.clicks", True), ("Recipe.clicks", True), ("tower.cells", True), ("np.unique", True),
        ("launch.py", True), ("day.QUERIES", False), ("objectives.clicks", False), ("text_batch.WordRows", False),
        ("network.head", False), ("Recipe.clickz", False), ("search_log.QUERY", False), ("tower.cell", False),
        ("lunch.py", False),
    ],
)  # fmt: skip
def test_a_name_that_is_gone_is_told_from_one_that_is_there(name, is_right):
    assert is_there(name) == is_right


def test_examples_are_no_prose():
    source = '"""Docs of day.GONE.\n\n    release.search()\n\nArgs:\n    x: As day.LOST.\n"""\n# of day.PAST\n'
    assert {name for prose in in_python(source) for name in names(prose)} == {"day.GONE", "day.LOST", "day.PAST"}
