"""The settings of a simulation. Everything that changes a byte of it is here."""

import hashlib
import math
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from clicktower.schemas.section import Count, Seed, section

VERSION = 1  # incremented when the same config gives other bytes


Rate = Annotated[float, Field(ge=0, le=0.5)]


@section
class SimulationConfig:
    """A search log with known truth. Rates are shares of the searches unless they say of lines or titles.

    Args:
        num_searches: The searches of people and bots.
        seed: The same seed makes the same bytes.
        num_documents: The documents; 0 is a number that fits the searches.
        num_files: The files of the log; 0 is a number that fits the searches.
        days: The days that the log covers.
        num_judged_queries: The judged queries in each of dev and test.
        undeclared_bots: Searches of bots whose user agent is a browser's.
        declared_bots: Searches of bots whose user agent says so.
        heavy_people: Searches of people who search a great deal.
        slow_bots: Searches of bots that search every 4 to 12 minutes, day and night.
        clicking_bots: Searches of bots that click everything, or one rank.
        crowds: Searches of crowds: bots that repeat one person's private query within minutes.
        professionals: Searches of people who search for their work, and of accounts of several people.
        searches_per_bot: The searches of an undeclared or declared bot.
        searches_per_slow_bot: The searches of a slow bot.
        searches_per_clicking_bot: The searches of a clicking bot.
        clients_per_crowd: The clients of a crowd.
        searches_per_professional: The searches of a professional.
        searches_per_heavy_person: The searches of a heavy person.
        private: Queries that hold something private, such as an address.
        adult: Adult queries.
        spam: Spam queries.
        empty: Empty queries.
        random_misspelling: Queries with a misspelling of their own.
        odd_case: Queries in odd upper and lower case.
        odd_spaces: Queries with odd white space.
        without_client: Searches without a client.
        shared_titles: The share of documents whose title another has, too.
        repeated_lines: The share of lines that are repeated.
        broken_lines: The share of lines that cannot be read.
        unknown_searches: The share of lines whose search is unknown.
        unknown_documents: The share of lines whose document is unknown.
        other_lines: The share of other lines: other actions, events without a document, second search lines.
    """

    num_searches: Count = 30_000
    seed: Seed = 0
    num_documents: Literal[0] | Annotated[int, Field(ge=200, le=2_000_000)] = 0
    num_files: Annotated[int, Field(ge=0, le=512)] = 0
    days: Count = 60
    num_judged_queries: Count = 400

    undeclared_bots: Rate = 0.06
    declared_bots: Rate = 0.01
    heavy_people: Rate = 0.02
    slow_bots: Rate = 0.0
    clicking_bots: Rate = 0.0
    crowds: Rate = 0.0
    professionals: Rate = 0.0
    searches_per_bot: Count = 300
    searches_per_slow_bot: Count = 400
    searches_per_clicking_bot: Count = 60
    clients_per_crowd: Count = 12
    searches_per_professional: Count = 300
    searches_per_heavy_person: Count = 60

    private: Rate = 0.02
    adult: Rate = 0.004
    spam: Rate = 0.004
    empty: Rate = 0.004
    random_misspelling: Rate = 0.04
    odd_case: Rate = 0.10
    odd_spaces: Rate = 0.05
    without_client: Rate = 0.003

    shared_titles: Rate = 0.04
    repeated_lines: Rate = 0.005
    broken_lines: Rate = 0.0008
    unknown_searches: Rate = 0.0005
    unknown_documents: Rate = 0.002
    other_lines: Rate = 0.0006

    def __post_init__(self) -> None:
        bots = self.undeclared_bots + self.declared_bots + self.slow_bots + self.clicking_bots + self.crowds
        if bots + self.heavy_people + self.professionals > 0.9:
            raise ValueError("bots and heavy people together must leave at least a tenth of the searches to others")

    @property
    def documents(self) -> int:
        """The size of the catalogue: it grows with the square root of the searches, from 500 to a million."""
        return self.num_documents or max(500, min(1_000_000, round(23 * math.sqrt(self.num_searches))))

    @property
    def files(self) -> int:
        """The log files: about one for every 100,000 searches, at least 4."""
        return self.num_files or max(4, min(256, math.ceil(self.num_searches / 100_000)))

    @property
    def intents(self) -> int:
        """The number of different things that people want; like a vocabulary, it grows a little more slowly than the
        searches.
        """
        return max(200, round(0.9 * self.num_searches**0.94))

    @property
    def flattened_head(self) -> float:
        """How many things share the top of the popularity: it falls with 1 / (rank + this) (Zipf-Mandelbrot).

        It grows too; otherwise many people would type nearly every query of a large log.
        """
        return 25 * (self.num_searches / 30_000) ** 0.6


_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_TO_UNIT = 2.0**-53


def bits(seed: int, purpose: str, *counters: np.ndarray | int) -> np.ndarray:
    """64 random bits for each combination of counters (which broadcast), as uint64.

    Bits of different purposes are independent. The counters are mixed one after the other into a key with SplitMix64's
    finaliser (Steele et al., 2014): search 7,000,000 costs as much as search 0, there is no state, and the order of
    drawing changes nothing.
    """
    key = hashlib.blake2b(f"{seed}:{purpose}".encode(), digest_size=8).digest()
    mixed = np.asarray(np.uint64(int.from_bytes(key, "little")))
    with np.errstate(over="ignore"):
        for counter in counters:
            mixed = _mix(mixed + (np.asarray(counter).astype(np.uint64) + np.uint64(1)) * _STEP)
    return mixed


def uniform(seed: int, purpose: str, *counters: np.ndarray | int) -> np.ndarray:
    """A number in [0, 1) for each combination of counters, as float64."""
    return (bits(seed, purpose, *counters) >> np.uint64(11)) * _TO_UNIT


def pick(weights: Sequence[float] | np.ndarray, unit: np.ndarray) -> np.ndarray:
    """The index that each number in [0, 1) falls on when [0, 1) is divided in proportion to the weights."""
    edges = np.cumsum(np.asarray(weights, float))
    return np.minimum(np.searchsorted(edges, unit * edges[-1], side="right"), len(edges) - 1)


def _mix(value: np.ndarray) -> np.ndarray:
    value = (value ^ (value >> np.uint64(30))) * _MIX_1
    value = (value ^ (value >> np.uint64(27))) * _MIX_2
    return value ^ (value >> np.uint64(31))
