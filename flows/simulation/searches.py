"""What is typed in each search, what the shop's own engine shows for it, and what is clicked.

The engine knows something, but not all: it likes the right type, what it understands of the attributes and popular
products; its errors are partly its own (the same for everybody who types the words) and partly by the day.
"""

from dataclasses import dataclass

import numpy as np

from flows.simulation import phrases
from flows.simulation.people import (
    CLICKING_BOT,
    CROWD_BOT,
    CROWD_MINUTES,
    DECLARED_BOT,
    HEAVY_PERSON,
    HUMAN,
    PERSON,
    PROFESSIONAL,
    SLOW_BOT,
    UNDECLARED_BOT,
    Population,
    Searchers,
)
from flows.simulation.phrases import FORMS, Dice, Intents, Phrasebook, draw_intents, draw_popular, grades, match_shares
from flows.simulation.simulated_catalogue import Catalogue, ShopVocabulary
from flows.simulation.simulation_config import SimulationConfig, bits, bits_of, pick, stream, uniform, uniform_of

INTENT, PRIVATE, ADULT, SPAM, EMPTY = range(5)
WHAT = ("intent", "private", "adult", "spam", "empty")
FAVOURITE = 0.10  # of a person's searches are for the same thing again, in the same words
# A professional asks for a few things again and again: so many, in this share of its searches.
STOCK, OF_STOCK = 12, 0.4
PRIVATE_OF_HEAVY = 6  # times as often: they repeat their private query more than k times, so people must be counted


@dataclass(frozen=True, kw_only=True, slots=True)
class Searches:
    """Arrays over N searches. Whoever types something private, adult or spam still gets a page: `intents` has all N."""

    numbers: np.ndarray  # int64 (N)
    who: Searchers
    what: np.ndarray  # int8 (N): INTENT and so on
    author: np.ndarray  # int64 (N): the actor whose private text it is where it is one
    intents: Intents
    form: np.ndarray  # int64 (N)
    text: list[str]  # (N), as typed
    understood: np.ndarray  # bool (N): the words are those of the titles, spelled rightly
    has_client: np.ndarray  # bool (N)
    silent: np.ndarray  # bool (N): no event of it is logged
    altered: np.ndarray  # bool (N, 3): misspelled at random, odd case, odd spaces


def draw_searches(
    config: SimulationConfig,
    vocabulary: ShopVocabulary,
    catalogue: Catalogue,
    population: Population,
    phrasebook: Phrasebook,
    numbers: np.ndarray,
) -> Searches:
    """The searches of these numbers."""
    seed, who = config.seed, population.searchers(numbers)
    is_human = np.isin(who.role, HUMAN)

    what = np.full(len(numbers), INTENT, np.int8)
    unit = uniform_of(seed, "what", numbers)
    private = np.where(who.role == HEAVY_PERSON, PRIVATE_OF_HEAVY * config.private, config.private)
    for kind, rate in ((PRIVATE, private), (ADULT, config.adult), (SPAM, config.spam), (EMPTY, config.empty)):
        what[is_human & (unit >= 0) & (unit < rate)] = kind
        unit = unit - rate
    in_crowd = who.role == CROWD_BOT
    wants_popular = in_crowd & (who.turn == 1) & (population.crowd(who.actor) % 2 == 0)
    what[in_crowd & ~wants_popular] = PRIVATE
    author = np.where(in_crowd, population.victim(who.actor), who.actor)

    # A favourite is drawn by person instead of by search; bots crawl evenly over everything people want.
    favourite = (who.role == PERSON) & (uniform_of(seed, "favourite", numbers) < FAVOURITE)
    counter = np.where(favourite, config.num_searches + who.actor, numbers)
    of_stock = (who.role == PROFESSIONAL) & (uniform_of(seed, "stock", numbers) < OF_STOCK)
    item = (bits_of(seed, "item", numbers) % np.uint64(STOCK)).astype(np.int64)
    counter = np.where(of_stock, 4 * config.num_searches + STOCK * who.actor + item, counter)
    wanted = draw_popular(stream(seed, "wanted"), counter, config.intents, config.flattened_head)
    crawled = (bits_of(seed, "crawled", numbers) % np.uint64(config.intents)).astype(np.int64)
    intents = draw_intents(vocabulary, seed, catalogue, np.where(is_human | wants_popular, wanted, crawled))
    form = pick(FORMS, uniform_of(seed, "form", counter))

    alteration = uniform_of(seed, "altered", numbers[:, None], np.arange(3))
    altered = (alteration < (config.random_misspelling, config.odd_case, config.odd_spaces)) & is_human[:, None]
    altered &= (what == INTENT)[:, None]
    text, understood = _texts(vocabulary, seed, phrasebook, numbers, author, what, intents, form, altered)
    nobody = (who.role == PERSON) & (uniform_of(seed, "nobody", numbers) < config.without_client)
    return Searches(
        numbers=numbers,
        who=who,
        what=what,
        author=author,
        intents=intents,
        form=form,
        text=text,
        understood=understood & ~altered[:, 0],
        has_client=~nobody | (what == PRIVATE),
        silent=in_crowd & (population.crowd(who.actor) // len(CROWD_MINUTES) % 2 == 1),
        altered=altered,
    )


def _texts(
    vocabulary: ShopVocabulary,
    seed: int,
    phrasebook: Phrasebook,
    numbers: np.ndarray,
    author: np.ndarray,
    what: np.ndarray,
    intents: Intents,
    form: np.ndarray,
    altered: np.ndarray,
) -> tuple[list[str], np.ndarray]:
    texts, understood = [], np.ones(len(numbers), bool)
    rows = zip(
        numbers.tolist(),
        author.tolist(),
        what.tolist(),
        intents.number.tolist(),
        intents.type.tolist(),
        intents.attributes.tolist(),
        intents.source.tolist(),
        intents.by_model.tolist(),
        form.tolist(),
        altered.tolist(),
        strict=True,
    )
    for row, (number, actor, kind, intent, product, wanted, source, by_model, shape, changes) in enumerate(rows):
        if kind == INTENT:
            text, understood[row] = phrasebook.phrase(intent, product, tuple(wanted), source, by_model, shape)
            if any(changes):
                dice = Dice(seed, "altered", number)
                for changed, change in zip(
                    changes, (phrases.misspell_text, phrases.odd_case, phrases.odd_spaces), strict=True
                ):
                    text = change(text, dice) if changed else text
        elif kind == PRIVATE:
            text = phrases.private_text(vocabulary, seed, actor)
        elif kind == EMPTY:
            text = phrases.empty_text(Dice(seed, "empty", number))
        else:
            write = phrases.adult_text if kind == ADULT else phrases.spam_text
            text = write(vocabulary, Dice(seed, "unwanted", number))
        texts.append(text)
    return texts, understood


PAGE = 10
OF_TYPE, OF_NEAR_TYPE, OF_OTHERS = 112, 16, 8  # the documents that the engine looks at for a query
POPULAR_PART = 0.4  # of those of the type: the popular ones; the rest are spread over all others, by query
ATTRACTION = (0.012, 0.04, 0.16, 0.58)  # P(click | examined) by grade; the first is noise
EXAMINED = 1 / np.arange(1, PAGE + 1) ** 0.55  # P(examined) by rank: the position bias
FIXED_RANK = 2  # counted from 0: what the bots click that do not click everything


@dataclass(frozen=True, kw_only=True, slots=True)
class Pages:
    """Arrays over N searches and PAGE ranks."""

    documents: np.ndarray  # int64 (N, PAGE)
    shown: np.ndarray  # bool (N, PAGE): an impression was logged
    clicked: np.ndarray  # bool (N, PAGE); only what was shown is clicked
    grades: np.ndarray  # int8 (N, PAGE): the truth


def result_pages(vocabulary: ShopVocabulary, seed: int, catalogue: Catalogue, searches: Searches) -> Pages:
    """The page of each search, and what was clicked on it."""
    intents, numbers = searches.intents, searches.numbers
    documents, again = _candidates(vocabulary, seed, catalogue, intents)
    is_type = catalogue.type[documents] == intents.type[:, None]
    is_asked_for = intents.by_model[:, None] & (catalogue.source[documents] == intents.source[:, None])
    knows = np.where(searches.understood, 1.0, 0.55).astype(np.float32)[:, None]
    score = is_type * (0.5 + 0.7 * knows + 0.9 * knows * match_shares(intents, catalogue, documents))
    score += 0.3 * catalogue.popularity[documents] - 0.35 * catalogue.is_part[documents] + 4.0 * knows * is_asked_for
    words = intents.number * len(FORMS) + searches.form
    score += 0.9 * uniform_of(seed, "engine's error", words[:, None], documents)
    score += 0.6 * uniform_of(seed, "error of the day", numbers[:, None], documents)
    score[again] = -np.inf
    best = np.argpartition(-score, PAGE, axis=1)[:, :PAGE]
    rows = np.arange(len(numbers))[:, None]
    best = best[rows, np.argsort(-score[rows, best], axis=1, kind="stable")]
    page = documents[rows, best]
    truth = grades(vocabulary, intents, catalogue, page)
    shown, clicked = _behaviour(seed, truth, searches)
    return Pages(documents=page, shown=shown, clicked=clicked, grades=truth)


def _candidates(
    vocabulary: ShopVocabulary, seed: int, catalogue: Catalogue, intents: Intents
) -> tuple[np.ndarray, np.ndarray]:
    """The documents looked at for each intent and which of them are second mentions: int64 and bool, both (N, C).

    Where a type has too few, documents of any type fill the places.
    """
    near = np.array([t.near for t in vocabulary.types])[intents.type]
    sizes = np.diff(catalogue.type_start)
    of_type = min(OF_TYPE, int(sizes.max()))
    key = stream(seed, "candidates")
    parts = []
    for kind, count, popular in (
        (intents.type, of_type, int(of_type * POPULAR_PART)),
        (near, OF_NEAR_TYPE, OF_NEAR_TYPE),
    ):
        start, size = catalogue.type_start[kind][:, None], sizes[kind][:, None]
        place = np.arange(count)[None, :]
        # Beyond the popular ones: one document out of each equal stretch of the rest.
        stretch = np.maximum(size - popular, 1) / max(count - popular, 1)
        jitter = uniform(key, intents.number[:, None], place)
        spread = popular + ((place - popular + jitter) * stretch).astype(np.int64)
        chosen = np.where((place < popular) | (size <= count), place, spread)
        parts.append(np.where(chosen < size, catalogue.order[np.minimum(start + chosen, len(catalogue) - 1)], -1))
    places = np.concatenate([*parts, np.full((len(intents), OF_OTHERS), -1)], axis=1)
    # Neighbours by number have nothing to do with each other, and they differ.
    first = (bits(key, intents.number) % np.uint64(len(catalogue))).astype(np.int64)
    anywhere = (first[:, None] + np.arange(places.shape[1])) % len(catalogue)
    documents = np.sort(np.where(places >= 0, places, anywhere), axis=1)
    again = np.zeros(documents.shape, bool)
    again[:, 1:] = documents[:, 1:] == documents[:, :-1]
    return documents, again


def _behaviour(seed: int, truth: np.ndarray, searches: Searches) -> tuple[np.ndarray, np.ndarray]:
    """(shown, clicked): how far each searcher looked down the page, and what they clicked."""
    actor, role, numbers = searches.who.actor, searches.who.role, searches.numbers
    rank = np.arange(PAGE)
    depth = uniform_of(seed, "depth", numbers)
    depth = np.where(depth < 0.4, PAGE, 4 + (depth * 10).astype(np.int64) % 6)
    looks = np.isin(role, (*HUMAN, CROWD_BOT))  # the others are shown all of a page
    shown = (rank < depth[:, None]) | ~looks[:, None]
    shown &= ~searches.silent[:, None]
    unit = uniform_of(seed, "click", numbers[:, None], rank)
    clicked = shown & (unit < EXAMINED * np.array(ATTRACTION)[truth])
    clicks_all = bits_of(seed, "bot's habit", actor) % np.uint64(3) < 2
    clicked &= (role != SLOW_BOT)[:, None]
    mechanical = (role == UNDECLARED_BOT) | (role == CLICKING_BOT)
    clicked = np.where(mechanical[:, None], clicks_all[:, None] | (rank == FIXED_RANK), clicked)
    return shown, np.where((role == DECLARED_BOT)[:, None], rank == 0, clicked)
