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

LEAD = """\
# Settings

Every field of every command: what `--set field=value` takes, and the tables of [pipeline.toml](../pipeline.toml) and
[sweep.toml](../sweep.toml), whose own fields are those of `run` and `sweep`. A field of a section is `section.field`,
in a file `field` below `[section]`. A *kind* is a name, or a table with its fields; a field that only some kinds have
names them first. Without a default a field is not set.

`clicktower settings train` shows those of one command. `clicktower settings --markdown` wrote this page.
"""


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
        sys.stdout.write("\n\n".join([LEAD.rstrip(), *sections]) + "\n")
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
    yield from ("| field | type | default | meaning |", "|---|---|---|---|")
    for row in rows:
        only = f"*{', '.join(row.only)}*: " if row.only else ""
        default = f"`{row.default}`" if row.default not in ("", REQUIRED) else row.default
        yield f"| `{row.name}` | {row.type} | {default} | {_cell(only + row.meaning)} |"
        for kind, meaning in row.kinds.items():
            yield f"| `{row.name}` = `{kind}` | | | {_cell(meaning)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("_", "\\_") if "`" not in text else text.replace("|", "\\|")
