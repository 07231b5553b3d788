"""Who is next, and who gives way: clients share the service by address, whatever each of them sends.

An address behind which many people are, such as a proxy's, is a client like any other: alone it has all there is.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from clicktower.flows.serve.limits import Refused

Result = TypeVar("Result")

_MOST_THREADS = 4


class Turns:
    """Threads that work for clients. Addresses take turns, so that none waits for all that another one asks."""

    def __init__(self, threads: int, most_waiting: int) -> None:
        self._threads, self._num_free = ThreadPoolExecutor(threads), threads
        self._most_waiting, self._num_waiting = most_waiting, 0
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by address, the next one first

    async def run(self, address: str, work: Callable[[], Result]) -> Result:
        """The result of some work, in a thread. Raises Refused if too many wait."""
        await self._turn(address)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._next_turn()

    async def _turn(self, address: str) -> None:
        if self._num_free:
            self._num_free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append(turn)
        self._num_waiting += 1
        if self._num_waiting > self._most_waiting:
            self._give_way()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # its turn came at that moment
                self._next_turn()
            raise

    def _give_way(self) -> None:
        """Refuse the last that came of the address for which most wait."""
        address = max(reversed(self._waiting), key=lambda address: len(self._waiting[address]))
        turn = self._waiting[address].pop()
        if not self._waiting[address]:
            del self._waiting[address]
        self._num_waiting -= 1
        if not turn.done():
            turn.set_exception(
                Refused(429, "The service is at its limit of concurrent requests: try again in a second.")
            )

    def _next_turn(self) -> None:
        while self._waiting:
            address = next(iter(self._waiting))
            turns = self._waiting.pop(address)
            turn = turns.popleft()
            self._num_waiting -= 1
            if turns:
                self._waiting[address] = turns  # behind the others
            if not turn.done():
                turn.set_result(None)
                return
        self._num_free += 1


class Waits:
    """What the service waits for, up to a number. Beyond it the oldest of the address that has most is ended.

    So whoever sends nothing or slowly gives way to those who send at once, however many there are.
    """

    def __init__(self, most: int) -> None:
        self._most, self._number = most, 0
        self._ends: dict[str, dict[Callable[[], None], None]] = {}  # by address, the oldest first

    def begin(self, address: str, end: Callable[[], None]) -> None:
        """Wait for something; `end` is called, at most once, if it gives way."""
        self._ends.setdefault(address, {})[end] = None
        self._number += 1
        if self._number > self._most:
            address = max(self._ends, key=lambda address: len(self._ends[address]))
            oldest = next(iter(self._ends[address]))
            self.end(address, oldest)
            oldest()

    def end(self, address: str, end: Callable[[], None]) -> None:
        """It waits no longer for what `begin` was told; nothing happens if that has given way."""
        if end not in self._ends.get(address, ()):
            return
        self._number -= 1
        del self._ends[address][end]
        if not self._ends[address]:
            del self._ends[address]


def num_threads(workers: int) -> int:
    """The threads of a worker for short requests: more would only wait for a core, or for the interpreter."""
    return max(1, min(_MOST_THREADS, len(os.sched_getaffinity(0)) // workers))
