"""Titles as vectors, ranked over a whole collection by cosine, R(Q, D) of the paper, or by distance."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from clicktower.schemas.errors import StageError
from clicktower.schemas.release import Similarity
from clicktower.schemas.stage import Progress, silent
from clicktower.schemas.text_contract import normalise

Side = Literal["query", "document"]
Empty = Literal["error", "zero"]  # of a text without a word

# Texts encoded between two reports of progress; an encoder makes its own batches within.
_CHUNK_TEXTS = 32_768
_BLOCK_TITLES = 65_536  # in double precision at once
_LONGEST = 1e15  # the longest vector for distances


class TextEncoder(Protocol):
    """A protocol for anything that turns texts into vectors, such as `model.Model`."""

    @property
    def similarity(self) -> Similarity:
        """How its vectors are compared."""

    def encode(self, texts: Sequence[str], side: Side) -> np.ndarray:
        """float32 [texts, dimensions]; every text has at least one word."""


class AnyEncoder(TextEncoder, Protocol):
    """The content of a model folder: a model, an ensemble of `members`, or an imported encoder.

    It says which shares its words and the terms of the texts have of a score (title_ranking).
    """

    @property
    def word_share(self) -> float: ...

    @property
    def lexical_share(self) -> float: ...

    @property
    def dimensions(self) -> int: ...

    @property
    def num_parameters(self) -> int: ...

    @property
    def text_contract(self) -> Mapping[str, Any]: ...

    def encode(self, texts: Sequence[str], side: Side, *, empty: Empty = "error") -> np.ndarray:
        """As `model.Model.encode`."""


def members_of(encoder: AnyEncoder) -> tuple[Any, ...]:
    """The members of an ensemble; another encoder alone."""
    return getattr(encoder, "members", (encoder,))


def search_vectors(
    encoder: TextEncoder,
    texts: Sequence[str],
    side: Side,
    *,
    similarity: Similarity | None = None,
    what: str = "encode",
    progress: Progress = silent,
) -> np.ndarray:
    """The embeddings of texts for comparison by the encoder's similarity, or another, float32 [texts, dimensions].

    By cosine they have length 1 (see `unit`), by distance the encoder's length. Raises StageError for a vector that is
    not finite, or so long that float32 could not hold a squared distance.
    """
    scaled = unit if (similarity or encoder.similarity) == "cosine" else _bounded
    chunks = []
    for start in range(0, len(texts), _CHUNK_TEXTS):
        progress(what, start, len(texts))
        chunks.append(scaled(encoder.encode(texts[start : start + _CHUNK_TEXTS], side)))
    progress(what, len(texts), len(texts))
    return np.concatenate(chunks) if chunks else np.empty((0, 0), np.float32)


def distinct_texts(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """(the distinct normalised texts, the index of each text among them, int64), so that equal texts have equal
    scores.
    """
    row_of: dict[str, int] = {}
    text_of_N = np.array([row_of.setdefault(normalise(text), len(row_of)) for text in texts], np.int64)
    return list(row_of), text_of_N


class TitleEmbeddings:
    """Scores of a query and every title of a collection: cosines, or minus the distances.

    Each distinct title is encoded once, so documents with one title have exactly one score.
    """

    def __init__(self, encoder: TextEncoder, titles: Sequence[str], *, progress: Progress = silent) -> None:
        self._encoder = encoder
        distinct, self._text_of_N = distinct_texts(titles)
        self._vectors_TD = search_vectors(encoder, distinct, "document", what="encode titles", progress=progress)

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """The score of each query and title, float32 [queries, titles]."""
        queries_QD = search_vectors(self._encoder, queries, "query")
        if self._encoder.similarity == "cosine":
            return (queries_QD @ self._vectors_TD.T)[:, self._text_of_N]
        return minus_distances(queries_QD, self._vectors_TD)[:, self._text_of_N]


def minus_distances(queries_QD: np.ndarray, vectors_TD: np.ndarray) -> np.ndarray:
    """float32 [Q, T]; in double precision, so that rounding does not lose differences near the query."""
    queries = queries_QD.astype(np.float64)
    squares_QT = np.empty((len(queries_QD), len(vectors_TD)))
    for start in range(0, len(vectors_TD), _BLOCK_TITLES):
        block = slice(start, start + _BLOCK_TITLES)
        vectors = vectors_TD[block].astype(np.float64)
        squares_QT[:, block] = np.einsum("td,td->t", vectors, vectors) - 2 * (queries @ vectors.T)
    squares_QT += np.einsum("qd,qd->q", queries, queries)[:, None]
    return -np.sqrt(np.maximum(squares_QT, 0)).astype(np.float32)


def unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors scaled to length 1, float32; a zero vector stays zero. Raises StageError for one that is not finite."""
    lengths = _lengths(vectors, np.inf)
    return np.divide(vectors, lengths, out=np.zeros(vectors.shape), where=lengths > 0).astype(np.float32)


def _bounded(vectors: np.ndarray) -> np.ndarray:
    _lengths(vectors, _LONGEST)
    return vectors.astype(np.float32, copy=False)


def _lengths(vectors: np.ndarray, limit: float) -> np.ndarray:
    """float64 [vectors, 1], each below a limit."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    if not (lengths < limit).all():
        beyond = "" if limit == np.inf else f", or longer than {limit:g}"
        raise StageError(
            f"The embedding of one of {len(vectors):,} texts is not finite{beyond}.",
            "Train again with a smaller step, and look at the curve of its loss.",
        )
    return lengths


def scores_one_by_one(similarity: Similarity, vectors_KD: np.ndarray, query_D: np.ndarray) -> np.ndarray:
    """float32 [K]: each vector is processed alone and alike, so equal vectors have exactly equal scores.

    By distance it is computed from differences: that of equal vectors is then exactly 0, and those of near ones keep
    their precision. `keys_at_once` orders many vectors by |q - x|² = |q|² - 2 (q·x - |x|²/2) instead: a dot product and
    one more number per vector.
    """
    query_D = query_D.astype(np.float32, copy=False)
    if similarity == "cosine":
        return np.einsum("kd,d->k", vectors_KD, query_D)
    apart_KD = vectors_KD - query_D
    return np.float32(0) - np.sqrt(np.einsum("kd,kd->k", apart_KD, apart_KD))  # 0, not -0, for equal vectors


def half_squares(vectors_ND: np.ndarray) -> np.ndarray:
    """|x|²/2 of each vector, float32 [N]."""
    return np.einsum("nd,nd->n", vectors_ND, vectors_ND) / np.float32(2)


def keys_at_once(similarity: Similarity, vectors_ND: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Sort keys of the vectors for queries [Q, D], float32 [Q, N]: the order of the scores up to rounding."""
    if similarity == "cosine":
        return lambda queries_QD: queries_QD @ vectors_ND.T
    middle_D = vectors_ND.mean(axis=0)  # relative to the mean everything is shorter and rounds less
    moved_ND = vectors_ND - middle_D
    half_square_N = half_squares(moved_ND)
    return lambda queries_QD: (queries_QD - middle_D) @ moved_ND.T - half_square_N
