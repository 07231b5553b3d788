"""Titles as unit vectors, ranked by cosine: R(Q, D) of the paper over a whole collection."""

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np

from schemas.errors import StageError
from schemas.stage import Progress, silent
from schemas.words import normalise

Side = Literal["query", "document"]

# Texts encoded between two reports of progress; an encoder makes its own batches within.
_CHUNK_TEXTS = 32_768


class Encoder(Protocol):
    """Anything that turns texts into vectors: `training.model.Model`."""

    def encode(self, texts: Sequence[str], side: Side) -> np.ndarray:
        """float32 [texts, dimensions]; every text has at least one word."""


def unit_vectors(
    encoder: Encoder, texts: Sequence[str], side: Side, *, what: str = "encode", progress: Progress = silent
) -> np.ndarray:
    """The embeddings of texts scaled to length 1, float32 [texts, dimensions], so that a dot product is a
    cosine.

    A zero vector stays zero: its similarity to anything is 0. Raises StageError for a vector that is not
    finite.
    """
    chunks = []
    for start in range(0, len(texts), _CHUNK_TEXTS):
        progress(what, start, len(texts))
        chunks.append(_unit(encoder.encode(texts[start : start + _CHUNK_TEXTS], side)))
    progress(what, len(texts), len(texts))
    return np.concatenate(chunks) if chunks else np.empty((0, 0), np.float32)


def title_vectors(
    encoder: Encoder, titles: Sequence[str], *, progress: Progress = silent
) -> tuple[np.ndarray, np.ndarray]:
    """(unit vectors of the distinct titles, float32 [distinct, dimensions]; the vector's row for each title, int64)."""
    row_of: dict[str, int] = {}
    text_of_N = np.array([row_of.setdefault(normalise(title), len(row_of)) for title in titles], np.int64)
    return unit_vectors(encoder, list(row_of), "document", what="encode titles", progress=progress), text_of_N


class TitleEmbeddings:
    """Cosines of a query and every title of a collection.

    Each distinct title is encoded once, so documents of one title have exactly one score.
    """

    def __init__(self, encoder: Encoder, titles: Sequence[str], *, progress: Progress = silent) -> None:
        self._encoder = encoder
        self._vectors_TD, self._text_of_N = title_vectors(encoder, titles, progress=progress)

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """The cosine of each query and title, float32 [queries, titles]."""
        return (unit_vectors(self._encoder, queries, "query") @ self._vectors_TD.T)[:, self._text_of_N]


def _unit(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise StageError(asked=f"{len(vectors):,} texts were to be encoded", found="an embedding is not finite",
                         follows="it could be compared with nothing",
                         do="train again with a smaller step, and look at the curve of its loss")  # fmt: skip
    return np.divide(vectors, lengths, out=np.zeros(vectors.shape), where=lengths > 0).astype(np.float32)
