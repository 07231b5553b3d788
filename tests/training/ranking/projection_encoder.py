"""A real encoder without training: letter-trigram counts of a text, projected by a fixed random matrix.

Texts that share trigrams are near each other, so rankings are sensible, and all is deterministic.
"""

from collections.abc import Sequence

import numpy as np

from clicktower.schemas.release import Similarity
from clicktower.schemas.text_contract import DEFAULT_TABLE_ROWS, trigram_ids, words


class ProjectionEncoder:
    similarity: Similarity = "cosine"

    def __init__(self, dimensions: int = 32, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self._projection = rng.normal(size=(DEFAULT_TABLE_ROWS, dimensions)).astype(np.float32)

    def encode(self, texts: Sequence[str], side: str) -> np.ndarray:
        vectors = [self._projection[trigram_ids(words(text))[1].astype(np.int64)].sum(axis=0) for text in texts]
        return np.array(vectors, np.float32)
