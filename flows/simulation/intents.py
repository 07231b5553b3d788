"""What people want, and how well a document answers it: the truth behind queries, clicks and judgments.

Intent i is a function of (seed, i): a product of the catalogue is drawn, and some of its attributes are what matters to
whoever searches. Intents are numbered by popularity.
"""

from dataclasses import dataclass

import numpy as np

from flows.simulation import draws
from flows.simulation.catalogue import MODEL_SHARE, NONE, Catalogue
from flows.simulation.vocabulary import MAX_ATTRIBUTES, Vocabulary

ANY = -1  # an attribute that the intent leaves open
MENTIONED = (0.36, 0.26, 0.16, 0.10, 0.12)  # of the attributes in the type's order, and of the brand
BY_MODEL = 0.03  # of the intents whose product carries a model number in its title, relative to all that could


@dataclass(frozen=True, kw_only=True, slots=True)
class Intents:
    """Arrays over N intents. One by model number wants `source` alone."""

    number: np.ndarray  # int64 (N)
    type: np.ndarray  # int16 (N)
    attributes: np.ndarray  # int8 (N, MAX_ATTRIBUTES + 1), ANY where open
    source: np.ndarray  # int32 (N): the product that was drawn
    by_model: np.ndarray  # bool (N)

    def __len__(self) -> int:
        return len(self.number)

    def take(self, rows: np.ndarray) -> "Intents":
        return Intents(
            number=self.number[rows],
            type=self.type[rows],
            attributes=self.attributes[rows],
            source=self.source[rows],
            by_model=self.by_model[rows],
        )


def draw_popular(key: np.uint64, counters: np.ndarray, num_intents: int, head: float) -> np.ndarray:
    """An intent number for each counter, by popularity: the inverse of the Zipf-Mandelbrot distribution's sum."""
    unit = draws.uniform(key, counters)
    rank = head * ((num_intents + head) / head) ** unit - head
    return np.minimum(rank.astype(np.int64), num_intents - 1)


def draw_intents(vocabulary: Vocabulary, seed: int, catalogue: Catalogue, numbers: np.ndarray) -> Intents:
    """The intents of these numbers."""
    sold = np.where(catalogue.num_products > 0, catalogue.type_share, 0)
    kind = draws.pick(sold, draws.uniform(draws.stream(seed, "intent type"), numbers))
    unit = draws.uniform(draws.stream(seed, "intent product"), numbers) ** 1.5  # popular products first
    document = catalogue.order[catalogue.type_start[kind] + (unit * catalogue.num_products[kind]).astype(np.int64)]
    attributes = catalogue.attributes[document]
    matters = draws.uniform(draws.stream(seed, "matters"), numbers[:, None], np.arange(MAX_ATTRIBUTES + 1)) < MENTIONED
    source = catalogue.source[document]
    has_model = draws.uniform(draws.stream(seed, "has model"), source) < MODEL_SHARE
    by_model = has_model & (draws.uniform(draws.stream(seed, "by model"), numbers) < BY_MODEL / MODEL_SHARE)
    wanted = np.where(matters & (attributes != NONE), attributes, ANY)
    wanted[by_model] = attributes[by_model]
    return Intents(
        number=numbers, type=kind.astype(np.int16), attributes=wanted.astype(np.int8), source=source, by_model=by_model
    )


def match_shares(intents: Intents, catalogue: Catalogue, documents: np.ndarray) -> np.ndarray:
    """The share of an intent's attributes that a document has, 1 where it has none: float32 (N, C).

    documents: int (N, C), the candidates of each intent; attributes are compared by kind number, so the share means
    something only where the types are equal.
    """
    hits = np.zeros(documents.shape, np.float32)
    for slot in range(MAX_ATTRIBUTES + 1):
        wanted = intents.attributes[:, slot, None]
        hits += (wanted != ANY) & (catalogue.attributes[documents, slot] == wanted)
    count = (intents.attributes != ANY).sum(axis=1)[:, None]
    return np.where(count > 0, hits / np.maximum(count, 1), 1).astype(np.float32)


def grades(vocabulary: Vocabulary, intents: Intents, catalogue: Catalogue, documents: np.ndarray) -> np.ndarray:
    """The true grade (0-3) of each candidate: int8 (N, C); documents: int (N, C).

    3: the right product with everything asked for. 2: at least half of it. 1: the right product with less, a part for
    it, or a near miss (a loveseat for a sofa). 0: anything else. Who asks by model number wants that product.
    """
    near = np.array([t.near for t in vocabulary.types], np.int16)
    kind = catalogue.type[documents]
    is_type = kind == intents.type[:, None]
    share = match_shares(intents, catalogue, documents)
    grade = np.where(share >= 1, 3, np.where(share >= 0.5, 2, 1)).astype(np.int8)
    by_model = intents.by_model[:, None]
    is_source = catalogue.source[documents] == intents.source[:, None]
    grade = np.where(by_model, np.where(is_source, 3, np.where(share >= 0.5, 1, 0)), grade)
    grade = np.where(catalogue.is_part[documents], np.minimum(grade, 1), grade)
    is_near = (kind == near[intents.type][:, None]) & ~by_model & ~catalogue.is_part[documents]
    return np.where(is_type, grade, np.where(is_near, 1, 0)).astype(np.int8)
