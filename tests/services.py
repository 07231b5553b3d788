"""Services that tests start as processes of their own, kill, and start again."""

import subprocess
from collections.abc import Callable

import psutil


class Services:
    """Some processes by name, each of which can be started again after it has ended."""

    def __init__(self) -> None:
        self._running: dict[str, subprocess.Popen] = {}
        self._starters: dict[str, Callable[[], object]] = {}

    @property
    def names(self) -> list[str]:
        return list(self._starters)

    def has_ended(self, name: str) -> bool:
        return name not in self._running or self._running[name].poll() is not None

    def start_again(self, name: str) -> None:
        self._starters[name]()

    def processes(self, name: str) -> list[psutil.Process]:
        """Those of a service: the one that was started, and what it started in turn. None where it has ended."""
        if name in self._running and self._running[name].poll() is None:
            first = psutil.Process(self._running[name].pid)
            return [first, *first.children(recursive=True)]
        return []
