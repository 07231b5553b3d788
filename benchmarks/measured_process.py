"""A command's wall-clock time and the memory of all its processes together."""

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

SAMPLE_SECONDS = 0.15
# To tell what processes share, the system walks through all pages of each, and lets none of them have a new one
# meanwhile: six milliseconds each time. So that is asked for where more pages are in use than ever before by so much,
# and else every so often.
GROWTH = 1.02
SHARES_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What one run took. `peak_bytes`: the largest sum over all its processes at one moment, shared pages counted once
    (PSS) where the system tells; it is sampled, so a peak of less than 0.15 s, or of a fiftieth, may be missed."""

    seconds: float
    peak_bytes: int
    stdout: str


def run_measured(command: Sequence[str], *, cwd: Path, env: dict[str, str]) -> Measured:
    """Runs a command to its end, start-up included. Raises RuntimeError, with the end of its stderr, if it fails."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        started = time.perf_counter()
        # A session of its own, so that a worker whose parent has gone can still be told to belong to it.
        process = subprocess.Popen(command, cwd=cwd, env=env, stdout=out, stderr=err, start_new_session=True)
        sampler = _Sampler(process.pid)
        sampler.start()
        code = process.wait()
        seconds = time.perf_counter() - started
        peak = sampler.stop()
        out.seek(0)
        err.seek(0)
        stdout, stderr = out.read(), err.read()
    if code:
        raise RuntimeError(f"{' '.join(command)} ended with {code}:\n{(stdout + stderr)[-4000:]}")
    return Measured(seconds=seconds, peak_bytes=peak, stdout=stdout)


class _Sampler(threading.Thread):
    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._root, self._peak = psutil.Process(pid), 0
        self._known = {self._root}
        self._most_pages, self._asked = 0, 0.0  # in bytes; when shares were asked for last
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            self._find_all()
            pages = sum(_resident_bytes(process) for process in self._known)
            if pages > GROWTH * self._most_pages or time.monotonic() - self._asked > SHARES_SECONDS:
                self._peak = max(self._peak, sum(_bytes(process) for process in self._known))
                self._most_pages, self._asked = max(pages, self._most_pages), time.monotonic()

    def stop(self) -> int:
        self._stopped.set()
        self.join()
        return self._peak

    def _find_all(self) -> None:
        with suppress(psutil.Error):
            self._known.update(self._root.children(recursive=True))
        for pid in psutil.pids():  # orphans: still of this session
            with suppress(psutil.Error, OSError):
                if os.getsid(pid) == self._root.pid:
                    self._known.add(psutil.Process(pid))
        self._known = {process for process in self._known if process.is_running()}


def _resident_bytes(process: psutil.Process) -> int:
    """Of a process alone, shared or not."""
    with suppress(psutil.Error, OSError):
        return process.memory_info().rss
    return 0


def _bytes(process: psutil.Process) -> int:
    with suppress(psutil.Error, OSError):
        try:
            full = process.memory_full_info()
        except psutil.AccessDenied:
            return process.memory_info().rss
        return getattr(full, "pss", 0) or full.uss
    return 0
