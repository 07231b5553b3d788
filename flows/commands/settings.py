"""clicktower settings"""

import sys
from collections.abc import Iterator
from dataclasses import asdict

from rich.padding import Padding
from rich.text import Text

from clicktower.flows.commands.options import Json
from clicktower.flows.config.settings_reference import CLASSES, REQUIRED, Setting, settings_class, settings_of, summary
from clicktower.flows.show.console import emit, output
from clicktower.schemas.errors import UsageError
from clicktower.training.model.objective_settings import Clicks, Fixed, NegativeSettings, Pool
from clicktower.training.model.recipe import DEFAULT, Nesterov, Recipe, names, recipe

LEAD = """\
# Settings

Every field of every command: what `--set field=value` takes, and the tables of [pipeline.toml](../pipeline.toml) and
[sweep.toml](../sweep.toml), whose own fields are those of `run` and `sweep`. A field of a section is `section.field`,
in a file `field` below `[section]`. A *kind* is a name, or a table with its fields; a field that only some kinds have
names them first. Behind `=` stands the default; a field without one is not set.

`clicktower settings train` shows those of one command. `clicktower settings --markdown` wrote this page.
"""

RECIPES_LEAD = f"""\
How the named recipes learn from clicks ([the method](model.md#4-gradient-and-update-eq-6-8-algorithm-1)), those that
train alike in one row. `train` takes `{DEFAULT}` by default. `paper-` recipes train as the paper prints.

| recipes | towers | start | negatives of a pair | μ | th_G | step ε |
|---|---|---|---|---|---|---|"""


def settings(command: str | None = None, /, *, markdown: bool = False, json: Json = False) -> None:
    """List every setting of a command, or of all: its type, default and meaning.

    `--set field=value` takes any of them, and a pipeline.toml has them in its tables.

        clicktower settings train
        clicktower settings build --json

    Args:
        command: Whose settings; run: those of a pipeline.toml. `compare` takes those of train.
        markdown: Print docs/settings.md.
    """
    if command not in (None, *CLASSES):
        raise UsageError(f"The command {command} has no settings to list.", f"Name one of {', '.join(CLASSES)}.")
    settings = {name: list(settings_of(settings_class(name))) for name in ([command] if command else CLASSES)}
    if markdown:
        sections = ("\n".join(_markdown(name, rows)) for name, rows in settings.items())
        recipes = "\n".join(["## Recipes of clicks", "", RECIPES_LEAD, *_recipe_families()])
        sys.stdout.write("\n\n".join([LEAD.rstrip(), *sections, recipes]) + "\n")
        return
    result = {name: [asdict(row) for row in rows] for name, rows in settings.items()}
    emit({"stage": "settings", "settings": result}, json, lambda _: _show(settings))


def _show(settings: dict[str, list[Setting]]) -> None:
    for command, rows in settings.items():
        output.print(Text(f"\n{command}", "bold"), Text(summary(settings_class(command))), sep="  ")
        for row in rows:
            default = "" if row.default in ("", REQUIRED) else "default "
            head = Text.assemble((row.name, "bold"), "  ", (row.type, "cyan"), f"  {default}{row.default}")
            output.print(Padding(head, (1, 0, 0, 2)))
            only = (f"{', '.join(row.only)}: ", "dim") if row.only else ""
            output.print(Padding(Text.assemble(only, row.meaning), (0, 0, 0, 6)))
            for kind, meaning in row.kinds.items():
                output.print(Padding(Text.assemble((kind, "bold"), f"  {meaning}"), (0, 0, 0, 6)))


def _markdown(command: str, rows: list[Setting]) -> Iterator[str]:
    yield from (f"## {command}", "", summary(settings_class(command)), "")
    for row in rows:
        required = f", {REQUIRED}" if row.default == REQUIRED else ""
        default = f" = {row.default}" if row.default not in ("", REQUIRED) else ""
        only = f"*{', '.join(row.only)}*: " if row.only else ""
        yield f"- `{row.name}{default}` ({row.type}{required}): {only}{row.meaning}"
        yield from (f"  - `{kind}`: {meaning}" for kind, meaning in row.kinds.items())


def _recipe_families() -> Iterator[str]:
    """Rows of a table: the click recipes that train alike."""
    families: dict[tuple[str, ...], list[str]] = {}
    for name in names():
        if isinstance(recipe(name).objective, Clicks):
            families.setdefault(_training(recipe(name)), []).append(f"`{name}`")
    for training, alike in families.items():
        yield f"| {', '.join(alike)} | {' | '.join(training)} |"


def _training(trained: Recipe) -> tuple[str, ...]:
    """How a recipe learns from clicks, whatever its tower and its size."""
    clicks, optimiser, around = trained.clicks, trained.optimiser, f"±{trained.initial_range:g}"
    start = f"by rarity, {around}" if clicks.start == "idf" else f"uniform, {around}"
    if not clicks.tie_towers:
        start += ", both alike" if clicks.same_start else ", each its own"
    step = f"{optimiser.step:g}"
    if recurrent_range := getattr(trained.tower, "recurrent_range", 0):
        start += f"; recurrence ±{recurrent_range:g}"
    if recurrent_step := getattr(trained.tower, "recurrent_step", 0):
        step += f"; recurrence {recurrent_step:.6f}".rstrip("0")
    momentum = "none"
    if isinstance(optimiser, Nesterov):
        edge, middle = f"{optimiser.momentum_edge:g}", f"{optimiser.momentum_middle:g}"
        momentum = edge if edge == middle else f"{edge} / {middle} / {edge}"
    return (
        "one" if clicks.tie_towers else "two",
        start,
        _negatives(clicks.negatives),
        momentum,
        f"{optimiser.clip_norm:g}" if optimiser.clip_norm else "none",
        step,
    )


def _negatives(negatives: NegativeSettings) -> str:
    if isinstance(negatives, Pool):
        return f"{'all' if negatives.softmax else 'n'} of {negatives.size} that a micro-batch shares"
    return "n, those of the shards" if isinstance(negatives, Fixed) else "n, new ones in each epoch"
