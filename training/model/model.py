"""A model, the output of training and the input of everything after it; and ensembles of several. Their folder:
model_folder.

An ensemble has the concatenated unit vectors of its members, so the cosine is the mean of theirs. The mean of m members
that agree on a text's direction, each with errors of its own, errs less than each: other seeds of one recipe, and even
more so other towers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import prod, sqrt
from typing import Any

import numpy as np
import torch

from schemas.errors import StageError, UsageError, require_major
from schemas.manifest import Outcome, Request
from schemas.release import Similarity
from schemas.stage import StageResult, open_result, run_stage
from schemas.text_contract import CONTRACT_VERSION, UNICODE_VERSION
from training.compute.threads import alone, compute_threads
from training.model.compiled_model import CompiledModel, Empty, encodable, require_side
from training.model.embedding import Side, unit
from training.model.encoder import CPU, Encoder, encode_batch
from training.model.kernel_towers import CompiledTower, can_encode
from training.model.model_folder import (
    SCHEMA_VERSION,
    ShapesDiffer,
    read_description,
    read_weights,
    reading_model,
    write_files,
)
from training.model.parameters import Layout, Outputs, layout_of, tower_of
from training.model.recipe import Recipe, tower_name
from training.towers.text_batch import text_batch
from training.towers.text_table import CONTRACT_VERSION as WORDS_VERSION
from training.towers.text_table import TextTable, grouped_order

BATCH_TEXTS = 1_024


@dataclass(frozen=True, kw_only=True)
class Model:
    """A trained model: its towers, and the conditions under which texts mean the same to it as in training."""

    recipe: Recipe
    layout: Layout
    towers: Mapping[str, torch.Tensor]  # by name, all parameters as parameters lays them out
    text_contract: Mapping[str, Any]

    @property
    def dimensions(self) -> int:
        return self.encoder.dimensions

    def encode(self, texts: Sequence[str], side: Side, *, empty: Empty = "error") -> np.ndarray:
        """The embeddings of texts, float32 [texts, dimensions], in their order; not normalised to length 1.

        A text without a word has no embedding: `empty` error raises UsageError, zero gives the zero vector, whose
        similarity to anything is 0.
        """
        if self.compiled:
            return self.compiled.encode(texts, side, empty=empty)
        require_side(side)
        return encode_table(self.encoder, encodable(texts, self.recipe, self.layout.word_rows, empty), side)

    @property
    def similarity(self) -> Similarity:
        """How its vectors are compared: as its objective compared them in training."""
        return self.recipe.objective.similarity

    @property
    def word_share(self) -> float:
        """The share of the words' own matches in a score (ranking.word_matches)."""
        return self.recipe.clicks.word_share

    @property
    def num_parameters(self) -> int:
        """The number of values in all its towers."""
        return len(self.towers) * sum(prod(shape) for shape in self.layout.shapes.values())

    @property
    def encoder(self) -> Encoder:
        """Its towers, for a forward pass."""
        return Encoder.of(self.recipe, self.layout, self.towers)

    @cached_property
    def compiled(self) -> CompiledModel | None:
        """This model on the compiled path, prepared at the first text; None if the kernels do not support it."""
        if not can_encode(self.recipe):
            return None
        rows = self.layout.word_rows
        towers = {
            name: CompiledTower(self.recipe, *self.layout.split_arrays(matrix), table_rows=rows.num_rows)
            for name, matrix in self.towers.items()
        }
        return CompiledModel(recipe=self.recipe, word_rows=rows, towers=towers, text_contract=self.text_contract)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ensemble:
    """An ensemble of models with one text contract."""

    members: tuple[Model, ...]

    @property
    def similarity(self) -> Similarity:
        """How its vectors are compared; `combine` accepts no member that compares by distance."""
        return "cosine"

    @property
    def dimensions(self) -> int:
        return sum(member.dimensions for member in self.members)

    @property
    def word_share(self) -> float:
        return sum(member.word_share for member in self.members) / len(self.members)

    @property
    def num_parameters(self) -> int:
        return sum(member.num_parameters for member in self.members)

    @property
    def text_contract(self) -> Mapping[str, Any]:
        return self.members[0].text_contract

    def encode(self, texts: Sequence[str], side: Side, *, empty: Empty = "error") -> np.ndarray:
        """As `Model.encode`, but of length 1: each member's unit vector divided by √m."""
        parts = [unit(member.encode(texts, side, empty=empty)) for member in self.members]
        return np.concatenate(parts, axis=1) / np.float32(sqrt(len(parts)))


def load_model(folder: str) -> Model:
    """The model in a folder (the data folder of a train stage, or `model/` of a release).

    Raises StageError if it is missing, damaged or holds several, UnknownVersionError for another major version of the
    model or of the text contract.
    """
    model = load_encoder(folder)
    if isinstance(model, Ensemble):
        raise StageError(
            f"The model in {folder} is an ensemble of {len(model.members)} models.", "Give the folder of one of them."
        )
    return model


def load_encoder(folder: str) -> Model | Ensemble:
    """The content of a model folder. Raises as `load_model`."""
    with reading_model(folder):
        description = read_description(folder)
        weights, members = read_weights(folder), description.get("members")
        if members is None:
            return _model(description, weights)
        if not members or {name.partition(".")[0] for name in weights} != {str(at) for at in range(len(members))}:
            raise ShapesDiffer
        of_member: list[dict[str, np.ndarray]] = [{} for _ in members]
        for name, array in weights.items():
            at, _, name_there = name.partition(".")
            of_member[int(at)][name_there] = array
        return Ensemble(members=tuple(map(_model, members, of_member)))


def _model(description: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> Model:
    contract = description["text_contract"]
    recipe = Recipe(**description["recipe"])
    if "words" in contract:
        require_major("the model's contract of words", contract["words"]["version"], WORDS_VERSION)
    outputs, words = Outputs.from_json(description.get("outputs")), description.get("words", ())
    layout = layout_of(recipe, contract["table_rows"], outputs, words)
    if layout.word_rows.text_contract().get("words", {}).get("sha256") != contract.get("words", {}).get("sha256"):
        raise ValueError("the words are not those of the text contract")
    shapes = {f"{name}.{part}": shape for name in recipe.objective.towers for part, shape in layout.shapes.items()}
    if {name: array.shape for name, array in weights.items()} != shapes:
        raise ShapesDiffer
    tensors = {name: torch.from_numpy(array) for name, array in weights.items()}
    towers = {
        name: layout.join(tensors[f"{name}.W"], {part: tensors[f"{name}.{part}"] for part, _ in layout.parts})
        for name in recipe.objective.towers
    }
    return Model(recipe=recipe, layout=layout, towers=towers, text_contract=contract)


def write_model(folder: str, recipe: Recipe, layout: Layout, towers: Mapping[str, torch.Tensor]) -> None:
    """Write a model's weights, then its description."""
    write_files(folder, *_stored_form(recipe, layout, towers))


def write_ensemble(folder: str, members: Sequence[Model]) -> None:
    """Write an ensemble as one model folder."""
    weights: dict[str, np.ndarray] = {}
    descriptions = []
    for at, member in enumerate(members):
        arrays, description = _stored_form(member.recipe, member.layout, member.towers)
        weights |= {f"{at}.{name}": array for name, array in arrays.items()}
        descriptions.append(description | {"text_contract": dict(member.text_contract)})
    description = {
        "schema_version": SCHEMA_VERSION,
        "members": descriptions,
        "text_contract": dict(members[0].text_contract),
        "dimensions": sum(member["dimensions"] for member in descriptions),
        "parameters": sum(member["parameters"] for member in descriptions),
    }
    write_files(folder, weights, description)


def _stored_form(
    recipe: Recipe, layout: Layout, towers: Mapping[str, torch.Tensor]
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """(a model's weights by name, its description), as in its folder."""
    weights: dict[str, np.ndarray] = {}
    for tower, matrix in towers.items():
        table, parts = layout.split_arrays(matrix.cpu())
        weights |= {f"{tower}.{name}": array for name, array in {"W": table, **parts}.items()}
    rows = layout.word_rows
    contract = {"trigrams": CONTRACT_VERSION, "unicode": UNICODE_VERSION, "table_rows": rows.trigram_rows}
    return weights, {
        "schema_version": SCHEMA_VERSION,
        "recipe": asdict(recipe),
        "text_contract": contract | rows.text_contract(),
        "dimensions": tower_of(recipe).dimensions,
        "outputs": asdict(layout.outputs),
        "parameters": sum(array.size for array in weights.values()),
        **({"words": rows.words} if rows.words else {}),
    }


def encode_table(encoder: Encoder, table: TextTable, side: str) -> np.ndarray:
    """The embeddings of all texts of a table, float32 [texts, dimensions]; zero for a text without a word.

    The table's words are limited as the recipe says.
    """
    if can_encode(encoder.recipe) and encoder.device == CPU:
        return _compiled(encoder, table, side).encode(table)
    vectors = np.zeros((len(table), encoder.dimensions), np.float32)
    lengths = table.words.lengths
    by_length = grouped_order(lengths)
    by_length = by_length[np.count_nonzero(lengths == 0) :]

    def encode_some(start: int) -> None:
        index = by_length[start : start + BATCH_TEXTS]
        batch = text_batch([(table, index)]).to(encoder.device.place)
        vectors[index] = encode_batch(batch, side, encoder).cpu().numpy()

    batches = range(0, len(by_length), BATCH_TEXTS)
    if len(batches) == 1:  # a query being served: not worth a pool
        with alone():
            encode_some(0)
    elif batches:
        with compute_threads(min(len(batches), len(os.sched_getaffinity(0)))) as threads:
            list(threads.map(encode_some, batches))
    return vectors


def _compiled(encoder: Encoder, table: TextTable, side: str) -> CompiledTower:
    """A side's tower with the rows that the table's words have, wherever the encoder takes them from."""
    layout = encoder.layout
    used = np.zeros(layout.table_rows, bool)
    used[table.trigrams.values] = True
    rows = np.flatnonzero(used)
    place = np.zeros(layout.table_rows, np.int32)
    place[rows] = np.arange(len(rows))
    name = tower_name(encoder.recipe, side)
    table_RG = encoder.table_at(name, torch.from_numpy(rows)).numpy()
    parts = {part: values.numpy() for part, values in encoder.parts[name].items()}
    return CompiledTower(encoder.recipe, table_RG, parts, table_rows=layout.table_rows, place=place)


STAGE_VERSION = 1


def combine(models: Sequence[str], *, store: str) -> StageResult:
    """The ensemble of these models (folders that `train` made), in any order.

    Writes a model folder to STORE/combine/DIGEST; evaluate, compare, publish and search read it like any model. Raises
    UsageError for fewer than two, a repeated one, models of different text contracts, or one that compares by distance,
    and StageError for one that is damaged or is itself combined.
    """
    trained = sorted((open_result(model) for model in models), key=lambda result: result.manifest.digest)
    digests = [result.manifest.digest for result in trained]
    if len(set(digests)) < max(2, len(digests)):
        problem = "An ensemble has at least two models." if len(digests) < 2 else "One of the models is given twice."
        raise UsageError(problem, "Give different models, of other seeds or other recipes.")
    request = Request(stage="combine", stage_version=STAGE_VERSION, config={}, inputs={"models": digests})

    def produce(folder: str) -> Outcome:
        members = [load_model(result.data) for result in trained]
        if len({str(sorted(member.text_contract.items())) for member in members}) > 1:
            raise UsageError(
                "The models are trained on different text contracts or table sizes: a text would not mean the same to"
                " all of them.",
                "Train them on shards of one build.",
            )
        if any(member.similarity != "cosine" for member in members):
            raise UsageError(
                "One of the models compares by distance, and a mean of cosines and distances means nothing.",
                "Combine models that compare by cosine.",
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
