"""BM25, a Dirichlet language model and PLSA written plainly on SciPy's sparse matrices: what a notebook would hold."""

from collections.abc import Callable, Sequence

import numpy as np
from scipy.sparse import csr_matrix

from clicktower.schemas.lexical_contract import Analyser

Scores = Callable[[Sequence[str]], np.ndarray]
Terms = Callable[[str], Sequence[str]]

TERMS = Analyser().terms


def _matrix(texts: Sequence[str], vocabulary: dict[str, int], *, grow: bool, terms: Terms = TERMS) -> csr_matrix:
    rows, columns = [], []
    for row, text in enumerate(texts):
        for word in terms(text):
            if grow or word in vocabulary:
                columns.append(vocabulary.setdefault(word, len(vocabulary)))
                rows.append(row)
    shape = (len(texts), len(vocabulary))
    return csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape=shape)


def bm25(titles: Sequence[str], k1: float, b: float, terms: Terms = TERMS) -> Scores:
    vocabulary: dict[str, int] = {}
    counts = _matrix(titles, vocabulary, grow=True, terms=terms)
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    df = np.bincount(counts.indices, minlength=counts.shape[1])
    norm = k1 * (1 - b + b * lengths / lengths.mean())
    of_entry = np.repeat(norm, np.diff(counts.indptr))
    idf = np.log(1 + (len(titles) - df + 0.5) / (df + 0.5))
    counts.data = (idf[counts.indices] * counts.data / (counts.data + of_entry)).astype(np.float32)
    by_word = counts.T.tocsr()
    return lambda queries: (_matrix(queries, vocabulary, grow=False, terms=terms) @ by_word).toarray()


def language_model(titles: Sequence[str], mu: float) -> Scores:
    vocabulary: dict[str, int] = {}
    counts = _matrix(titles, vocabulary, grow=True)
    smoothed = mu * np.asarray(counts.sum(axis=0)).ravel() / counts.sum()
    log_lengths = np.log(np.asarray(counts.sum(axis=1)).ravel() + mu)
    counts.data = np.log1p(counts.data / smoothed[counts.indices]).astype(np.float32)
    by_word = counts.T.tocsr()

    def scores(queries: Sequence[str]) -> np.ndarray:
        asked = _matrix(queries, vocabulary, grow=False)
        lengths = np.asarray(asked.sum(axis=1))
        return (asked @ by_word).toarray() - lengths * log_lengths + (asked @ np.log(smoothed))[:, None]

    return scores


def plsa(
    titles: Sequence[str], topics_VZ: np.ndarray, iterations: int, prior: float, background: float
) -> tuple[Scores, np.ndarray]:
    """(the scores, p(topic | title)) from given first topics: the same steps, the products by SciPy."""
    vocabulary: dict[str, int] = {}
    counts = _matrix(titles, vocabulary, grow=True)
    shares = np.asarray(counts.sum(axis=0)).ravel() / counts.sum()
    title_of = np.repeat(np.arange(len(titles)), np.diff(counts.indptr))
    titles_DZ = np.full((len(titles), topics_VZ.shape[1]), 1 / topics_VZ.shape[1], np.float32)
    for _ in range(iterations):
        share = np.empty(counts.nnz, np.float32)
        for first in range(0, counts.nnz, 1 << 16):  # the whole would be a quarter of a gigabyte
            at = slice(first, first + (1 << 16))
            share[at] = (topics_VZ[counts.indices[at]] * titles_DZ[title_of[at]]).sum(axis=1)
        ratios = csr_matrix((counts.data / share, counts.indices, counts.indptr), counts.shape)
        grown_VZ = topics_VZ * (ratios.T @ titles_DZ)
        titles_DZ = titles_DZ * (ratios @ topics_VZ) + np.float32(prior)
        titles_DZ /= titles_DZ.sum(axis=1, keepdims=True)
        topics_VZ = grown_VZ / grown_VZ.sum(axis=0)

    def scores(queries: Sequence[str]) -> np.ndarray:
        asked = _matrix(queries, vocabulary, grow=False)
        used = np.unique(asked.indices)
        mixed = background * shares[used][:, None] + (1 - background) * (topics_VZ[used] @ titles_DZ.T)
        return asked[:, used] @ np.log(mixed.astype(np.float32))

    return scores, titles_DZ
