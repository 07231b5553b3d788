"""The teacher of the click objective, whose ranking a model also learns: a trained model, an ensemble, or another
encoder's vectors (model.teacher).

    p(c) = exp(γ_t R_t(Q, D_c)) / Σ_k exp(γ_t R_t(Q, D_k))

over the candidates of a pair's own loss, including the clicked one; R_t is the teacher's cosine. click_loss defines how
far a loss follows p. Every text of training is encoded once, before it begins, by every worker: p is a function of the
teacher and the micro-batch alone.

Shapes: B pairs, C candidates, N documents, D dimensions of the teacher.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa

from clicktower.schemas.errors import UsageError
from clicktower.training.model.embedding import AnyEncoder, unit
from clicktower.training.model.model import load_encoder
from clicktower.training.model.objective_settings import Fixed, Teaching
from clicktower.training.model.recipe import Recipe
from clicktower.training.model.teacher import SUFFIX, TextVectors, read_text_vectors
from clicktower.training.towers.text_table import TextTable
from clicktower.training.trainer.shard_data import Pairs, ShardData, Texts

Vectors = tuple[TextTable, np.ndarray]  # float32 [its texts, D] of length 1; zero for a text that is never requested


@dataclass(frozen=True, kw_only=True, slots=True)
class Teacher:
    """The teacher's vectors of the texts of the training shards and of the pool."""

    queries: Sequence[Vectors]
    titles: Sequence[Vectors]
    gamma: float  # γ_t

    def taught(self, pairs: Pairs) -> Pairs:
        """These pairs, with p of their candidates; 0 for absent ones."""
        query_BD = _vectors(self.queries, pairs.queries)
        document_ND = np.concatenate([_vectors(self.titles, part) for part in pairs.documents])
        # Not a library's matrix product, whose rounding may depend on its threads.
        score_BC = np.einsum("bd,bcd->bc", query_BD, document_ND[pairs.candidates], optimize=False)
        return replace(pairs, taught=probabilities(np.where(pairs.candidates < 0, -np.inf, score_BC), self.gamma))


def probabilities(score_BC: np.ndarray, gamma: float) -> np.ndarray:
    """softmax(γ_t R_t), float32 [B, C]. A score of minus infinity is no candidate: 0."""
    scaled_BC = score_BC.astype(np.float64) * gamma
    exponentials_BC = np.exp(scaled_BC - scaled_BC.max(axis=1, keepdims=True))
    shares_BC: np.ndarray = exponentials_BC / exponentials_BC.sum(axis=1, keepdims=True)
    return shares_BC.astype(np.float32)


def teacher_of(path: str, data: ShardData, recipe: Recipe) -> Teacher:
    """The teacher in a model folder or a file of vectors (model.teacher).

    Raises as model.load_encoder and read_text_vectors, and UsageError for a model that compares by distance.
    """
    taught = recipe.clicks.teacher or Teaching()
    model = read_text_vectors(path) if path.endswith(SUFFIX) else load_encoder(path)
    if model.similarity != "cosine":
        raise UsageError(
            f"The teacher in {path} compares by distance: its scores are unlike the cosines that {recipe.name} learns.",
            "Give a teacher that compares by cosine, trained on clicks.",
        )
    encode = partial(_encoded, model)
    has_own_negatives = isinstance(recipe.clicks.negatives, Fixed)  # the others are in the pool
    titles = [np.append(shard.clicked, shard.negatives) if has_own_negatives else shard.clicked for shard in data.train]
    return Teacher(
        queries=[(shard.texts, encode(shard.strings, shard.query, "query")) for shard in data.train],
        titles=[
            (data.pool_texts, encode(data.pool_strings, data.pool, "document")),
            *((s.texts, encode(s.strings, rows, "document")) for s, rows in zip(data.train, titles, strict=True)),
        ],
        gamma=taught.gamma,
    )


def _encoded(
    model: AnyEncoder | TextVectors, strings: pa.ChunkedArray, rows: np.ndarray, side: Literal["query", "document"]
) -> np.ndarray:
    """The unit vectors of some rows of texts, zero elsewhere (of which nothing is kept in memory)."""
    rows = np.unique(rows)
    vectors = np.zeros((len(strings), model.dimensions), np.float32)
    vectors[rows] = unit(model.encode(strings.take(rows).to_pylist(), side, empty="zero"))
    return vectors


def _vectors(encoded: Sequence[Vectors], texts: Texts) -> np.ndarray:
    """The vectors of some texts of one of the tables."""
    table, rows = texts
    return next(vectors for table_known, vectors in encoded if table_known is table)[rows]
