"""Who searches and when, what they type, what the shop's engine shows, and what they click.

Each actor is a person (with a long tail), a heavy or professional user, or a bot of one of several kinds. A permutation
maps each search number to one entry in the list of all actors' searches, so every range of search numbers has a mix of
actors, without a lookup table.
"""

import math
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from clicktower.flows.simulation import simulated_shop
from clicktower.flows.simulation.simulation_config import SimulationConfig, bits, pick, uniform

PERSON, HEAVY_PERSON, DECLARED_BOT, UNDECLARED_BOT, SLOW_BOT, CLICKING_BOT, CROWD_BOT, PROFESSIONAL = range(8)
HUMAN = (PERSON, HEAVY_PERSON, PROFESSIONAL)
ROLES = (
    "person",
    "heavy_person",
    "declared_bot",
    "undeclared_bot",
    "slow_bot",
    "clicking_bot",
    "crowd_bot",
    "professional",
)
SEARCHES_IN_CROWD = 2  # of each client: for the crowd's query, then for a popular intent, or once more
CROWD_MINUTES = (1, 10, 45)  # how long a crowd takes, by crowd
SESSION = 25  # a professional's searches in one hour
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
    """Arrays over N searches. `actor` numbers all actors, people first; `turn` counts an actor's searches from 0.

    `turn` is 0 for ordinary people, whose searches are not in any order.
    """

    actor: np.ndarray  # int64 (N)
    role: np.ndarray  # int8 (N): PERSON and so on
    turn: np.ndarray  # int64 (N)
    time_ms: np.ndarray  # int64 (N), since the epoch


class Population:
    """All actors of a simulation."""

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
        num_actors = [self.num_people, *(math.ceil(searches[role] / self._each[role]) for role in rates)]
        self._first = np.cumsum([0, *num_actors])
        self._stride = _coprime_stride(total)

    def searchers(self, numbers: np.ndarray) -> Searchers:
        """Who makes each of these searches, and when."""
        config, seed = self._config, self._config.seed
        place = (numbers * self._stride + 7919 * (seed % 1000)) % config.num_searches
        role = np.searchsorted(self._bounds, place, side="right").astype(np.int8)
        within = place - np.concatenate([[0], self._bounds])[role]
        each, first = self._each[role], self._first[role]
        # The power gives people a long tail: most search once or twice, a few dozens of times.
        person = (uniform(seed, "person", place) ** 1.3 * self.num_people).astype(np.int64)
        actor = first + np.where(role == PERSON, person, within // each)
        turn = np.where(role == PERSON, 0, within % each)
        return Searchers(actor=actor, role=role, turn=turn, time_ms=self._times(place, actor, role, turn))

    def client(self, actor: int) -> str:
        """The client id of an actor; it does not reveal the role."""
        return f"u{(actor * 52_361_807 + 11 * (self._config.seed % 1000)) % 100_000_000:08d}"

    def agent(self, actor: int, role: int) -> str:
        agents = BOT_AGENTS if role == DECLARED_BOT else PERSON_AGENTS
        return agents[int(bits(self._config.seed, "agent", actor)) % len(agents)]

    def crowd(self, actor: np.ndarray) -> np.ndarray:
        """The number of the crowd that each of these actors belongs to; meaningless for others."""
        return np.maximum(actor - self._first[CROWD_BOT], 0) // self._config.clients_per_crowd

    def victim(self, actor: np.ndarray) -> np.ndarray:
        """The person whose private query the crowd of each of these actors repeats."""
        drawn = bits(self._config.seed, "victim", self.crowd(actor))
        return (drawn % np.uint64(self.num_people)).astype(np.int64)

    def _times(self, place: np.ndarray, actor: np.ndarray, role: np.ndarray, turn: np.ndarray) -> np.ndarray:
        days = self._config.days
        day = (self._clock(place, 0) * days).astype(np.int64)
        hour = pick(HOURS, self._clock(place, 1))
        human = day * DAY_MS + hour * 3_600_000 + (self._clock(place, 2) * 3_600_000).astype(np.int64)
        # An undeclared bot works through its list at one go, a search every 0.6 to 1.4 seconds, with little jitter.
        pace = 600 + self._clock(actor, 3) * 800
        begin = self._clock(actor, 4) * (days * DAY_MS - pace * self._config.searches_per_bot - 120_000)
        burst = begin + pace * turn + self._clock(place, 5) * 0.3 * pace
        times = np.where(role == UNDECLARED_BOT, np.maximum(burst, 0).astype(np.int64), human)
        for kind, when in (
            (SLOW_BOT, self._slow_bots),
            (CROWD_BOT, self._crowd_times),
            (PROFESSIONAL, self._office_times),
        ):
            of_kind = role == kind
            times[of_kind] = when(place[of_kind], actor[of_kind], turn[of_kind])
        return BEGIN_MS + times

    def _clock(self, *counters: np.ndarray | int) -> np.ndarray:
        return uniform(self._config.seed, "clock", *counters)

    def _slow_bots(self, place: np.ndarray, actor: np.ndarray, turn: np.ndarray) -> np.ndarray:
        """Every 4 to 12 minutes, day and night: evenly, or with much jitter, or with a pause of 7 hours a day."""
        style, gap = actor % 3, 60_000 * (4 + 8 * self._clock(actor, 3))
        jitter = np.array([0.04, 0.9, 0.9])[style] * gap * self._clock(place, 5)
        since = gap * turn + jitter
        awake = 17 * HOUR_MS
        since = np.where(style == 2, since // awake * DAY_MS + since % awake, since)
        room = self._config.days * DAY_MS - 24 / 17 * gap * self._config.searches_per_slow_bot - DAY_MS
        return (np.maximum(room, 0) * self._clock(actor, 4) + since).astype(np.int64)

    def _crowd_times(self, place: np.ndarray, actor: np.ndarray, turn: np.ndarray) -> np.ndarray:
        """A crowd meets within its minutes; each member's second search follows within half a minute."""
        crowd = self.crowd(actor)
        minutes = np.array(CROWD_MINUTES)[crowd % len(CROWD_MINUTES)]
        first = self._clock(crowd, 6) * (self._config.days * DAY_MS - HOUR_MS)
        return (first + minutes * 60_000 * self._clock(actor, 7) + turn * 25_000).astype(np.int64)

    def _office_times(self, place: np.ndarray, actor: np.ndarray, turn: np.ndarray) -> np.ndarray:
        """Sessions of many searches in an hour of an office day; or an account whose shifts search from 6 to 22."""
        days, shared = self._config.days, actor % 2 == 1
        session = turn // SESSION
        office = (actor + session) % days * DAY_MS + (8 + session % 9) * HOUR_MS
        office = office + self._clock(place, 1) * HOUR_MS
        shifts = (actor * 5 + turn // 40) % days * DAY_MS + (6 + 16 * self._clock(place, 2)) * HOUR_MS
        return np.where(shared, shifts, office).astype(np.int64)


def _coprime_stride(total: int) -> int:
    """A step that visits every number below `total` once, near its golden section."""
    stride = max(1, round(total * 0.6180339887))
    while math.gcd(stride, total) != 1:
        stride += 1
    return stride


INTENT, PRIVATE, ADULT, SPAM, EMPTY = range(5)
WHAT = ("intent", "private", "adult", "spam", "empty")
FAVOURITE = 0.10  # share of a person's searches that repeat one intent in the same words
# A professional repeats a few intents: so many, in this share of its searches.
STOCK, OF_STOCK = 12, 0.4
PRIVATE_OF_HEAVY = 6  # times as often: they repeat their private query more than k times, so the gate must count people


@dataclass(frozen=True, kw_only=True, slots=True)
class Searches:
    """Arrays over N searches. A private, adult or spam query also gets a page: `intents` has all N."""

    numbers: np.ndarray  # int64 (N)
    who: Searchers
    kind: np.ndarray  # int8 (N): INTENT and so on
    intents: simulated_shop.Intents
    form: np.ndarray  # int64 (N)
    text: list[str]  # (N), as typed
    understood: np.ndarray  # bool (N): the words are those of the titles, correctly spelled
    has_client: np.ndarray  # bool (N)
    silent: np.ndarray  # bool (N): none of its events is logged
    altered: np.ndarray  # bool (N, 3): misspelled at random, odd case, odd spaces


def draw_searches(
    config: SimulationConfig, catalogue: simulated_shop.Catalogue, population: Population, numbers: np.ndarray
) -> Searches:
    """The searches of these numbers."""
    seed, who = config.seed, population.searchers(numbers)
    is_human = np.isin(who.role, HUMAN)

    kinds = np.full(len(numbers), INTENT, np.int8)
    unit = uniform(seed, "what", numbers)
    private = np.where(who.role == HEAVY_PERSON, PRIVATE_OF_HEAVY * config.private, config.private)
    for kind, rate in ((PRIVATE, private), (ADULT, config.adult), (SPAM, config.spam), (EMPTY, config.empty)):
        kinds[is_human & (unit >= 0) & (unit < rate)] = kind
        unit = unit - rate
    in_crowd = who.role == CROWD_BOT
    wants_popular = in_crowd & (who.turn == 1) & (population.crowd(who.actor) % 2 == 0)
    kinds[in_crowd & ~wants_popular] = PRIVATE
    author = np.where(in_crowd, population.victim(who.actor), who.actor)

    # A favourite is drawn by person instead of by search; bots crawl evenly over everything people want.
    favourite = (who.role == PERSON) & (uniform(seed, "favourite", numbers) < FAVOURITE)
    counter = np.where(favourite, config.num_searches + who.actor, numbers)
    of_stock = (who.role == PROFESSIONAL) & (uniform(seed, "stock", numbers) < OF_STOCK)
    item = (bits(seed, "item", numbers) % np.uint64(STOCK)).astype(np.int64)
    counter = np.where(of_stock, 4 * config.num_searches + STOCK * who.actor + item, counter)
    intent_numbers = simulated_shop.draw_popular(seed, counter, config.intents, config.flattened_head)
    crawled = (bits(seed, "crawled", numbers) % np.uint64(config.intents)).astype(np.int64)
    intents = simulated_shop.draw_intents(catalogue, np.where(is_human | wants_popular, intent_numbers, crawled))
    form = pick(simulated_shop.FORMS, uniform(seed, "form", counter))

    alteration = uniform(seed, "altered", numbers[:, None], np.arange(3))
    altered = (alteration < (config.random_misspelling, config.odd_case, config.odd_spaces)) & is_human[:, None]
    altered &= (kinds == INTENT)[:, None]
    text, understood = _texts(seed, numbers, author, kinds, intents, form, altered)
    nobody = (who.role == PERSON) & (uniform(seed, "nobody", numbers) < config.without_client)
    return Searches(
        numbers=numbers,
        who=who,
        kind=kinds,
        intents=intents,
        form=form,
        text=text,
        understood=understood & ~altered[:, 0],
        has_client=~nobody | (kinds == PRIVATE),
        silent=in_crowd & (population.crowd(who.actor) // len(CROWD_MINUTES) % 2 == 1),
        altered=altered,
    )


def _texts(
    seed: int,
    numbers: np.ndarray,
    author: np.ndarray,
    kinds: np.ndarray,
    intents: simulated_shop.Intents,
    form: np.ndarray,
    altered: np.ndarray,
) -> tuple[list[str], np.ndarray]:
    texts, understood = [], np.ones(len(numbers), bool)
    columns = (column.tolist() for column in (numbers, author, kinds, form, altered))
    for row, (number, actor, kind, shape, changes, intent) in enumerate(zip(*columns, intents.rows(), strict=True)):
        if kind == INTENT:
            text, understood[row] = simulated_shop.phrase(seed, intent, shape)
            if any(changes):
                dice = simulated_shop.Dice(seed, "altered", number)
                for changed, change in zip(
                    changes,
                    (simulated_shop.misspell_text, simulated_shop.odd_case, simulated_shop.odd_spaces),
                    strict=True,
                ):
                    text = change(text, dice) if changed else text
        elif kind == PRIVATE:
            text = simulated_shop.private_text(seed, actor)
        elif kind == EMPTY:
            text = simulated_shop.empty_text(simulated_shop.Dice(seed, "empty", number))
        else:
            text = (simulated_shop.adult_text if kind == ADULT else simulated_shop.spam_text)(
                simulated_shop.Dice(seed, "unwanted", number)
            )
        texts.append(text)
    return texts, understood


PAGE = 10
OF_TYPE, OF_NEAR_TYPE, OF_OTHERS = 112, 16, 8  # documents that the engine considers for a query
POPULAR_PART = 0.4  # popular ones among those of the type; the rest is spread over all others, by query
ATTRACTION = (0.012, 0.04, 0.16, 0.58)  # P(click | examined) by grade; the first is noise
EXAMINED = 1 / np.arange(1, PAGE + 1) ** 0.55  # P(examined) by rank: the position bias
FIXED_RANK = 2  # counted from 0: the rank that bots click unless they click everything


@dataclass(frozen=True, kw_only=True, slots=True)
class Pages:
    """Arrays over N searches and PAGE ranks."""

    documents: np.ndarray  # int64 (N, PAGE)
    shown: np.ndarray  # bool (N, PAGE): an impression was logged
    clicked: np.ndarray  # bool (N, PAGE); only what was shown is clicked


def result_pages(catalogue: simulated_shop.Catalogue, searches: Searches) -> Pages:
    """The page of each search, and what was clicked on it.

    The engine is imperfect: it likes the right type, the attributes that it understands and popular products; its
    errors depend partly on the words (the same for everybody who types them) and partly on the day.
    """
    seed, intents, numbers = catalogue.seed, searches.intents, searches.numbers
    documents, again = _candidates(catalogue, intents)
    is_type = catalogue.type[documents] == intents.type[:, None]
    is_asked_for = intents.by_model[:, None] & (catalogue.source[documents] == intents.source[:, None])
    knows = np.where(searches.understood, 1.0, 0.55).astype(np.float32)[:, None]
    score = is_type * (0.5 + 0.7 * knows + 0.9 * knows * simulated_shop.match_shares(intents, catalogue, documents))
    score += 0.3 * catalogue.popularity[documents] - 0.35 * catalogue.is_part[documents] + 4.0 * knows * is_asked_for
    words = intents.number * len(simulated_shop.FORMS) + searches.form
    score += 0.9 * uniform(seed, "engine's error", words[:, None], documents)
    score += 0.6 * uniform(seed, "error of the day", numbers[:, None], documents)
    score[again] = -np.inf
    best = np.argpartition(-score, PAGE, axis=1)[:, :PAGE]
    rows = np.arange(len(numbers))[:, None]
    best = best[rows, np.argsort(-score[rows, best], axis=1, kind="stable")]
    page = documents[rows, best]
    shown, clicked = _behaviour(seed, simulated_shop.grades(intents, catalogue, page), searches)
    return Pages(documents=page, shown=shown, clicked=clicked)


def _candidates(catalogue: simulated_shop.Catalogue, intents: simulated_shop.Intents) -> tuple[np.ndarray, np.ndarray]:
    """The documents considered for each intent and which of them are second mentions: int64 and bool, both (N, C).

    If a type has too few, documents of any type fill the rest.
    """
    near = simulated_shop.near_types()[intents.type]
    sizes = np.diff(catalogue.type_start)
    of_type = min(OF_TYPE, int(sizes.max()))
    parts = []
    for kind, count, popular in (
        (intents.type, of_type, int(of_type * POPULAR_PART)),
        (near, OF_NEAR_TYPE, OF_NEAR_TYPE),
    ):
        start, size = catalogue.type_start[kind][:, None], sizes[kind][:, None]
        place = np.arange(count)[None, :]
        # Beyond the popular ones: one document from each equal part of the rest.
        stretch = np.maximum(size - popular, 1) / max(count - popular, 1)
        jitter = uniform(catalogue.seed, "candidates", intents.number[:, None], place)
        spread = popular + ((place - popular + jitter) * stretch).astype(np.int64)
        chosen = np.where((place < popular) | (size <= count), place, spread)
        parts.append(np.where(chosen < size, catalogue.order[np.minimum(start + chosen, len(catalogue) - 1)], -1))
    places = np.concatenate([*parts, np.full((len(intents.number), OF_OTHERS), -1)], axis=1)
    # Documents with neighbouring numbers are unrelated, and they differ.
    first = (bits(catalogue.seed, "candidates", intents.number) % np.uint64(len(catalogue))).astype(np.int64)
    anywhere = (first[:, None] + np.arange(places.shape[1])) % len(catalogue)
    documents = np.sort(np.where(places >= 0, places, anywhere), axis=1)
    again = np.zeros(documents.shape, bool)
    again[:, 1:] = documents[:, 1:] == documents[:, :-1]
    return documents, again


def _behaviour(seed: int, truth: np.ndarray, searches: Searches) -> tuple[np.ndarray, np.ndarray]:
    """(shown, clicked): how far each searcher looked down the page, and what they clicked."""
    actor, role, numbers = searches.who.actor, searches.who.role, searches.numbers
    rank = np.arange(PAGE)
    depth = uniform(seed, "depth", numbers)
    depth = np.where(depth < 0.4, PAGE, 4 + (depth * 10).astype(np.int64) % 6)
    looks = np.isin(role, (*HUMAN, CROWD_BOT))  # other actors see the whole page
    shown = (rank < depth[:, None]) | ~looks[:, None]
    shown &= ~searches.silent[:, None]
    unit = uniform(seed, "click", numbers[:, None], rank)
    clicked = shown & (unit < EXAMINED * np.array(ATTRACTION)[truth])
    clicks_all = bits(seed, "bot's habit", actor) % np.uint64(3) < 2
    clicked &= (role != SLOW_BOT)[:, None]
    mechanical = (role == UNDECLARED_BOT) | (role == CLICKING_BOT)
    clicked = np.where(mechanical[:, None], clicks_all[:, None] | (rank == FIXED_RANK), clicked)
    return shown, np.where((role == DECLARED_BOT)[:, None], rank == 0, clicked)
