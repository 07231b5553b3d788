"""A log that comes through standard input, for `check` and `ingest`."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from clicktower.schemas.errors import UsageError

STANDARD_INPUT = "/dev/stdin"  # what the command line makes of `-`, which cyclopts takes for an option


@contextmanager
def log_files(logs: Sequence[str]) -> Iterator[list[str]]:
    """The logs with a file in place of standard input: a private temporary one, which goes with the command.

    A log is read more than once, to plan the work and by several workers; so standard input is copied first. Raises
    UsageError for a terminal.
    """
    if STANDARD_INPUT not in logs:
        yield list(logs)
        return
    if sys.stdin.isatty():
        raise UsageError("Standard input is a terminal, and should be a log.", "Pipe the log into the command.")
    with TemporaryDirectory(prefix="clicktower-") as folder:  # for its owner alone
        file = Path(folder, "stdin")
        with file.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        yield [str(file) if log == STANDARD_INPUT else log for log in logs]
