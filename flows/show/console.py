"""What a person sees of a command: progress on stderr, the result on stdout, errors as one readable paragraph."""

import json as json_module
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich import progress as bars
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from clicktower.flows.report.blocks import Block, one_line, terminal, visible
from clicktower.schemas.stage import Progress as Tell

PLAIN_SECONDS = 10.0  # seconds between lines in a log file, which has no bar


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise  # the BrokenPipeError, for the command line; rich would end the process with 1


errors = _Console(stderr=True, highlight=False)
output = _Console(highlight=False)


@contextmanager
def progress_bar(stage: str, *, share: bool = False) -> Iterator[Tell]:
    """A Progress for a stage: a bar on a terminal, a line now and then elsewhere.

    The text may continue on a second line, below the bar. `share`: show progress as a percentage, if counts would mean
    nothing to a person.
    """
    if not errors.is_terminal:
        yield _plain_lines(stage)
        return
    columns = (
        bars.SpinnerColumn(),
        bars.TextColumn("[bold]{task.fields[stage]:<9}[/]"),
        bars.BarColumn(bar_width=24 if share else 28),
        bars.TaskProgressColumn(show_speed=False) if share else bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        bars.TextColumn("[dim]{task.description}"),
    )
    with _TwoLines(*columns, console=errors, transient=True) as bar:
        task = bar.add_task("starting", total=None, stage=stage, below="")

        def tell(activity: str, count: int, total: int | None) -> None:
            first, _, below = activity.partition("\n")
            bar.update(task, description=first, completed=count, total=total, below=below)

        yield tell


class _TwoLines(bars.Progress):
    """A bar with a second line of text below it."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            if below := task.fields["below"]:
                yield Padding(Text(below, style="dim"), (0, 0, 0, 2))


def show(blocks: Sequence[Block]) -> None:
    """Print blocks on stdout."""
    for line in terminal(blocks, output.width):
        output.print(line, soft_wrap=isinstance(line, Text) and bool(line.no_wrap))  # a command is not wrapped


ENDED = {
    **dict.fromkeys(("done", "reused"), ("✓ ", "green")),
    "waiting": ("· ", "yellow"),
    "empty": ("· ", "dim"),
    "failed": ("✗ ", "bold red"),
}


def ended(state: str, name: str, time: str, text: str) -> None:
    """Print one line about a finished stage, row, trial or date on stderr, so that stdout is left to the result."""
    line = Text.assemble(ENDED[state], (f"{name:<9}", "bold"), (f"{time:>9}  ", "dim"), one_line(text))
    errors.print(line, soft_wrap=True)


def plain(text: str) -> str:
    """Foreign text, line by line, without rich's markup and control characters, for the terminal."""
    return escape("\n".join(map(visible, text.split("\n"))))


def _plain_lines(stage: str) -> Tell:
    last = time.monotonic()

    def tell(activity: str, count: int, total: int | None) -> None:
        nonlocal last
        if time.monotonic() - last >= PLAIN_SECONDS:
            last = time.monotonic()
            activity = activity.replace("\n", ", ")
            errors.print(f"{stage}: {activity} ({count:,}{f' of {total:,}' if total else ''})", soft_wrap=True)

    return tell


def emit(result: dict, json: bool, show: Callable[[dict], Any]) -> None:
    """Print a result: one JSON object with `json`, otherwise through `show`."""
    if json:
        sys.stdout.write(json_module.dumps(result, ensure_ascii=False, allow_nan=False) + "\n")
        sys.stdout.flush()
    else:
        show(result)
