"""A run as JSON lines on stderr, for what collects logs: one object a line, with the same fields in every one.

    {"time": "2026-09-02T03:31:07.412Z", "stage": "ingest", "event": "done", "seconds": 12.4, "digest": "0f3a..."}

time      ISO 8601, UTC
stage     a stage of the chain, or "run" for the whole
event     started; progress and note (`text`); done, reused; promoted, or kept as a candidate (`text`: why); drift
          (`text`); output, a line that a library printed (`text`); failed (`problem`, `fix`); interrupted
seconds   of making a stage's output, or of the run
digest    of the stage's output

Other fields depend on the event. No field quotes the log: texts are those that the terminal shows.
"""

import io
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from datetime import UTC, datetime
from typing import Any, TextIO

from clicktower.flows.show import console

_stream: TextIO | None = None  # where the lines go; None: nobody asked for them


def write_line(event: str, stage: str = "run", **facts: Any) -> None:
    """Write a line about an event, if lines were asked for."""
    if _stream is None:
        return
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    value = {"time": now, "stage": stage, "event": event, "seconds": None, "digest": None, **facts}
    _stream.write(json.dumps(value, ensure_ascii=False) + "\n")
    _stream.flush()


@contextmanager
def as_json_lines(*, json: bool) -> Iterator[None]:
    """Within, a run tells of itself in JSON lines on stderr, and of nothing else there. An error ends the process with
    its code; with `json` it is printed on stdout too, as always.
    """
    global _stream
    started, shown = time.monotonic(), console.errors.quiet
    _stream, console.errors.quiet = sys.stderr, True
    try:
        with redirect_stderr(_Lines()):
            write_line("started")
            yield
        write_line("done", seconds=_seconds_since(started))
    except KeyboardInterrupt:
        write_line("interrupted", seconds=_seconds_since(started))
        raise SystemExit(130) from None
    except Exception as error:
        facts = console.explain(error)
        write_line("failed", seconds=_seconds_since(started), problem=facts.problem, fix=facts.fix)
        if json:
            console.report_error(error, "run", json)
        raise SystemExit(facts.exit_code) from None
    except SystemExit:
        write_line("interrupted", seconds=_seconds_since(started))
        raise
    finally:
        _stream, console.errors.quiet = None, shown


def _seconds_since(started: float) -> float:
    return round(time.monotonic() - started, 3)


def write_progress(line: str) -> None:
    """Write a line of a stage's progress, `stage: activity`."""
    stage, _, text = line.partition(": ")
    write_line("progress", stage, text=text)


class _Lines(io.TextIOBase):
    """What anything else prints on stderr, line by line."""

    def __init__(self) -> None:
        self._begun = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in filter(str.strip, lines):
            write_line("output", text=line)
        return len(text)
