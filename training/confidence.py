"""How sure a model's head is that two texts are of a class, such as duplicates: a number for each pair of vectors."""

from collections.abc import Sequence

import numpy as np

from schemas.errors import UsageError
from training.ensemble import Ensemble
from training.labelled.classifying import of_vectors
from training.model import Model
from training.ranking.rerank import Confidence
from training.threads import alone


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
