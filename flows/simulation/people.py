"""Who searches, and when: people with a long tail, heavy and professional ones, and bots of several kinds.

Each search number leads to one place in the list of all actors' searches by a permutation, so every stretch of
search numbers holds a bit of everybody, and nothing needs to be looked up.
"""

import math
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from flows.simulation.simulation_config import SimulationConfig, bits_of, pick, stream, uniform, uniform_of

PERSON, HEAVY_PERSON, DECLARED_BOT, UNDECLARED_BOT, SLOW_BOT, CLICKING_BOT, CROWD_BOT, PROFESSIONAL = range(8)
HUMAN = (PERSON, HEAVY_PERSON, PROFESSIONAL)
BOT_KINDS = {
    DECLARED_BOT: "declared",
    UNDECLARED_BOT: "undeclared",
    SLOW_BOT: "slow",
    CLICKING_BOT: "clicking",
    CROWD_BOT: "crowd",
}
SEARCHES_IN_CROWD = 2  # of each client: for the query of the crowd, then for something that many want, or once more
CROWD_MINUTES = (1, 10, 45)  # how long a crowd takes, by crowd
SESSION = 25  # searches of a professional in one hour
HOUR_MS = 3_600_000
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
        rates = {
            HEAVY_PERSON: config.heavy_people,
            DECLARED_BOT: config.declared_bots,
            UNDECLARED_BOT: config.undeclared_bots,
            SLOW_BOT: config.slow_bots,
            CLICKING_BOT: config.clicking_bots,
            CROWD_BOT: config.crowds,
            PROFESSIONAL: config.professionals,
        }
        searches = [0, *(round(total * rate) for rate in rates.values())]
        searches[PERSON] = total - sum(searches)
        self._bounds = np.cumsum(searches)
        self._each = np.array(
            [
                1,
                config.searches_per_heavy_person,
                config.searches_per_bot,
                config.searches_per_bot,
                config.searches_per_slow_bot,
                config.searches_per_clicking_bot,
                SEARCHES_IN_CROWD,
                config.searches_per_professional,
            ]
        )
        self.num_people = max(1, round(0.42 * total))
        self._num_actors = [self.num_people, *(math.ceil(searches[role] / self._each[role]) for role in rates)]
        self._first = np.cumsum([0, *self._num_actors])
        self.num_actors = int(self._first[-1])
        self._stride = _coprime_stride(total)

    def searchers(self, numbers: np.ndarray) -> Searchers:
        """Who makes each of these searches, and when."""
        config, seed = self._config, self._config.seed
        place = (numbers * self._stride + 7919 * (seed % 1000)) % config.num_searches
        role = np.searchsorted(self._bounds, place, side="right").astype(np.int8)
        within = place - np.concatenate([[0], self._bounds])[role]
        each, first = self._each[role], self._first[role]
        # The power gives people a long tail: most search once or twice, a few dozens of times.
        person = (uniform_of(seed, "person", place) ** 1.3 * self.num_people).astype(np.int64)
        actor = first + np.where(role == PERSON, person, within // each)
        turn = np.where(role == PERSON, 0, within % each)
        return Searchers(actor=actor, role=role, turn=turn, time_ms=self._times(place, actor, role, turn))

    def client(self, actor: int) -> str:
        """The client id of an actor; it does not tell the role."""
        return f"u{(actor * 52_361_807 + 11 * (self._config.seed % 1000)) % 100_000_000:08d}"

    def agent(self, actor: int, role: int) -> str:
        agents = BOT_AGENTS if role == DECLARED_BOT else PERSON_AGENTS
        return agents[int(bits_of(self._config.seed, "agent", actor)) % len(agents)]

    def bots(self) -> list[tuple[str, str]]:
        """(client, kind) of every bot."""
        return [(self.client(actor), kind) for role, kind in BOT_KINDS.items() for actor in self._actors(role)]

    def heavy_clients(self) -> list[str]:
        """The people who search so much that a careless rule takes them for bots."""
        return [self.client(actor) for role in (HEAVY_PERSON, PROFESSIONAL) for actor in self._actors(role)]

    def crowd(self, actor: np.ndarray) -> np.ndarray:
        """The number of the crowd that each of these actors is in; means nothing for others."""
        return np.maximum(actor - self._first[CROWD_BOT], 0) // self._config.clients_per_crowd

    def victim(self, actor: np.ndarray) -> np.ndarray:
        """The person whose private query the crowd of each of these actors asks for."""
        drawn = bits_of(self._config.seed, "victim", self.crowd(actor))
        return (drawn % np.uint64(self.num_people)).astype(np.int64)

    def _actors(self, role: int) -> range:
        return range(int(self._first[role]), int(self._first[role + 1]))

    def _times(self, place: np.ndarray, actor: np.ndarray, role: np.ndarray, turn: np.ndarray) -> np.ndarray:
        seed, days = self._config.seed, self._config.days
        clock = stream(seed, "clock")
        day = (uniform(clock, place, 0) * days).astype(np.int64)
        hour = pick(HOURS, uniform(clock, place, 1))
        human = day * DAY_MS + hour * 3_600_000 + (uniform(clock, place, 2) * 3_600_000).astype(np.int64)
        # An undeclared bot works through its list at one go, a search every 0.6 to 1.4 seconds, with little jitter.
        pace = 600 + uniform(clock, actor, 3) * 800
        begin = uniform(clock, actor, 4) * (days * DAY_MS - pace * self._config.searches_per_bot - 120_000)
        burst = begin + pace * turn + uniform(clock, place, 5) * 0.3 * pace
        times = np.where(role == UNDECLARED_BOT, np.maximum(burst, 0).astype(np.int64), human)
        for kind, when in ((SLOW_BOT, self._slow), (CROWD_BOT, self._gathering), (PROFESSIONAL, self._at_work)):
            of_kind = role == kind
            times[of_kind] = when(clock, place[of_kind], actor[of_kind], turn[of_kind])
        return BEGIN_MS + times

    def _slow(self, clock: np.uint64, place: np.ndarray, actor: np.ndarray, turn: np.ndarray) -> np.ndarray:
        """Every 4 to 12 minutes, day and night: evenly, or with much jitter, or with a pause of 7 hours a day."""
        style, gap = actor % 3, 60_000 * (4 + 8 * uniform(clock, actor, 3))
        jitter = np.array([0.04, 0.9, 0.9])[style] * gap * uniform(clock, place, 5)
        since = gap * turn + jitter
        awake = 17 * HOUR_MS
        since = np.where(style == 2, since // awake * DAY_MS + since % awake, since)
        room = self._config.days * DAY_MS - 24 / 17 * gap * self._config.searches_per_slow_bot - DAY_MS
        return (np.maximum(room, 0) * uniform(clock, actor, 4) + since).astype(np.int64)

    def _gathering(self, clock: np.uint64, place: np.ndarray, actor: np.ndarray, turn: np.ndarray) -> np.ndarray:
        """All of a crowd within its minutes; the second search of each follows within half a minute."""
        crowd = self.crowd(actor)
        minutes = np.array(CROWD_MINUTES)[crowd % len(CROWD_MINUTES)]
        first = uniform(clock, crowd, 6) * (self._config.days * DAY_MS - HOUR_MS)
        return (first + minutes * 60_000 * uniform(clock, actor, 7) + turn * 25_000).astype(np.int64)

    def _at_work(self, clock: np.uint64, place: np.ndarray, actor: np.ndarray, turn: np.ndarray) -> np.ndarray:
        """Sessions of many searches in an hour of an office day; or an account whose shifts search from 6 to 22."""
        days, shared = self._config.days, actor % 2 == 1
        session = turn // SESSION
        office = (actor + session) % days * DAY_MS + (8 + session % 9) * HOUR_MS
        office = office + uniform(clock, place, 1) * HOUR_MS
        shifts = (actor * 5 + turn // 40) % days * DAY_MS + (6 + 16 * uniform(clock, place, 2)) * HOUR_MS
        return np.where(shared, shifts, office).astype(np.int64)


def _coprime_stride(total: int) -> int:
    """A step that visits every number below `total` once, near the golden section of it."""
    stride = max(1, round(total * 0.6180339887))
    while math.gcd(stride, total) != 1:
        stride += 1
    return stride
