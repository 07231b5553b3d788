"""A teacher, whose ranking a model learns: a trained model, an ensemble, or another encoder's vectors.

    p(c) = exp(γ_t R_t(Q, D_c)) / Σ_k exp(γ_t R_t(Q, D_k))

over the candidates that a pair's own loss has, the clicked one among them; R_t is the teacher's cosine. How far a loss
follows p is in click_loss. Every text that training can meet is encoded once, before it begins, and every
worker encodes all of them: p is a function of the teacher and the micro-batch, whoever computes it.

Shapes: B pairs, C candidates, N documents, D dimensions of the teacher.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa

from schemas.errors import UsageError
from training.data.pairs import Pairs, Texts
from training.data.shard_data import Shard, ShardData
from training.data.text_batch import TextTable
from training.models.ensemble import Ensemble, load_encoder
from training.models.model import Model
from training.models.text_vectors import SUFFIX, TextVectors, read_text_vectors
from training.ranking.embedding import unit
from training.recipes.objectives import Fixed, Teaching
from training.recipes.recipe import Recipe

Vectors = tuple[TextTable, np.ndarray]  # float32 [its texts, D] of length 1; of a text that is never asked for, zero


@dataclass(frozen=True, kw_only=True, slots=True)
class Teacher:
    """What it makes of the texts of the training shards and of the pool."""

    queries: Sequence[Vectors]
    titles: Sequence[Vectors]
    gamma: float  # γ_t

    def taught(self, pairs: Pairs) -> Pairs:
        """These pairs, with p of their candidates; 0 where there is none."""
        query_BD = _vectors(self.queries, pairs.queries)
        document_ND = np.concatenate([_vectors(self.titles, part) for part in pairs.documents])
        # No matrix product of a library's, whose rounding may depend on its threads.
        score_BC = np.einsum("bd,bcd->bc", query_BD, document_ND[pairs.candidates], optimize=False)
        return replace(pairs, taught=probabilities(np.where(pairs.candidates < 0, -np.inf, score_BC), self.gamma))


def probabilities(score_BC: np.ndarray, gamma: float) -> np.ndarray:
    """softmax(γ_t R_t), float32 [B, C]. A score of minus infinity is no candidate: 0."""
    scaled_BC = score_BC.astype(np.float64) * gamma
    exponentials_BC = np.exp(scaled_BC - scaled_BC.max(axis=1, keepdims=True))
    shares_BC: np.ndarray = exponentials_BC / exponentials_BC.sum(axis=1, keepdims=True)
    return shares_BC.astype(np.float32)


def teacher_of(path: str, data: ShardData, recipe: Recipe) -> Teacher:
    """The teacher in a model folder or a file of vectors (text_vectors).

    Raises as model.load_models and read_text_vectors, and UsageError for a model by distance.
    """
    taught = recipe.clicks.teacher or Teaching()
    model = read_text_vectors(path) if path.endswith(SUFFIX) else load_encoder(path)
    if model.similarity != "cosine":
        raise UsageError(
            asked=f"{recipe.name} was to be taught by the model in {path}",
            found="it compares by distance",
            follows="its scores and the cosines that are learnt would not be alike",
            do="give a teacher that compares by cosine, trained on clicks",
        )
    of = partial(_encoded, model)
    pool = (data.pool_texts, of(data.pool_strings, data.pool, "document"))
    own = isinstance(recipe.clicks.negatives, Fixed)  # others are of the pool
    return Teacher(
        queries=[(shard.texts, of(shard.strings, shard.query, "query")) for shard in data.train],
        titles=[pool, *((shard.texts, of(shard.strings, _titles(shard, own), "document")) for shard in data.train)],
        gamma=taught.gamma,
    )


def _titles(shard: Shard, with_negatives: bool) -> np.ndarray:
    """The texts of a shard that its pairs may have as documents."""
    return np.append(shard.clicked, shard.negatives) if with_negatives else shard.clicked


def _encoded(
    model: Model | Ensemble | TextVectors,
    strings: pa.ChunkedArray | None,
    rows: np.ndarray,
    side: Literal["query", "document"],
) -> np.ndarray:
    """The unit vectors of some rows of texts, zero elsewhere (of which nothing is kept in memory)."""
    assert strings is not None, "read from shards"
    rows = np.unique(rows)
    vectors = np.zeros((len(strings), model.dimensions), np.float32)
    vectors[rows] = unit(model.encode(strings.take(rows).to_pylist(), side, empty="zero"))
    return vectors


def _vectors(encoded: Sequence[Vectors], texts: Texts) -> np.ndarray:
    """Those of some texts of one of the tables."""
    table, rows = texts
    vectors = next(vectors for known, vectors in encoded if known is table)
    return vectors[rows]
