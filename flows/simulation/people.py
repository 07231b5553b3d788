"""Who searches, and when: people with a long tail, a few heavy ones, bots that say so and bots that do not.

Each search number leads to one place in the list of all actors' searches by a permutation, so every stretch of
search numbers holds a bit of everybody, and nothing needs to be looked up.
"""

import math
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from flows.simulation import draws
from flows.simulation.config import SimulationConfig

PERSON, HEAVY_PERSON, DECLARED_BOT, UNDECLARED_BOT = range(4)
BEGIN_MS = int(datetime(2026, 9, 1, tzinfo=UTC).timestamp() * 1000)
DAY_MS = 86_400_000
HOURS = (2, 1, 1, 1, 1, 2, 4, 6, 8, 9, 10, 10, 10, 9, 9, 9, 10, 11, 12, 13, 12, 10, 7, 4)  # activity by hour of day
PERSON_AGENTS = (
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/126.0.0.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 Version/17.5 Mobile Safari/604.1",
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 Chrome/125.0.0.0 Mobile Safari/537.36",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) AppleWebKit/605.1.15 Version/17.4 Safari/605.1.15",
)
BOT_AGENTS = (
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
    "curl/8.5.0",
    "python-requests/2.32.3",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Searchers:
    """Arrays over N searches. `actor` numbers everybody, people first; `turn` counts an actor's searches from 0.

    `turn` is 0 for ordinary people, whose searches are not in any order.
    """

    actor: np.ndarray  # int64 (N)
    role: np.ndarray  # int8 (N): PERSON and so on
    turn: np.ndarray  # int64 (N)
    time_ms: np.ndarray  # int64 (N), since the epoch


class Population:
    """Everybody of one simulation."""

    def __init__(self, config: SimulationConfig) -> None:
        self._config = config
        total = config.num_searches
        self._undeclared = round(total * config.undeclared_bots)
        self._declared = round(total * config.declared_bots)
        self._heavy = round(total * config.heavy_people)
        self._ordinary = total - self._undeclared - self._declared - self._heavy
        self.num_people = max(1, round(0.42 * total))
        self.num_heavy = math.ceil(self._heavy / config.searches_per_heavy_person)
        self.num_declared = math.ceil(self._declared / config.searches_per_bot)
        self.num_undeclared = math.ceil(self._undeclared / config.searches_per_bot)
        self._stride = _coprime_stride(total)

    def searchers(self, numbers: np.ndarray) -> Searchers:
        """Who makes each of these searches, and when."""
        config, seed = self._config, self._config.seed
        place = (numbers * self._stride + 7919 * (seed % 1000)) % config.num_searches
        bounds = np.cumsum([self._ordinary, self._heavy, self._declared, self._undeclared])
        role = np.searchsorted(bounds, place, side="right").astype(np.int8)
        within = place - np.concatenate([[0], bounds])[role]
        each = np.array([1, config.searches_per_heavy_person, config.searches_per_bot, config.searches_per_bot])[role]
        first = np.cumsum([0, self.num_people, self.num_heavy, self.num_declared])[role]
        # The power gives people a long tail: most search once or twice, a few dozens of times.
        person = (draws.uniform(draws.stream(seed, "person"), place) ** 1.3 * self.num_people).astype(np.int64)
        actor = first + np.where(role == PERSON, person, within // each)
        turn = np.where(role == PERSON, 0, within % each)
        return Searchers(actor=actor, role=role, turn=turn, time_ms=self._times(place, actor, role, turn))

    def client(self, actor: int) -> str:
        """The client id of an actor; it does not tell the role."""
        return f"u{(actor * 52_361_807 + 11 * (self._config.seed % 1000)) % 100_000_000:08d}"

    def agent(self, actor: int, role: int) -> str:
        agents = BOT_AGENTS if role == DECLARED_BOT else PERSON_AGENTS
        return agents[int(draws.bits(draws.stream(self._config.seed, "agent"), actor)) % len(agents)]

    def bots(self) -> list[tuple[str, str]]:
        """(client, declared or undeclared) of every bot."""
        first = self.num_people + self.num_heavy
        kinds = ["declared"] * self.num_declared + ["undeclared"] * self.num_undeclared
        return [(self.client(first + i), kind) for i, kind in enumerate(kinds)]

    def heavy_clients(self) -> list[str]:
        """The people who search so much that a careless rule takes them for bots."""
        return [self.client(self.num_people + i) for i in range(self.num_heavy)]

    def _times(self, place: np.ndarray, actor: np.ndarray, role: np.ndarray, turn: np.ndarray) -> np.ndarray:
        seed, days = self._config.seed, self._config.days
        clock = draws.stream(seed, "clock")
        day = (draws.uniform(clock, place, 0) * days).astype(np.int64)
        hour = draws.pick(HOURS, draws.uniform(clock, place, 1))
        human = day * DAY_MS + hour * 3_600_000 + (draws.uniform(clock, place, 2) * 3_600_000).astype(np.int64)
        # An undeclared bot works through its list at one go, a search every 0.6 to 1.4 seconds, with little jitter.
        pace = 600 + draws.uniform(clock, actor, 3) * 800
        begin = draws.uniform(clock, actor, 4) * (days * DAY_MS - pace * self._config.searches_per_bot - 120_000)
        burst = begin + pace * turn + draws.uniform(clock, place, 5) * 0.3 * pace
        return BEGIN_MS + np.where(role == UNDECLARED_BOT, np.maximum(burst, 0).astype(np.int64), human)


def _coprime_stride(total: int) -> int:
    """A step that visits every number below `total` once, near the golden section of it."""
    stride = max(1, round(total * 0.6180339887))
    while math.gcd(stride, total) != 1:
        stride += 1
    return stride
