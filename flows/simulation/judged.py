"""Judged queries of the simulated shop: queries that people could ask, with about fifteen graded documents each."""

from dataclasses import dataclass

import numpy as np

from flows.simulation import draws
from flows.simulation.catalogue import Catalogue, Titles
from flows.simulation.config import SimulationConfig
from flows.simulation.intents import draw_intents, grades
from flows.simulation.phrases import Phrasebook
from flows.simulation.vocabulary import Vocabulary
from schemas.words import normalise, words

NUM_JUDGED = 15
QUOTA = {3: 4, 2: 4, 1: 3}  # of each grade where there are as many; the rest is graded 0
OF_TYPE, OF_NEAR_TYPE, ELSEWHERE = 160, 24, 48  # the documents that a judge is shown
MISLEADING = 3  # of the zeros: those that share most words with the query
_BATCH = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedQuery:
    text: str
    documents: tuple[int, ...]
    grades: tuple[int, ...]


def draw_judged(
    config: SimulationConfig, vocabulary: Vocabulary, catalogue: Catalogue, titles: Titles, phrasebook: Phrasebook
) -> dict[str, list[JudgedQuery]]:
    """The judged queries of dev and of test, no text twice. Fewer than asked for if the shop is too small for more.

    Their intents come after those of the log in number, so what they ask for may occur in the log only by chance.
    """
    sets: dict[str, list[JudgedQuery]] = {"dev": [], "test": []}
    seen: set[str] = set()
    for begin in range(config.intents, config.intents + 40 * config.num_judged_queries, _BATCH):
        for query in _judge(config, vocabulary, catalogue, titles, phrasebook, np.arange(begin, begin + _BATCH)):
            least = min(sets.values(), key=len)
            if len(least) >= config.num_judged_queries:
                return sets
            if normalise(query.text) not in seen:
                seen.add(normalise(query.text))
                least.append(query)
    return sets


def _judge(
    config: SimulationConfig,
    vocabulary: Vocabulary,
    catalogue: Catalogue,
    titles: Titles,
    phrasebook: Phrasebook,
    numbers: np.ndarray,
) -> list[JudgedQuery]:
    seed = config.seed
    intents = draw_intents(vocabulary, seed, catalogue, numbers)
    key = draws.stream(seed, "judged documents")
    near = np.array([t.near for t in vocabulary.types])[intents.type]
    columns = []
    for kind, count, salt in ((intents.type, OF_TYPE, 0), (near, OF_NEAR_TYPE, 1)):
        start, size = catalogue.type_start[kind][:, None], np.diff(catalogue.type_start)[kind][:, None]
        place = (draws.uniform(key, numbers[:, None], salt, np.arange(count)) * size).astype(np.int64)
        columns.append(np.where(size > 0, catalogue.order[np.minimum(start + place, len(catalogue) - 1)], 0))
    columns.append((draws.uniform(key, numbers[:, None], 2, np.arange(ELSEWHERE)) * len(catalogue)).astype(np.int64))
    target = intents.source[:, None].astype(np.int64)  # the product itself is always among them
    shown = np.concatenate([target, *columns], axis=1)
    truth = grades(vocabulary, intents, catalogue, shown)
    judged = []
    for row in range(len(numbers)):
        text, _ = phrasebook.phrase(
            int(numbers[row]),
            int(intents.type[row]),
            tuple(intents.attributes[row].tolist()),
            int(intents.source[row]),
            bool(intents.by_model[row]),
            0,
        )
        grade_of = dict(zip(shown[row].tolist(), truth[row].tolist(), strict=True))
        chosen = _choose(text, grade_of, titles)
        if len({grade_of[d] for d in chosen}) > 1:  # one single grade for all carries no information
            judged.append(JudgedQuery(text=text, documents=tuple(chosen), grades=tuple(grade_of[d] for d in chosen)))
    return judged


def _choose(text: str, grade_of: dict[int, int], titles: Titles) -> list[int]:
    """Some documents of each grade, by number; among the zeros are some that share words with the text."""
    chosen = [d for grade, quota in QUOTA.items() for d in [d for d, g in grade_of.items() if g == grade][:quota]]
    zeros = [d for d, g in grade_of.items() if g == 0]
    asked = set(words(text))
    overlap = {
        d: len(asked & set(words(title))) for d, title in zip(zeros, titles.of(np.array(zeros, int)), strict=True)
    }
    zeros.sort(key=lambda d: -overlap[d])
    zeros = zeros[:MISLEADING] + zeros[MISLEADING:][::-1]
    return sorted(chosen + zeros[: NUM_JUDGED - len(chosen)])
