"""`clicktower settings`, and docs/settings.md, which it writes."""

import json
import os
import re
import subprocess
import sys
import tomllib

import pytest

from clicktower.flows.cli import run
from clicktower.flows.config.settings_reference import CLASSES, REQUIRED, settings_class, settings_of
from clicktower.schemas.section import changed, kinds_of_fields
from clicktower.training.model.recipe import Recipe, names, recipe
from tests.documented import ROOT


def printed(*arguments: str, **environment: str) -> str:
    """By a process of its own: tests add kinds of sections to theirs."""
    command = [sys.executable, "-m", "clicktower.flows.cli", "settings", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment})
    return done.stdout


@pytest.mark.slow
def test_the_page_is_what_the_command_writes():
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert printed("--markdown") == page, "write it again: clicktower settings --markdown > docs/settings.md"


def test_each_click_recipe_is_in_one_row_with_what_it_trains_with():
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.split("|---|---|---|---|---|---|---|\n")[1].splitlines()]
    listed = [(name.strip("`"), row) for row in rows for name in row[0].split(", ")]
    assert [name for name, _ in sorted(listed)] == sorted(n for n in names() if recipe(n).objective.kind == "clicks")
    for name, (_, towers, start, negatives, momentum, most, step) in listed:
        made = recipe(name)
        assert towers == ("one" if made.clicks.tie_towers else "two")
        assert start.startswith("by rarity" if made.clicks.start == "idf" else "uniform")
        assert float(re.search(r"±([\d.]+)", start)[1]) == made.initial_range
        assert ("shares" in negatives, "shards" in negatives) == (
            made.clicks.negatives.kind == "pool", made.clicks.negatives.kind == "fixed"
        )  # fmt: skip
        optimiser = made.optimiser
        assert {float(mu) for mu in momentum.split(" / ")} == {optimiser.momentum_edge, optimiser.momentum_middle}
        assert most == (f"{optimiser.clip_norm:g}" if optimiser.clip_norm else "none")
        assert float(step.partition(";")[0]) == optimiser.step


@pytest.mark.parametrize("command", CLASSES)
def test_every_field_is_listed_with_its_type_and_its_meaning(command):
    listed = list(settings_of(settings_class(command)))
    others = ("ingest.", "build.", "evaluate.", "publish.set.") if command == "run" else ()  # commands list their own
    known = (name for name in kinds_of_fields(settings_class(command)) if not name.startswith(others))
    fields = {name for name in known if name.rpartition(".")[2] != "kind"}
    assert {setting.name for setting in listed} == fields
    for setting in listed:
        assert setting.type, setting.name
        assert len(setting.meaning.split()) > 1, setting.name
        assert all(setting.kinds.values()), setting.name


@pytest.mark.parametrize("command", [name for name in CLASSES if name not in ("run", "sweep", "build-labelled")])
def test_a_default_is_the_value_that_the_field_has(command):
    config = Recipe(name="") if command == "train" else settings_class(command)()
    for setting in settings_of(settings_class(command)):
        if setting.default not in ("", REQUIRED) and not setting.only and setting.name.count(".") < 2:
            is_kind = setting.type.startswith("kind")
            value = setting.default if is_kind else tomllib.loads(f"value = {setting.default}")["value"]
            section = setting.name.partition(".")[0]
            if "." not in setting.name or getattr(config, section) is not None:
                assert changed(config, {setting.name: value}) == config, setting.name


@pytest.mark.parametrize("width", ["40", "80", "200"])
def test_it_fits_the_terminal(width):
    shown = printed("train", COLUMNS=width)
    assert "bag The sum of letter trigrams." in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= int(width)


def test_a_program_reads_them_as_one_object(capsys):
    assert run(["settings", "build", "--json"]) == 0
    [first, *_] = json.loads(capsys.readouterr().out)["settings"]["build"]
    assert (first["name"], first["type"], first["default"]) == ("k", "integer ≥ 0, ≤ 32", "5")


def test_a_command_without_settings_is_answered_with_those_that_have_some(capsys):
    assert run(["settings", "serve"]) == 2
    assert "evaluate-labelled" in capsys.readouterr().err


@pytest.mark.parametrize("command", [*(name for name in CLASSES if name not in ("run", "sweep")), "compare"])
def test_help_that_speaks_of_any_field_says_where_they_are_listed(command, capsys):
    assert run([command, "--help"]) == 0
    assert "clicktower settings" in " ".join(capsys.readouterr().out.replace("│", " ").split())
