"""The progress of a stage's process, relayed to whom a run's log or page is shown (submit)."""

import os
import sys
import tempfile
from collections.abc import Callable


class ProgressRelay:
    """The stderr of a stage: a listener gets the lines that begin with the stage's name, ours all others."""

    def __init__(self, stage: str, listener: Callable[[str], None]) -> None:
        self._start, self._listener = f"{stage}: ", listener
        self._relayed_bytes = 0

    def __enter__(self) -> "ProgressRelay":
        self.target = tempfile.TemporaryFile()
        return self

    def __exit__(self, *_: object) -> None:
        self.relay()
        self.target.close()

    def relay(self) -> None:
        """Pass on the whole lines printed since the last time."""
        file = self.target.fileno()
        printed = os.pread(file, os.fstat(file).st_size - self._relayed_bytes, self._relayed_bytes)
        lines = printed[: printed.rfind(b"\n") + 1]
        self._relayed_bytes += len(lines)
        for line in lines.decode(errors="replace").splitlines(keepends=True):
            if line.startswith(self._start):
                self._listener(line.rstrip())
            else:
                sys.stderr.write(line)
