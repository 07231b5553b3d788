"""The score by which a model ranks titles: near vectors, words that match, and terms that a query and a title share.

    score(q, d) = (1 - l) ((1 - w) R(q, d) + w M(q, d)) + l L(q, d)

    R   the cosine of the two texts, or minus their distance (embedding)
    M   each word's best match in the title, weighed by rarity (word_matches)
    L   BM25(q, d) / BM25(q, q): what the title has of the query's terms (bm25)

w and l, the model's `word_share` and `lexical_share`, are set by its recipe. R reads whole texts, M finds a word's near
relatives, L the very term, which no vector spells exactly. Every place that ranks calls `mixed`, so evaluation, search
and promotion rank alike.
"""

from collections.abc import Sequence

import numpy as np

from clicktower.schemas.languages import Language
from clicktower.schemas.stage import Progress, silent
from clicktower.training.model.embedding import SharingEncoder, TitleEmbeddings
from clicktower.training.ranking.bm25 import TitleBM25
from clicktower.training.ranking.word_matches import WordMatches


def mixed(
    nearness: np.ndarray, matches: np.ndarray | None, terms: np.ndarray | None, word_share: float, lexical_share: float
) -> np.ndarray:
    """The scores of documents from R, M and L, float32; M and L may be None if their share is 0."""
    scores = nearness
    if word_share:
        assert matches is not None
        scores = (np.float32(1) - np.float32(word_share)) * scores + np.float32(word_share) * matches
    if lexical_share:
        assert terms is not None
        scores = (np.float32(1) - np.float32(lexical_share)) * scores + np.float32(lexical_share) * terms
    return scores


def with_best_by_terms(
    bm25: TitleBM25, query: str, nearest: np.ndarray, depth: int, among: np.ndarray | None = None
) -> np.ndarray:
    """The rows to rank: the nearest, and up to `depth` best by BM25; ascending. among: as in `TitleBM25.best`.

    Of titles with an equal share of the query's terms the first rows are taken: any that is near is there already.
    """
    rows, scores = bm25.best(query, depth, among)
    if len(rows) > depth:
        rows = rows[np.lexsort((rows, -scores))[:depth]]
    return np.union1d(nearest, rows)


class TitleRanking:
    """The titles of a collection ranked by a model, or by other shares than the model's."""

    def __init__(
        self,
        encoder: SharingEncoder,
        titles: Sequence[str],
        language: Language,
        *,
        word_share: float | None = None,
        lexical_share: float | None = None,
        bm25: TitleBM25 | None = None,
        progress: Progress = silent,
    ) -> None:
        """bm25: the titles' index, if there is one already."""
        self._word_share = encoder.word_share if word_share is None else word_share
        self._lexical_share = encoder.lexical_share if lexical_share is None else lexical_share
        self.vectors = TitleEmbeddings(encoder, titles, progress=progress)
        self._matches = WordMatches(encoder, titles) if self._word_share else None
        self._bm25 = bm25 or TitleBM25(titles, language) if self._lexical_share else None

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """float32 [queries, titles]."""
        return mixed(
            self.vectors.scores(queries),
            self._matches.scores(queries) if self._matches else None,
            self._bm25.relative_scores(queries) if self._bm25 else None,
            self._word_share,
            self._lexical_share,
        )
