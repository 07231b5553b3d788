"""A model and its folder: what training makes and everything after it reads; and ensembles of several.

model.safetensors   query.W [rows, columns] and the tower's other parts (query.W_rec, query.b, ...; training.towers),
                    document.* alike (or shared.* where both sides use one tower, with what an objective puts beside
                    it: shared.head.W_1, ...; parameters)
model.json          recipe, text contract (trigram contract, Unicode version, rows of trigrams), dimensions, outputs;
                    where some words have rows of their own, these words, and their digest in the text contract
curves.json, curves/    how training went (run_report)

An ensemble has the unit vectors of its members, concatenated, so that the cosine is the mean of theirs. Of m members
that agree on a text's direction, each with errors of its own, the mean errs less than each: other seeds of one recipe,
and more so other towers. Its folder has the same two files: the weights 0.query.W, ... of the first member, 1.query.W,
... of the second, and in model.json `members`, the description of each.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from math import prod, sqrt
from typing import Any, Literal

import numpy as np
import safetensors
import safetensors.torch
import torch

from schemas import storage
from schemas.errors import StageError, UsageError, require_major
from schemas.manifest import Outcome, Request
from schemas.release import Similarity
from schemas.stage import StageResult, open_result, run_stage
from schemas.text_contract import CONTRACT_VERSION, UNICODE_VERSION, words
from training.compute.threads import alone, compute_threads
from training.kernel.kernel_library import status
from training.model.embedding import Side, unit
from training.model.encoder import CPU, Encoder, encode_batch
from training.model.kernel_recipes import serves
from training.model.kernel_towers import CompiledTower, compiled_towers, tokenised
from training.model.objective_settings import Clicks
from training.model.parameters import Layout, Outputs, layout_of, pieces, tower_name, tower_of
from training.model.recipe import Recipe
from training.towers.text_batch import CONTRACT_VERSION as WORDS_VERSION
from training.towers.text_batch import Ragged, TextTable, WordRows, grouped_order, starts, text_batch

Empty = Literal["error", "zero"]

SCHEMA_VERSION = "2.0"  # 1.2 had a flat recipe
WEIGHTS, DESCRIPTION = "model.safetensors", "model.json"
BATCH_TEXTS = 1_024


@dataclass(frozen=True, kw_only=True)
class Model:
    """A trained model: its towers and what must hold for texts to mean the same to it as in training."""

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
        if side not in ("query", "document"):
            raise UsageError(
                asked=f"texts were to be encoded for the side {side!r}",
                found="there is no such side",
                do="use query or document",
            )
        compiled = self.compiled and self.compiled[side]
        if compiled and len(texts) == 1 and (vector := compiled.encode_short(texts[0])) is not None:
            return vector
        table = text_table(texts, self.layout.word_rows)
        wordless = np.flatnonzero(table.words.lengths == 0)
        if len(wordless) and empty == "error":
            raise UsageError(
                asked=f"{len(texts):,} texts were to be encoded",
                found=f"{len(wordless):,} of them have no word (the first is number {int(wordless[0]) + 1:,})",
                follows="a text without a word has no embedding",
                do="leave them out, or ask for zero vectors (empty='zero')",
            )
        table = table.limited(self.recipe.max_words, self.recipe.overflow)
        return compiled.encode(table) if compiled else encode_table(self.encoder, table, side)

    @property
    def similarity(self) -> Similarity:
        """How its vectors are compared: as its objective compared them in training."""
        return self.recipe.objective.similarity

    @property
    def word_share(self) -> float:
        """What the words' own matches have of a score (ranking.word_matches)."""
        return self.recipe.objective.word_share if isinstance(self.recipe.objective, Clicks) else 0.0

    @property
    def num_parameters(self) -> int:
        """Numbers that it holds, of all its towers."""
        return len(self.towers) * sum(prod(shape) for shape in self.layout.shapes.values())

    @property
    def encoder(self) -> Encoder:
        """Its towers, for a forward pass."""
        return Encoder(self.recipe, self.layout, lambda tower, rows: self.towers[tower].index_select(0, rows))

    @cached_property
    def compiled(self) -> Mapping[str, CompiledTower] | None:
        """Each side's tower on the compiled path, prepared at the first text; None where there is none."""
        return compiled_towers(self.recipe, self.layout, self.towers)


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

    Raises StageError where it is missing or damaged or holds several, UnknownVersionError for another major version of
    the model or of the text contract.
    """
    model = load_encoder(folder)
    if isinstance(model, Ensemble):
        raise StageError(
            asked=f"the model in {folder} was to be loaded",
            found=f"it is an ensemble of {len(model.members)} models",
            do="give the folder of one of them",
        )
    return model


def load_encoder(folder: str) -> Model | Ensemble:
    """What a model folder holds. Raises as `load_model`."""
    asked = f"the model in {folder} was to be loaded"
    try:
        description = json.loads(storage.read_bytes(storage.join(folder, DESCRIPTION)))
        require_major(asked, description.get("schema_version"), SCHEMA_VERSION)
        require_major("the model's text contract", description["text_contract"]["trigrams"], CONTRACT_VERSION)
        tensors = safetensors.torch.load(storage.read_bytes(storage.join(folder, WEIGHTS)))
        members = description.get("members")
        if members is None:
            return _model(description, tensors)
        if not members or {name.partition(".")[0] for name in tensors} != {str(at) for at in range(len(members))}:
            raise _OtherShapes
        of_member: list[dict[str, torch.Tensor]] = [{} for _ in members]
        for name, tensor in tensors.items():
            at, _, name_there = name.partition(".")
            of_member[int(at)][name_there] = tensor
        return Ensemble(members=tuple(map(_model, members, of_member)))
    except FileNotFoundError:
        raise StageError(
            asked=asked,
            found=f"it has no {DESCRIPTION} or no {WEIGHTS}",
            do="give the folder that `clicktower train` made",
        ) from None
    except _OtherShapes:
        raise StageError(
            asked=asked,
            found="its weights do not have the shapes its recipe declares",
            do="train again, or copy the folder again",
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError, safetensors.SafetensorError) as error:
        raise StageError(
            asked=asked, found=f"a file is damaged ({type(error).__name__})", do="train again, or copy the folder again"
        ) from None


class _OtherShapes(Exception):
    """Weights that are not those of the recipe beside them."""


def _model(description: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> Model:
    contract = description["text_contract"]
    recipe = Recipe(**description["recipe"])
    if "words" in contract:
        require_major("the model's contract of words", contract["words"]["version"], WORDS_VERSION)
    outputs, words = Outputs.from_json(description.get("outputs")), description.get("words", ())
    layout = layout_of(recipe, contract["table_rows"], outputs, words)
    if layout.word_rows.text_contract().get("words", {}).get("sha256") != contract.get("words", {}).get("sha256"):
        raise ValueError("the words are not those of the text contract")
    shapes = {f"{name}.{part}": shape for name in recipe.objective.towers for part, shape in layout.shapes.items()}
    if {name: tuple(tensor.shape) for name, tensor in tensors.items()} != shapes:
        raise _OtherShapes
    towers = {
        name: layout.join(tensors[f"{name}.W"], {part: tensors[f"{name}.{part}"] for part, _ in layout.parts})
        for name in recipe.objective.towers
    }
    return Model(recipe=recipe, layout=layout, towers=towers, text_contract=contract)


def write_model(folder: str, recipe: Recipe, layout: Layout, towers: Mapping[str, torch.Tensor]) -> None:
    """Write a model's weights, then its description."""
    _write(folder, *_as_stored(recipe, layout, towers))


def write_ensemble(folder: str, members: Sequence[Model]) -> None:
    """Write an ensemble as one model folder."""
    tensors: dict[str, torch.Tensor] = {}
    descriptions = []
    for at, member in enumerate(members):
        weights, description = _as_stored(member.recipe, member.layout, member.towers)
        tensors |= {f"{at}.{name}": tensor for name, tensor in weights.items()}
        descriptions.append(description | {"text_contract": dict(member.text_contract)})
    description = {
        "schema_version": SCHEMA_VERSION,
        "members": descriptions,
        "text_contract": dict(members[0].text_contract),
        "dimensions": sum(member["dimensions"] for member in descriptions),
        "parameters": sum(member["parameters"] for member in descriptions),
    }
    _write(folder, tensors, description)


def _as_stored(
    recipe: Recipe, layout: Layout, towers: Mapping[str, torch.Tensor]
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """(a model's weights by name, its description), as its folder holds them."""
    tensors: dict[str, torch.Tensor] = {}
    for tower, matrix in towers.items():
        table, parts = layout.split(matrix)
        tensors |= {f"{tower}.{name}": part.contiguous().cpu() for name, part in {"W": table, **parts}.items()}
    rows = layout.word_rows
    contract = {"trigrams": CONTRACT_VERSION, "unicode": UNICODE_VERSION, "table_rows": rows.trigram_rows}
    return tensors, {
        "schema_version": SCHEMA_VERSION,
        "recipe": asdict(recipe),
        "text_contract": contract | rows.text_contract(),
        "dimensions": tower_of(recipe).dimensions,
        "outputs": asdict(layout.outputs),
        "parameters": sum(tensor.numel() for tensor in tensors.values()),
        **({"words": rows.words} if rows.words else {}),
    }


def _write(folder: str, tensors: Mapping[str, torch.Tensor], description: Mapping[str, Any]) -> None:
    """Write the two files of a model folder, the description last."""
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    storage.write_atomic(storage.join(folder, WEIGHTS), *pieces(arrays))
    storage.write_atomic(storage.join(folder, DESCRIPTION), json.dumps(description, indent=1).encode())


def encode_table(encoder: Encoder, table: TextTable, side: str) -> np.ndarray:
    """The embeddings of all texts of a table, float32 [texts, dimensions]; zero for a text without a word.

    The table's words are limited as the recipe says.
    """
    if serves(encoder.recipe) and encoder.device == CPU:
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


def text_table(texts: Sequence[str], word_rows: WordRows) -> TextTable:
    """Texts cut into words by the text contract, each distinct word once, numbered as they appear, as rows of W."""
    if status().available and not word_rows.words:
        return tokenised(texts, word_rows.trigram_rows)
    return tokenised_in_python(texts, word_rows)


def tokenised_in_python(texts: Sequence[str], word_rows: WordRows) -> TextTable:
    """`text_table` by the functions that define the contract."""
    number: dict[str, int] = {}
    of_texts = [[number.setdefault(word, len(number)) for word in words(text)] for text in texts]
    offsets = starts(np.fromiter(map(len, of_texts), np.int64, len(of_texts)))
    flat = np.fromiter((word for text in of_texts for word in text), np.int32, int(offsets[-1]))
    return TextTable(Ragged(offsets, flat), word_rows.of(list(number)))


def _compiled(encoder: Encoder, table: TextTable, side: str) -> CompiledTower:
    """A side's tower with the rows that the table's words have, wherever the encoder takes them from."""
    layout = encoder.layout
    used = np.zeros(layout.table_rows, bool)
    used[table.trigrams.values] = True
    rows = np.flatnonzero(used)
    place = np.zeros(layout.table_rows, np.int32)
    place[rows] = np.arange(len(rows))
    matrix = encoder.rows_at(tower_name(encoder.recipe, side), layout.touched(torch.from_numpy(rows)))
    return CompiledTower(encoder.recipe, layout, matrix, place)


STAGE_VERSION = 1


def combine(models: Sequence[str], *, store: str) -> StageResult:
    """The ensemble of all these models (folders that `train` made), whatever their order.

    Writes a model folder to STORE/combine/DIGEST; evaluate, compare, publish and search read it as any model. Raises
    UsageError for fewer than two, one given twice, models of different text contracts, or one that compares by
    distance, and StageError for one that is damaged or is itself combined.
    """
    trained = sorted((open_result(model) for model in models), key=lambda result: result.manifest.digest)
    digests = [result.manifest.digest for result in trained]
    asked = f"{len(models)} models were to be combined"
    if len(set(digests)) < max(2, len(digests)):
        found = "there must be at least two" if len(digests) < 2 else "one of them is there twice"
        raise UsageError(asked=asked, found=found, do="give different models, of other seeds or other recipes")
    request = Request(stage="combine", stage_version=STAGE_VERSION, config={}, inputs={"models": digests})

    def produce(folder: str) -> Outcome:
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
