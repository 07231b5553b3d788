"""The shop's own search engine and its visitors' clicks: what was shown at which rank, and what was clicked.

The engine knows something, but not all: it likes the right type, what it understands of the attributes and popular
products; its errors are partly its own (the same for everybody who types the words) and partly by the day.
"""

from dataclasses import dataclass

import numpy as np

from flows.simulation import simulation_config
from flows.simulation.people import CLICKING_BOT, CROWD_BOT, DECLARED_BOT, HUMAN, SLOW_BOT, UNDECLARED_BOT
from flows.simulation.phrases import FORMS, Intents, grades, match_shares
from flows.simulation.searches import Searches
from flows.simulation.simulated_catalogue import Catalogue, ShopVocabulary

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
    score += 0.9 * simulation_config.uniform(
        simulation_config.stream(seed, "engine's error"), words[:, None], documents
    )
    score += 0.6 * simulation_config.uniform(
        simulation_config.stream(seed, "error of the day"), numbers[:, None], documents
    )
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
    key = simulation_config.stream(seed, "candidates")
    parts = []
    for kind, count, popular in (
        (intents.type, of_type, int(of_type * POPULAR_PART)),
        (near, OF_NEAR_TYPE, OF_NEAR_TYPE),
    ):
        start, size = catalogue.type_start[kind][:, None], sizes[kind][:, None]
        place = np.arange(count)[None, :]
        # Beyond the popular ones: one document out of each equal stretch of the rest.
        stretch = np.maximum(size - popular, 1) / max(count - popular, 1)
        jitter = simulation_config.uniform(key, intents.number[:, None], place)
        spread = popular + ((place - popular + jitter) * stretch).astype(np.int64)
        chosen = np.where((place < popular) | (size <= count), place, spread)
        parts.append(np.where(chosen < size, catalogue.order[np.minimum(start + chosen, len(catalogue) - 1)], -1))
    places = np.concatenate([*parts, np.full((len(intents), OF_OTHERS), -1)], axis=1)
    # Neighbours by number have nothing to do with each other, and they differ.
    first = (simulation_config.bits(key, intents.number) % np.uint64(len(catalogue))).astype(np.int64)
    anywhere = (first[:, None] + np.arange(places.shape[1])) % len(catalogue)
    documents = np.sort(np.where(places >= 0, places, anywhere), axis=1)
    again = np.zeros(documents.shape, bool)
    again[:, 1:] = documents[:, 1:] == documents[:, :-1]
    return documents, again


def _behaviour(seed: int, truth: np.ndarray, searches: Searches) -> tuple[np.ndarray, np.ndarray]:
    """(shown, clicked): how far each searcher looked down the page, and what they clicked."""
    actor, role, numbers = searches.who.actor, searches.who.role, searches.numbers
    rank = np.arange(PAGE)
    depth = simulation_config.uniform(simulation_config.stream(seed, "depth"), numbers)
    depth = np.where(depth < 0.4, PAGE, 4 + (depth * 10).astype(np.int64) % 6)
    looks = np.isin(role, (*HUMAN, CROWD_BOT))  # the others are shown all of a page
    shown = (rank < depth[:, None]) | ~looks[:, None]
    shown &= ~searches.silent[:, None]
    unit = simulation_config.uniform(simulation_config.stream(seed, "click"), numbers[:, None], rank)
    clicked = shown & (unit < EXAMINED * np.array(ATTRACTION)[truth])
    clicks_all = simulation_config.bits(simulation_config.stream(seed, "bot's habit"), actor) % np.uint64(3) < 2
    clicked &= (role != SLOW_BOT)[:, None]
    mechanical = (role == UNDECLARED_BOT) | (role == CLICKING_BOT)
    clicked = np.where(mechanical[:, None], clicks_all[:, None] | (rank == FIXED_RANK), clicked)
    return shown, np.where((role == DECLARED_BOT)[:, None], rank == 0, clicked)
