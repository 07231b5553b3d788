"""Several models as one: their unit vectors side by side, so that its cosine is the mean of theirs.

Of m members that agree on a text's direction, each with errors of its own, the mean errs less than each: other seeds of
one recipe, and more so other towers. It is stored as a model folder, whose two files hold every member:

model.safetensors   0.query.W, ... of the first member, 1.query.W, ... of the second
model.json          members: the description of each (training.model)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from schemas.similarity import Similarity
from training.model import SCHEMA_VERSION, Model, as_stored, load_models, write_folder
from training.ranking.embedding import unit


@dataclass(frozen=True, kw_only=True, slots=True)
class Ensemble:
    """Models of one text contract that encode side by side."""

    members: tuple[Model, ...]

    @property
    def similarity(self) -> Similarity:
        """How its vectors are compared; `combine` takes no member that is compared by distance."""
        return "cosine"

    @property
    def dimensions(self) -> int:
        return sum(member.dimensions for member in self.members)

    @property
    def num_parameters(self) -> int:
        return sum(member.num_parameters for member in self.members)

    @property
    def text_contract(self) -> Any:
        return self.members[0].text_contract

    def encode(
        self, texts: Sequence[str], side: Literal["query", "document"], *, empty: Literal["error", "zero"] = "error"
    ) -> np.ndarray:
        """Embeddings of length 1, float32 [texts, dimensions]: each member's unit vector divided by √m.

        A text without a word: as training.encode.encode.
        """
        parts = [unit(member.encode(texts, side, empty=empty)) for member in self.members]
        return np.concatenate(parts, axis=1) / np.float32(math.sqrt(len(parts)))


def load_encoder(folder: str) -> Model | Ensemble:
    """What a model folder holds. Raises as training.model.load_model."""
    models, several = load_models(folder)
    return Ensemble(members=models) if several else models[0]


def write_ensemble(folder: str, members: Sequence[Model]) -> None:
    """Write models side by side as one model folder."""
    tensors: dict[str, torch.Tensor] = {}
    descriptions = []
    for at, member in enumerate(members):
        weights, description = as_stored(member.recipe, member.layout, member.towers)
        tensors |= {f"{at}.{name}": tensor for name, tensor in weights.items()}
        descriptions.append(description | {"text_contract": dict(member.text_contract)})
    description = {
        "schema_version": SCHEMA_VERSION,
        "members": descriptions,
        "text_contract": dict(members[0].text_contract),
        "dimensions": sum(member["dimensions"] for member in descriptions),
        "parameters": sum(member["parameters"] for member in descriptions),
    }
    write_folder(folder, tensors, description)
