"""The nearest documents of a query in another order: by how sure a second scorer is, which sees both vectors.

Searching is by one number a pair that can be found fast; a head above the tower (network.head) tells better what it was
trained to tell, such as whether two questions ask the same, and says how sure it is.

Suffixes: K candidates, D dimensions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from schemas.errors import StageError, UsageError
from schemas.release import Similarity
from training.compute.threads import alone
from training.labelled.classifying import of_vectors
from training.models.model import Ensemble, Model
from training.ranking.embedding import scores_one_by_one

# (query vectors [K, D], document vectors [K, D]) -> a number from 0 to 1 for each pair, float64 [K]
Confidence = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reranked:
    at: int  # among the candidates
    id: str
    score: float  # what it was found by: its cosine, or minus its distance
    confidence: float


def rerank(
    query_D: np.ndarray,
    candidates_KD: np.ndarray,
    ids: Sequence[str],
    confidence: Confidence,
    *,
    similarity: Similarity = "euclidean",
) -> list[Reranked]:
    """The candidates, surest first; equally sure ones nearest first, and then by descending id as in a search.

    Raises StageError where a confidence is not a number from 0 to 1, ValueError where there is not one for each.
    """
    sure_K = np.asarray(confidence(np.broadcast_to(query_D, candidates_KD.shape), candidates_KD), np.float64)
    if sure_K.shape != (len(ids),):
        raise ValueError(f"{len(ids)} candidates were given {sure_K.shape} confidences")
    if not ((sure_K >= 0) & (sure_K <= 1)).all():
        raise StageError(
            asked=f"{len(ids):,} documents were to be ranked again",
            found="a confidence is not a number from 0 to 1",
            follows="they would be in no order that means anything",
            do="train again with a smaller step, and look at the curve of its loss",
        )
    score_K = scores_one_by_one(similarity, candidates_KD, query_D)
    found = [
        Reranked(at=at, id=id_, score=score, confidence=sure)
        for at, (id_, score, sure) in enumerate(zip(ids, score_K.tolist(), sure_K.tolist(), strict=True))
    ]
    return sorted(found, key=lambda one: (one.confidence, one.score, one.id), reverse=True)


def confidence_of(model: Model | Ensemble, class_name: str | None = None) -> Confidence:
    """The probability of a class (of two the second, unless one is named) for pairs of vectors, the query's first.

    Raises UsageError for a model that classifies no pairs or whose releases keep only directions, of length 1, where
    its head takes embeddings as they are; and where it is not said which class is wanted.
    """
    asked = "documents were to be ranked by how sure a model is"
    if isinstance(model, Ensemble) or model.layout.outputs.unit != "pairs" or model.similarity != "euclidean":
        raise UsageError(
            asked=asked,
            found="this model does not tell pairs apart by the distance that it searches by",
            do="train one with objective = classify and features = w2",
        )
    at = _place(asked, model.layout.outputs.classes, class_name)

    def confidence(first_KD: np.ndarray, second_KD: np.ndarray) -> np.ndarray:
        with alone():  # so few pairs are not worth a pool
            return of_vectors(model, (np.array(first_KD, np.float32), np.array(second_KD, np.float32)))[:, at]

    return confidence


def _place(asked: str, classes: Sequence[str], class_name: str | None) -> int:
    if class_name is None and len(classes) == 2:
        return 1
    if class_name not in classes:
        raise UsageError(
            asked=asked,
            found=f"the model tells {len(classes)} classes apart, and it was not said which of them is wanted",
            do=f"name one of {', '.join(classes)}",
        )
    return classes.index(class_name)
