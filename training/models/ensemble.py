"""Ensembles: the members' unit vectors concatenated, so that the cosine is the mean of theirs.

Of m members that agree on a text's direction, each with errors of its own, the mean errs less than each: other seeds of
one recipe, and more so other towers. It is stored as a model folder, whose two files hold every member:

model.safetensors   0.query.W, ... of the first member, 1.query.W, ... of the second
model.json          members: the description of each (model)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from schemas.errors import UsageError
from schemas.manifest import Outcome, Request
from schemas.release import Similarity
from schemas.stage import StageResult, open_result, run_stage
from training.models.model import SCHEMA_VERSION, Model, as_stored, load_models, write_folder
from training.ranking.embedding import unit


@dataclass(frozen=True, kw_only=True, slots=True)
class Ensemble:
    """An ensemble of models with one text contract."""

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

        A text without a word: as model.encode.
        """
        parts = [unit(member.encode(texts, side, empty=empty)) for member in self.members]
        return np.concatenate(parts, axis=1) / np.float32(math.sqrt(len(parts)))


def load_encoder(folder: str) -> Model | Ensemble:
    """What a model folder holds. Raises as model.load_model."""
    models, several = load_models(folder)
    return Ensemble(members=models) if several else models[0]


def write_ensemble(folder: str, members: Sequence[Model]) -> None:
    """Write an ensemble as one model folder."""
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


# Combine: trained models -> one model that is their ensemble.
#
#     combine(["store/train/DIGEST", "store/train/DIGEST"], store="store")
#
# Writes model's two files to STORE/combine/DIGEST; evaluate, compare, publish and search read it as any model.


STAGE_VERSION = 1


def combine(models: Sequence[str], *, store: str) -> StageResult:
    """The model of all these models (folders that `train` made), whatever their order.

    Raises UsageError for fewer than two, one given twice, models of different text contracts, or one that compares
    by distance, and StageError for one that is damaged or is itself combined.
    """
    trained = sorted((open_result(model) for model in models), key=lambda result: result.manifest.digest)
    digests = [result.manifest.digest for result in trained]
    asked = f"{len(models)} models were to be combined"
    if len(set(digests)) < max(2, len(digests)):
        found = "there must be at least two" if len(digests) < 2 else "one of them is there twice"
        raise UsageError(asked=asked, found=found, do="give different models, of other seeds or other recipes")
    request = Request(stage="combine", stage_version=STAGE_VERSION, config={}, inputs={"models": digests})

    def produce(folder: str) -> Outcome:
        from training.models.model import load_model

        members = [load_model(result.data) for result in trained]
        if len({str(sorted(member.text_contract.items())) for member in members}) > 1:
            raise UsageError(
                asked=asked,
                found="they were trained on different text contracts or table sizes",
                follows="a text would not mean the same to all of them",
                do="train them on shards of one build",
            )
        if any(member.similarity != "cosine" for member in members):
            raise UsageError(
                asked=asked,
                found="one of them compares by distance",
                follows="a mean of cosines and distances means nothing",
                do="combine models that compare by cosine",
            )
        write_ensemble(folder, members)
        labels = {name: value for result in trained for name, value in result.manifest.outcome.labels.items()}
        return Outcome(
            counts={"models": len(members), "parameters": sum(member.num_parameters for member in members)},
            metrics={
                "members": [member.recipe.name for member in members],
                "dimensions": sum(member.dimensions for member in members),
                "train_seconds": sum(result.manifest.duration_seconds for result in trained),
            },
            labels=labels,
        )

    return run_stage(store, request, produce)
