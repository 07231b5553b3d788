"""Similarities by words alone: the cosine of TF-IDF vectors, and BM25 made symmetric.

Words are those of the text contract. How rare a word is, and the mean length, come from the distinct training sentences
alone; a word that none of them has is as rare as a word can be.

    TF-IDF: weight tf * (ln((1 + N) / (1 + df)) + 1), cosine of the two vectors
    BM25:   (s(a, b) + s(b, a)) / (s(a, a) + s(b, b)), with s as bm25 scores a query and a title

BM25 has no upper end, and asks more of a long query: divided by what each text scores against itself it is 1 for two
texts of the same words and 0 for texts that share none, so that one threshold does for all lengths.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import scipy.sparse

from schemas.text_contract import words
from training.ranking.bm25 import K1, B
from training.ranking.term_counts import count_terms


class LexicalSimilarity:
    """Both similarities of pairs of texts. `texts`: those of training first, `num_training` of them."""

    def __init__(self, texts: Sequence[str], num_training: int) -> None:
        counts = count_terms(texts)
        entries = (counts.counts.astype(np.float64), (counts.title_of, counts.word_of.astype(np.int32)))
        self._tf = scipy.sparse.csr_array(entries, shape=(len(texts), max(1, len(counts.vocabulary))))
        of_training = counts.word_of[counts.title_of < num_training]
        self._df = np.bincount(of_training, minlength=self._tf.shape[1])
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


class NaiveBayes:
    """Multinomial naive Bayes over words, add-one smoothing: what a labelled text is compared with.

        log p(c | text) = log p(c) + Σ over its words of log (n(w, c) + 1) / (n(c) + V) + a constant of the text

    Words that no training text has say nothing. texts: of training, with their classes, int [texts].
    """

    def __init__(self, texts: Sequence[str], labels: np.ndarray, num_classes: int) -> None:
        counts = [Counter[str]() for _ in range(num_classes)]
        for text, label in zip(texts, labels.tolist(), strict=True):
            counts[label].update(words(text))
        self._row_of = {word: row for row, word in enumerate(sorted(set().union(*counts)))}
        seen_VC = np.zeros((len(self._row_of), num_classes))
        for label, of_class in enumerate(counts):
            for word, times in of_class.items():
                seen_VC[self._row_of[word], label] = times
        self._word_VC = np.log((seen_VC + 1) / (seen_VC.sum(axis=0) + len(seen_VC)))
        share_C = np.bincount(labels, minlength=num_classes) / len(labels)
        self._class_C = np.log(share_C, out=np.full(num_classes, -np.inf), where=share_C > 0)

    def probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """p of each class, float64 [texts, classes]."""
        score_NC = np.tile(self._class_C, (len(texts), 1))
        for at, text in enumerate(texts):
            score_NC[at] += self._word_VC[[self._row_of[w] for w in words(text) if w in self._row_of]].sum(axis=0)
        score_NC -= score_NC.max(axis=1, keepdims=True)
        likelihood_NC = np.exp(score_NC)
        return likelihood_NC / likelihood_NC.sum(axis=1, keepdims=True)
