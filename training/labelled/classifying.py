"""What a trained classifier (classify) says of labelled pairs or texts."""

import numpy as np
import torch

from schemas.stage import Progress, silent
from training.labelled.labelled_shards import LabelledData
from training.models.model import Model
from training.network.parameters import head_of_model
from training.towers import Parts

AT_ONCE = 4_096  # rows


def refused_because(model: Model, data: LabelledData) -> str:
    """Why a model cannot tell the classes of some labelled rows; empty where it can."""
    outputs = model.layout.outputs
    if not outputs.classes:
        return "the model was not trained on labels"
    if outputs.unit != data.unit:
        return f"the model was trained on labelled {outputs.unit}, these are {data.unit}"
    if set(outputs.classes) != set(data.classes):
        ours, its = (", ".join(classes) or "none" for classes in (data.classes, outputs.classes))
        return f"the classes of the model are {its}, of these rows {ours}"
    return ""


def probabilities(
    model: Model, texts: list[str], sides: tuple[np.ndarray, ...], classes: tuple[str, ...], progress: Progress = silent
) -> np.ndarray:
    """p of each class for each row, float64 [rows, classes], the classes in the order asked for.

    `sides`: the rows as places in `texts`, as labelled_shards.LabelledRows.
    """
    used = np.unique(np.concatenate(sides))
    progress("encode", 0, len(used))
    vectors_Nd = model.encode([texts[i] for i in used.tolist()], "query")
    progress("encode", len(used), len(used))
    found = of_vectors(model, tuple(vectors_Nd[np.searchsorted(used, side)] for side in sides))
    return found[:, [model.layout.outputs.classes.index(name) for name in classes]]


def of_vectors(model: Model, vectors: tuple[np.ndarray, ...]) -> np.ndarray:
    """p of each of the model's classes, float64 [rows, classes], given the embeddings of each side [rows, d]."""
    head = head_of_model(model.recipe, model.layout.outputs)
    parts = head_parts(model)
    chunks = []
    for start in range(0, len(vectors[0]), AT_ONCE):
        some = tuple(torch.from_numpy(side[start : start + AT_ONCE]) for side in vectors)
        chunks.append(torch.softmax(head.logits(some, parts).double(), dim=1).numpy())
    return np.concatenate(chunks) if chunks else np.zeros((0, len(model.layout.outputs.classes)))


def head_parts(model: Model) -> Parts:
    """The parameters of a model's head, float32."""
    parts = model.layout.split(model.towers["shared"])[1]
    return {name: part.float() for name, part in parts.items() if name.startswith("head.")}
