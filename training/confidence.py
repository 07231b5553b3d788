"""How sure a model is that two texts are of a class, such as duplicates: a number for each pair of embeddings."""

from collections.abc import Sequence

import numpy as np
import torch

from schemas.errors import UsageError
from training.beside_tower import head_of_model, is_beside
from training.ensemble import Ensemble
from training.model import Model
from training.parameters import tower_name
from training.ranking.rerank import Confidence
from training.threads import alone


def confidence_of(model: Model | Ensemble, class_name: str | None = None) -> Confidence:
    """The probability of a class (of two the second, unless it is named) for pairs of embeddings, float64 [pairs].

    The query is the first text of a pair. Raises UsageError for a model that classifies no pairs, and where it is not
    said which class.
    """
    asked = "documents were to be ranked by how sure a model is"
    if isinstance(model, Ensemble) or model.layout.outputs.unit != "pairs" or model.similarity != "euclidean":
        raise UsageError(asked=asked, found="this model was not trained to tell pairs apart by the terms of W2",
                         do="train one with objective = classify and features = w2")  # fmt: skip
    outputs = model.layout.outputs
    head, at = head_of_model(model.recipe, outputs), _place(asked, outputs.classes, class_name)
    _, parts = model.layout.split(model.towers[tower_name(model.recipe, "query")])
    of_head = {name: part.float() for name, part in parts.items() if is_beside(name)}

    def confidence(first_KD: np.ndarray, second_KD: np.ndarray) -> np.ndarray:
        vectors = tuple(torch.from_numpy(np.array(side, np.float32)) for side in (first_KD, second_KD))
        with alone(), torch.no_grad():  # not worth a pool
            logits_KC, _ = head.forward(vectors, of_head, None)
            return torch.softmax(logits_KC.double(), dim=1)[:, at].numpy()

    return confidence


def _place(asked: str, classes: Sequence[str], class_name: str | None) -> int:
    if class_name is None and len(classes) == 2:
        return 1
    if class_name not in classes:
        raise UsageError(asked=asked, found=f"the model tells {len(classes)} classes apart, and none of them is named",
                         do=f"name one of {', '.join(classes)}")  # fmt: skip
    return classes.index(class_name)
