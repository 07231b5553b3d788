"""The docs are tested: every command in them is one the command line accepts, every link leads somewhere."""

import re
import shlex
from pathlib import Path
from typing import get_args

import pytest

from clicktower.beam_jobs.sources.source import FORMS
from clicktower.flows.cli import COMMANDS, _engine_options, build_app
from clicktower.flows.config.commands import code, function_of
from clicktower.flows.config.pipeline_config import read_pipeline
from clicktower.flows.config.toml_file import recipe_named
from clicktower.flows.releases.export_release import FORMS as EXPORTS
from clicktower.schemas.section import Language
from clicktower.training.evaluation.rows import all_rows
from clicktower.training.model.recipe import names
from tests import documented
from tests.documented import ROOT

PAGES = [ROOT / "README.md", ROOT / "benchmarks" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands() -> list[str]:
    """The `clicktower ...` lines of all pages; test_docs_run.py runs those of the main ones."""
    return sorted({command for page in PAGES for command in documented.commands(page)})


def test_the_table_of_commands_has_each_of_them():
    table = (ROOT / "docs" / "start.md").read_text(encoding="utf-8").split("## Which command do I need?")[1]
    assert set(re.findall(r"`([a-z-]+)", table)) == set(COMMANDS)


def test_the_docs_show_every_command_at_least_once():
    shown = {line.split()[1] for line in commands()}
    assert shown >= {"demo", "simulate", "ingest", "build", "train", "evaluate", "publish", "search", "run", "verify"}


@pytest.mark.parametrize("line", commands())
def test_a_documented_command_is_accepted(line):
    words = shlex.split(line, comments=True)[1:]
    build_app(words[0]).parse_args(_engine_options(words), exit_on_error=False, print_error=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://")):
            continue
        file, _, heading = target.partition("#")
        there = page.parent / file if file else page
        assert there.exists(), f"{page.name} links to {target}"
        if heading and there.suffix == ".md":
            assert heading in headings(there), f"{page.name} links to {target}"


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in found}


def test_every_test_that_a_page_names_exists():
    named = {
        (file, name)
        for page in PAGES
        for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    for file, name in sorted(named):
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file} has no {name}"


def test_the_commented_pipeline_and_every_commented_setting_in_it_are_valid(tmp_path):
    text = (ROOT / "pipeline.toml").read_text(encoding="utf-8")
    assert read_pipeline(str(ROOT / "pipeline.toml")).build.k == 5
    opened = re.sub(r"^# (\w+ = |\[\w+\])", r"\1", text, flags=re.M).replace("beam_options = []", "", 1)
    (tmp_path / "opened.toml").write_text(opened, encoding="utf-8")
    config = read_pipeline(str(tmp_path / "opened.toml"))
    assert config.beam_options[0].startswith("--direct_running_mode")
    assert config.compare
    assert set(config.compare.rows) <= {row.name for row in all_rows()}
    assert set(config.train.set) <= _recipe_fields()


def test_every_language_of_the_lexical_contract_is_listed():
    listed = (ROOT / "docs" / "model.md").read_text(encoding="utf-8").split("`language` is")[1].split("A pipeline")[0]
    assert set(re.findall(r"[a-z]+", listed)) >= set(get_args(Language))


@pytest.mark.parametrize(
    ("command", "kinds"),
    [("ingest", FORMS), ("train", names()), ("export", EXPORTS)],
    ids=["ingest", "train", "export"],
)
def test_the_help_of_a_command_lists_every_kind(command, kinds):
    listed = code(function_of(command)).__doc__
    assert set(re.findall(r"[\w-]+", listed)) >= set(kinds), f"the help of `clicktower {command}` lacks one"


def test_pages_list_every_format_of_a_log_and_every_form_of_an_export():
    data, serving = ((ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("data.md", "serving.md"))
    assert set(re.findall(r"^\| `(\w+)`", data.split("## The log")[1].split("###")[0], re.MULTILINE)) == set(FORMS)
    assert set(re.findall(r"--form (\w+)", serving.split("## Exports")[1].split("###")[0])) == set(EXPORTS)


def test_a_recipe_on_a_page_is_one_that_train_reads(tmp_path):
    recipes = [
        step
        for page in PAGES
        for step in documented.steps(page)
        if step.kind == "file" and step.text.startswith("[train]\nrecipe")
    ]
    assert recipes
    for step in recipes:
        (tmp_path / step.name).write_text(step.text, encoding="utf-8")
        assert recipe_named(str(tmp_path / step.name))[0].objective.kind == "classify"


def _recipe_fields() -> set[str]:
    from clicktower.training.model.recipe import Recipe

    return set(Recipe.__dataclass_fields__)
