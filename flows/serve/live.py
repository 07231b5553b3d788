"""The served release, which is replaced as soon as the pointer names another one.

A new release is opened beside the old one, every byte of it is checked, and it takes over in one assignment. A request
takes the reference once and keeps it to its end, so its answer is entirely from one release; the old one's memory is
freed when its last request ends. A release that cannot be opened is logged, counted, and retried after a while; the old
one stays in service.
"""

import asyncio
import ctypes
import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from clicktower.flows.releases.search import OpenRelease
from clicktower.schemas.errors import StageError, place
from clicktower.schemas.release import read_pointer
from clicktower.schemas.text_contract import normalise

RETRY_SECONDS = 60.0  # after a release that could not be opened: reading it continually would not help

log = logging.getLogger("clicktower.serve")


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """A release in memory, and example queries."""

    opened: OpenRelease
    examples: list[dict[str, str]]
    rival: OpenRelease | None = None  # of interleaved searches

    @property
    def digest(self) -> str:
        return self.opened.release.digest


def load(uri: str, rival: OpenRelease | None = None) -> Served:
    """The release that the pointer names now, completely in memory. Raises StageError."""
    opened = OpenRelease(uri, hashes=True)
    opened.load()
    served = Served(opened, example_queries(opened.titles), rival)
    _give_back_memory()
    return served


def _give_back_memory() -> None:
    """Return memory that the allocators keep after reading, some 0.9 KB per document."""
    pa.default_memory_pool().release_unused()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # of glibc
        trim(0)


class Live:
    """The current release of a URI. Calls `changed` with each new one, `failed` with each that could not be opened."""

    def __init__(
        self, uri: str, *, changed: Callable[[Served], None], failed: Callable[[], None], against: str | None = None
    ) -> None:
        """`against`: the digest of a release that is kept there, for interleaved searches. Raises StageError if nothing
        is published or a release cannot be opened.
        """
        self._uri, self._changed, self._failed = uri, changed, failed
        self._refused, self._retry_at = "", 0.0
        self._rival = None if against is None else OpenRelease(uri, digest=against, hashes=True)
        if self._rival:
            self._rival.load()
        self.current = load(uri, self._rival)
        changed(self.current)

    async def follow(self, every_seconds: float) -> None:
        """Poll the pointer for ever."""
        while True:
            await asyncio.sleep(every_seconds)
            await self.look()

    async def look(self) -> None:
        """Take over the release that the pointer names, if it is a new one. Never raises."""
        digest = ""
        try:
            pointer = await asyncio.to_thread(read_pointer, self._uri)
            digest = pointer.release if pointer else ""
            if digest == self.current.digest or (digest == self._refused and time.monotonic() < self._retry_at):
                return
            if not pointer:
                raise StageError("The pointer is gone.", "Publish again.")
            served = await asyncio.to_thread(load, self._uri, self._rival)
        except Exception as error:  # in any case the served release stays
            text = str(error) if isinstance(error, StageError) else f"{type(error).__name__} in {place(error)}"
            if digest != self._refused or time.monotonic() >= self._retry_at:
                log.error("the release %s cannot be served, %s goes on: %s", digest, self.current.digest, text)
                self._failed()
            self._refused, self._retry_at = digest, time.monotonic() + RETRY_SECONDS
            return
        log.warning("serving release %s, before %s", served.digest, self.current.digest)
        self.current = served
        self._changed(served)


NUM_EXAMPLES = 4
WORDS = 3
LONGEST = 40  # length of a title that is taken whole
_LOOKED_AT = 2_000  # titles, evenly spread over the catalogue


def example_queries(titles: Sequence[str] | pa.Array) -> list[dict[str, str]]:
    """{"query", "note"} of up to NUM_EXAMPLES titles, the same ones for the same catalogue; they share no word.

    A query is a few words of a title; the last one has two letters swapped, as a person in a hurry would.
    """
    sample = titles[:: max(1, len(titles) // _LOOKED_AT)]
    if isinstance(sample, pa.Array):
        sample = sample.to_pylist()
    queries = {query for query in map(_query, sample) if query}
    queries = queries or {form for form in map(normalise, sample) if form and len(form) <= LONGEST}
    chosen: list[str] = []
    seen: set[str] = set()
    for query in sorted(queries, key=lambda query: hashlib.blake2b(query.encode("utf-8", "surrogatepass")).digest()):
        if len(chosen) < NUM_EXAMPLES and not seen & set(query.split()):
            chosen.append(query)
            seen |= set(query.split())
    result = [{"query": query, "note": ""} for query in chosen]
    if len(result) > 1 and (misspelled := _misspelled(chosen[-1])) != chosen[-1]:
        result[-1] = {"query": misspelled, "note": "misspelled on purpose"}
    return result


def _query(title: str) -> str:
    """The last words of the longest run of longer words of letters; empty if there are too few.

    They usually say what a title is about: brands come before, sizes and numbers after.
    """
    runs: list[list[str]] = [[]]
    for word in normalise(title).split():
        bare = word.rstrip(",;:.")
        if bare.isalpha() and len(bare) > 3:
            runs[-1].append(bare)
        if bare != word or not (bare.isalpha() and len(bare) > 3):
            runs.append([])
    longest = max(runs, key=len)
    return " ".join(longest[-WORDS:]) if len(longest) >= WORDS else ""


def _misspelled(query: str) -> str:
    """Two neighbouring letters inside the longest word swapped."""
    longest = max(query.split(), key=len)
    for at in range(len(longest) // 2, len(longest) - 1):
        if longest[at] != longest[at + 1]:
            swapped = longest[:at] + longest[at + 1] + longest[at] + longest[at + 2 :]
            return query.replace(longest, swapped, 1)
    return query
