"""BM25 over titles, on bm25s: the lexical system that every table compares with.

    score(q, d) = sum over the words t of q of  idf_t * tf / (tf + k1 (1 - b + b |d| / avgdl))
    idf_t = ln(1 + (N - df_t + 0.5) / (df_t + 0.5))

This is the form of Lucene, Elasticsearch and OpenSearch (bm25s calls it "lucene"): the idf is never
negative, and the factor k1 + 1, which changes no order, is left out. Words are those of the text contract,
unstemmed; N, df and avgdl are of the whole collection. A word that occurs twice in a query counts twice.
"""

from collections.abc import Sequence

import bm25s
import numpy as np

from schemas.words import words

K1, B = 1.2, 0.75


class TitleBM25:
    """BM25 scores of a query for every title of a collection."""

    def __init__(self, titles: Sequence[str], *, k1: float = K1, b: float = B) -> None:
        if not titles:
            raise ValueError("BM25 needs at least one title")
        self._num_titles = len(titles)
        self._index = bm25s.BM25(k1=k1, b=b, method="lucene", backend="numpy")
        self._index.index([words(title) for title in titles], show_progress=False)

    @property
    def parameters(self) -> int:
        """The numbers held: one for each title and distinct word of it."""
        return len(self._index.scores["data"])

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """The score of each query and title, float32 [queries, titles]; 0 where they share no word."""
        scores_BN = np.zeros((len(queries), self._num_titles), np.float32)
        for row, query in enumerate(queries):
            if found := words(query):
                scores_BN[row] = self._index.get_scores(found)
        return scores_BN
