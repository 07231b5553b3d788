"""Similarities by words alone: the cosine of TF-IDF vectors, and BM25 made symmetric.

Words are those of the text contract. How rare a word is, and the mean length, come from the distinct training sentences
alone; a word that none of them has is as rare as a word can be.

    TF-IDF: weight tf * (ln((1 + N) / (1 + df)) + 1), cosine of the two vectors
    BM25:   (s(a, b) + s(b, a)) / (s(a, a) + s(b, b)), with s as training.ranking.bm25 scores a query and a title

BM25 has no upper end, and asks more of a long query: divided by what each text scores against itself it is 1 for two
texts of the same words and 0 for texts that share none, so that one threshold does for all lengths.
"""

from collections.abc import Sequence

import numpy as np
import scipy.sparse

from training.ranking.bm25 import K1, B
from training.ranking.term_counts import count_terms


class LexicalSimilarity:
    """Both similarities of pairs of texts. `texts`: those of training first, `num_training` of them."""

    def __init__(self, texts: Sequence[str], num_training: int) -> None:
        counts = count_terms(texts)
        entries = (counts.counts.astype(np.float64), counts.word_of, counts.starts)
        self._tf = scipy.sparse.csr_array(entries, shape=(len(texts), max(1, len(counts.vocabulary))))
        self._df = np.bincount(counts.word_of[: counts.starts[num_training]], minlength=self._tf.shape[1])
        self._num_training = num_training
        self._lengths = counts.lengths

    def tf_idf(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The cosine of each pair of texts, given by their places, float64 [pairs]."""
        idf = np.log((1 + self._num_training) / (1 + self._df)) + 1
        weights = self._tf @ scipy.sparse.diags_array(idf)
        dot, of_first, of_second = (_dot(weights, a, b) for a, b in ((first, second), (first, first), (second, second)))
        return dot / np.sqrt(of_first * of_second)

    def bm25(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """Symmetric BM25 of each pair of texts, given by their places, float64 [pairs]."""
        idf = np.log1p((self._num_training - self._df + 0.5) / (self._df + 0.5))
        mean_words = self._lengths[: self._num_training].mean()
        saturation = K1 * (1 - B + B * self._lengths / mean_words)
        parts = self._tf.copy()
        parts.data = parts.data / (parts.data + np.repeat(saturation, np.diff(parts.indptr)))
        parts = parts @ scipy.sparse.diags_array(idf)
        of_each = np.asarray(self._tf.multiply(parts).sum(axis=1)).ravel()
        across = _dot(self._tf, first, second, parts) + _dot(self._tf, second, first, parts)
        return across / (of_each[first] + of_each[second])


def _dot(
    rows: scipy.sparse.csr_array, a: np.ndarray, b: np.ndarray, others: scipy.sparse.csr_array | None = None
) -> np.ndarray:
    """The dot product of row a[i] and row b[i] (of `others`, if given) for each i, float64."""
    return np.asarray(rows[a].multiply((rows if others is None else others)[b]).sum(axis=1)).ravel()
