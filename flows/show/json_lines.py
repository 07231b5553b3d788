"""A run for what collects logs: JSON lines on stderr, one object a line, with the same fields in every one.

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
import json as json_module
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from datetime import UTC, datetime
from typing import Any

from clicktower.flows.show import console, failures, present


@contextmanager
def as_json_lines(*, json: bool) -> Iterator[Callable[[str], None]]:
    """Within, a run tells of itself in JSON lines on stderr, and of nothing else there. An error ends the process with
    its code; with `json` it is printed on stdout too, as always. Yields what takes lines of stages' progress.
    """
    started, quiet, stream = time.monotonic(), console.errors.quiet, sys.stderr

    def write_line(event: str, stage: str = "run", **facts: Any) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        value = {"time": now, "stage": stage, "event": event, "seconds": None, "digest": None, **facts}
        stream.write(json_module.dumps(value, ensure_ascii=False) + "\n")
        stream.flush()

    def write_progress(line: str) -> None:
        stage, _, text = line.partition(": ")
        write_line("progress", stage, text=text)

    def write_end(event: str, **facts: Any) -> None:
        write_line(event, seconds=round(time.monotonic() - started, 3), **facts)

    present.listener, console.errors.quiet = write_line, True
    try:
        with redirect_stderr(_Lines(write_line)):
            write_line("started")
            yield write_progress
        write_end("done")
    except KeyboardInterrupt:
        write_end("interrupted")
        raise SystemExit(130) from None
    except Exception as error:
        facts = failures.explain(error)
        write_end("failed", problem=facts.problem, fix=facts.fix)
        if json:
            failures.report_error(error, "run", json)
        raise SystemExit(facts.exit_code) from None
    except SystemExit:
        write_end("interrupted")
        raise
    finally:
        present.listener, console.errors.quiet = None, quiet


class _Lines(io.TextIOBase):
    """What anything else prints on stderr, line by line."""

    def __init__(self, write_line: Callable[..., None]) -> None:
        self._write_line, self._begun = write_line, ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in filter(str.strip, lines):
            self._write_line("output", text=line)
        return len(text)
