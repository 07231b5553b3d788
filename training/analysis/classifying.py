"""A trained classifier's answers for labelled pairs or texts."""

import numpy as np
import torch

from clicktower.schemas.errors import UsageError
from clicktower.schemas.stage import Progress, silent
from clicktower.training.model.embedding import AnyEncoder
from clicktower.training.model.head import head_of_model
from clicktower.training.model.model import Model
from clicktower.training.ranking.hybrid import Confidence
from clicktower.training.towers.threads import alone
from clicktower.training.trainer.labelled_shards import LabelledData

AT_ONCE = 4_096  # rows


def refusal(model: Model, data: LabelledData) -> str:
    """Why a model cannot classify some labelled rows; empty if it can."""
    outputs = model.outputs
    if not outputs.classes:
        return "the model was not trained on labels"
    if outputs.unit != data.unit:
        return f"the model was trained on labelled {outputs.unit}, these are {data.unit}"
    if set(outputs.classes) != set(data.classes):
        ours, model_classes = (", ".join(classes) or "none" for classes in (data.classes, outputs.classes))
        return f"the classes of the model are {model_classes}, of these rows {ours}"
    return ""


def probabilities(
    model: Model, texts: list[str], sides: tuple[np.ndarray, ...], classes: tuple[str, ...], progress: Progress = silent
) -> np.ndarray:
    """p of each class for each row, float64 [rows, classes], with the classes in the requested order.

    `sides`: the rows as indices into `texts`, as in labelled_shards.LabelledRows.
    """
    result = classify_vectors(model, encoded_sides(model, texts, sides, progress))
    return result[:, [model.outputs.classes.index(name) for name in classes]]


def encoded_sides(
    model: Model, texts: list[str], sides: tuple[np.ndarray, ...], progress: Progress = silent
) -> tuple[np.ndarray, ...]:
    """The embedding of each row's texts, float32 [rows, d] for each side. Each text is read once."""
    used = np.unique(np.concatenate(sides))
    progress("encode", 0, len(used))
    vectors_Nd = model.encode([texts[i] for i in used.tolist()], "query")
    progress("encode", len(used), len(used))
    return tuple(vectors_Nd[np.searchsorted(used, side)] for side in sides)


def classify_vectors(model: Model, vectors: tuple[np.ndarray, ...]) -> np.ndarray:
    """p of each of the model's classes, float64 [rows, classes], given the embeddings of each side [rows, d]."""
    head = head_of_model(model.recipe, model.outputs)
    parts = model.encoder.parts["shared"]
    parts = {name: part.float() for name, part in parts.items() if name.startswith("head.")}
    chunks = []
    for start in range(0, len(vectors[0]), AT_ONCE):
        batch = tuple(torch.from_numpy(side[start : start + AT_ONCE]) for side in vectors)
        chunks.append(torch.softmax(head.logits(batch, parts).double(), dim=1).numpy())
    return np.concatenate(chunks) if chunks else np.zeros((0, len(model.outputs.classes)))


def confidence_of(model: AnyEncoder) -> Confidence:
    """The probability of the second of two classes for pairs of vectors, the query's first.

    Raises UsageError for a model that does not classify pairs, for one whose releases keep only unit vectors although
    its head needs lengths, and for one of more classes.
    """
    if not isinstance(model, Model) or model.outputs.unit != "pairs" or model.similarity != "euclidean":
        raise UsageError(
            "This model has no classifier by the distance that it searches by.",
            "Train one with objective = classify and features = w2.",
        )
    if (number := len(model.outputs.classes)) != 2:
        raise UsageError(
            f"The model tells {number} classes apart, and documents are ranked by the second of two.",
            "Train one on labels of two classes.",
        )

    def confidence(first_KD: np.ndarray, second_KD: np.ndarray) -> np.ndarray:
        with alone():  # so few pairs are not worth a pool
            return classify_vectors(model, (np.array(first_KD, np.float32), np.array(second_KD, np.float32)))[:, 1]

    return confidence
