"""The objective of labels: the class of a text or pair of texts, predicted by a head above the tower (model.head).

    L = Σ over examples of ( -log p(label) + l1 ||ψ||₁ + l2 ||ψ||₂² ),    ψ the head's weights

Both texts of a pair go through one tower (a Siamese one). A micro-batch encodes each of its texts once.

Shapes: B examples, N distinct texts, d dimensions, C classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from clicktower.schemas.errors import UsageError
from clicktower.schemas.judgments import Judged
from clicktower.training.model.forward import encoded, gradients
from clicktower.training.model.head import Head, Masks, draw_masks, head_of_model, penalise
from clicktower.training.model.label_settings import Classify
from clicktower.training.model.model_folder import Outputs
from clicktower.training.model.parameters import Encoder, LossGradient
from clicktower.training.model.recipe import Recipe
from clicktower.training.ranking.labelled_measures import accuracy, area_of_probabilities
from clicktower.training.towers.text_batch import OnDevice, TextBatch, text_batch
from clicktower.training.towers.text_table import TextTable, WordRows
from clicktower.training.towers.tower import Parts, gather_rows
from clicktower.training.trainer.labelled_shards import LabelledShard, LabelledShards, draws, load_labelled
from clicktower.training.trainer.objective import Measured, encode_table, touched_rows
from clicktower.training.trainer.shard_data import MicroBatch


def load(folder: str, recipe: Recipe, words: Sequence[str] = (), teacher: str | None = None) -> "ClassifyTask":
    return classify_task(load_labelled(folder, recipe, words), recipe)


def batch(examples: "LabelledExamples") -> "LabelledBatch":
    return LabelledBatch(
        texts=text_batch([examples.texts]),
        sides=tuple(torch.from_numpy(side) for side in examples.sides),
        labels=torch.from_numpy(examples.labels),
        masks=examples.masks,
        head=examples.head,
    )


def classify_task(shards: LabelledShards, recipe: Recipe) -> "ClassifyTask":
    """The task of some labelled shards. Raises UsageError if the recipe's head cannot tell their labels."""
    if not shards.classes:
        raise UsageError(
            f"{recipe.name} learns classes, and the labels of these shards are values.",
            "Build labelled shards with --label-kind class.",
        )
    outputs = Outputs(unit=shards.unit, classes=shards.classes)
    return ClassifyTask(shards, recipe, outputs, head_of_model(recipe, outputs))


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledExamples:
    texts: tuple[TextTable, np.ndarray]  # the distinct texts [N]
    sides: tuple[np.ndarray, ...]  # int64 [B] each, as places among them
    labels: np.ndarray  # int64 [B]
    masks: Masks | None  # of dropout
    head: Head


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledBatch(OnDevice):
    """As large_update.LossBatch."""

    texts: TextBatch
    sides: tuple[torch.Tensor, ...]
    labels: torch.Tensor
    masks: Masks | None
    head: Head

    def table_rows(self, side: str) -> torch.Tensor:
        return self.texts.rows

    def gradient(self, encoder: Encoder, update: int) -> LossGradient:
        objective = encoder.layout.recipe.objective
        assert isinstance(objective, Classify)
        forward = encoded(self.texts, "query", encoder)
        vectors = tuple(gather_rows(forward.vectors_Nd, (side, None)) for side in self.sides)
        logits_BC = self.head.logits(vectors, forward.parts, self.masks)
        loss = cross_entropy(logits_BC, self.labels, reduction="sum") + forward.own_loss
        ((name, gradient),) = gradients(loss, [forward], encoder)
        factors = objective.l1 * len(self.labels), objective.l2 * len(self.labels)
        return [(name, gradient)], loss.detach() + penalise(gradient.parts, encoder.parts[name], *factors)


@dataclass(frozen=True, slots=True)
class ClassifyTask:
    """As objective.Task."""

    shards: LabelledShards
    recipe: Recipe
    outputs: Outputs
    head: Head

    @property
    def word_rows(self) -> WordRows:
        return self.shards.word_rows

    @property
    def lengths(self) -> Sequence[np.ndarray]:
        return [sum(shard.texts.words.lengths[side] for side in shard.sides) for shard in self.shards.train]

    @property
    def files(self) -> Sequence[str]:
        return [f"{name}/labelled.arrow" for name in self.shards.train_names]

    def row_weights(self) -> np.ndarray | None:
        return None

    def examples(self, micro_batch: MicroBatch, epoch: int) -> LabelledExamples:
        shard, rows = self.shards.train[micro_batch.shard], micro_batch.pairs
        taken = [side[rows] for side in shard.sides]
        distinct, places = np.unique(np.concatenate(taken), return_inverse=True)
        return LabelledExamples(
            texts=(shard.texts, distinct),
            sides=tuple(places.astype(np.int64).reshape(len(taken), -1)),
            labels=shard.labels[rows].astype(np.int64),
            masks=draw_masks(self.head, len(rows), draws(self.recipe, micro_batch, epoch)),
            head=self.head,
        )

    def watched(self, judged: Judged | None) -> "WatchedLabels":
        return WatchedLabels([shard for shard in self.shards.dev if len(shard)], self.head)


class WatchedLabels:
    """As objective.Watched: the loss, accuracy and area under ROC of held-out examples."""

    def __init__(self, dev: Sequence[LabelledShard], head: Head) -> None:
        self._dev, self._head = dev, head
        self.source = "held-out labels" if dev else "nothing: no held-out rows"

    @property
    def table_rows(self) -> torch.Tensor:
        return touched_rows(shard.texts.trigrams.values for shard in self._dev)

    def measure(self, encoder: Encoder) -> Measured:
        if not self._dev:
            return {"dev_loss": None, "dev_accuracy": None, "dev_area_under_roc": None}
        parts = encoder.parts["shared"]
        logits = torch.cat([self._logits(shard, encoder, parts) for shard in self._dev]).double()
        labels = np.concatenate([shard.labels for shard in self._dev]).astype(np.int64)
        loss = cross_entropy(logits, torch.from_numpy(labels))
        probability = torch.softmax(logits, dim=1).numpy()
        once = np.ones((1, len(labels)))
        return {
            "dev_loss": float(loss),
            "dev_accuracy": float(accuracy(probability.argmax(axis=1) == labels)(once)[0]),
            "dev_area_under_roc": float(area_of_probabilities(probability, labels)(once)[0]),
        }

    def _logits(self, shard: LabelledShard, encoder: Encoder, parts: Parts) -> torch.Tensor:
        vectors_Nd = torch.from_numpy(encode_table(encoder, shard.texts, "query"))
        sides = tuple(vectors_Nd[torch.from_numpy(side.astype(np.int64))] for side in shard.sides)
        return self._head.logits(sides, {name: part.float().cpu() for name, part in parts.items()})
