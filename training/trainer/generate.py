"""The generative objective (Deudon, VAR-Siamese): reconstruct a text, word by word, from a sample of its distribution.

    L = Σ over examples of ( -log p(s'|z) + κ KL(q(z|s) || N(0, I)) ),    z = μ + σ ∘ ε,  ε ~ N(0, I)

q(z|s) = N(μ, σ²), whose μ and σ are the halves of a text's vector, as the variational tower gives it. s' is s itself
(repeat), or another text that means the same (reformulate): the other question of a pair of duplicates, the clicked
title of a query. κ grows with the updates (kappa). The decoder's words are the most frequent ones of the training
texts.

Shapes: B examples, h dimensions of z.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from clicktower.schemas.errors import UsageError
from clicktower.schemas.judgments import Judged
from clicktower.schemas.labelled_shard import LABELLED_CATALOGUE
from clicktower.training.model.decoder import Decoder, Targets, decoder_of_model, targets_of, vocabulary_of, word_ids
from clicktower.training.model.forward import encode_batch, encoded, gradients
from clicktower.training.model.label_settings import Generate
from clicktower.training.model.model_folder import Outputs
from clicktower.training.model.parameters import Encoder, LossGradient
from clicktower.training.model.recipe import Recipe
from clicktower.training.towers.text_batch import OnDevice, TextBatch, text_batch
from clicktower.training.towers.text_table import Ragged, TextTable, WordRows
from clicktower.training.towers.tower import Parts
from clicktower.training.trainer.labelled_shards import (
    LabelledShard,
    LabelledShards,
    draws,
    held_out_draws,
    load_labelled,
)
from clicktower.training.trainer.objective import Measured, touched_rows
from clicktower.training.trainer.shard_data import MicroBatch, Shard, ShardData, load_shards

MEASURED_AT_ONCE = 256  # texts
MOST_MEASURED = 4_096  # held-out examples of each kind, the first ones


def load(folder: str, recipe: Recipe, words: Sequence[str] = (), teacher: str | None = None) -> "GenerateTask":
    shards: LabelledShards | ShardData
    if Path(folder, LABELLED_CATALOGUE).exists():
        shards, file = load_labelled(folder, recipe, words), "labelled.arrow"
        train, dev = _label_rephrasings(shards, recipe)
    else:
        shards, file = load_shards(folder, recipe, words), "pairs.arrow"
        train, dev = _click_rephrasings(shards, recipe)
    texts = (text for shard in train for text in shard.strings.to_pylist())
    vocabulary = vocabulary_of(texts, _settings(recipe).vocabulary)
    outputs = Outputs(vocabulary=tuple(vocabulary))
    return GenerateTask(
        recipe=recipe,
        word_rows=shards.word_rows,
        outputs=outputs,
        files=[f"{name}/{file}" for name in shards.train_names],
        train=train,
        dev=dev,
        vocabulary=vocabulary,
        decoder=decoder_of_model(recipe, outputs),
    )


def batch(examples: "RephrasingExamples") -> "RephrasingBatch":
    return RephrasingBatch(
        texts=text_batch([examples.texts]),
        targets=targets_of(examples.words, examples.decoder.vocabulary, examples.kept),
        noise_Bh=torch.from_numpy(examples.noise_Bh),
        decoder=examples.decoder,
    )


def _settings(recipe: Recipe) -> Generate:
    assert isinstance(recipe.objective, Generate)
    return recipe.objective


@dataclass(frozen=True, kw_only=True, slots=True)
class Rephrasings:
    """The E examples of one shard as indices into its texts: first every text as itself, then the paraphrases."""

    texts: TextTable
    strings: pa.ChunkedArray  # the texts, normalised
    source: np.ndarray  # int64 [E]
    target: np.ndarray  # int64 [E]
    num_repeats: int  # of the first examples, which have the source as target

    def __len__(self) -> int:
        return len(self.source)


def _label_rephrasings(shards: LabelledShards, recipe: Recipe) -> tuple[list[Rephrasings], list[Rephrasings]]:
    """(of the training rows, of the held-out rows): each text as itself; pairs of the recipe's class both ways.

    Raises UsageError if the recipe names an unknown class.
    """
    settings = _settings(recipe)
    if settings.reformulate and (shards.unit != "pairs" or settings.paraphrase not in shards.classes):
        raise UsageError(
            f"{recipe.name} reformulates pairs of the class {settings.paraphrase!r}, and "
            + (
                f"these shards hold single {shards.unit}."
                if shards.unit != "pairs"
                else f"the classes of these shards are {', '.join(shards.classes) or 'none'}."
            ),
            "Set objective.paraphrase to the class of pairs that mean the same, or objective.reformulate=false.",
        )

    def of(shard: LabelledShard) -> Rephrasings:
        ways = []
        if settings.reformulate:
            rows = shard.labels == shards.classes.index(settings.paraphrase)
            first, second = (side[rows] for side in shard.sides)
            ways = [(first, second), (second, first)]
        return _rephrasings(shard.texts, shard.strings, shard.sides, ways)

    return list(map(of, shards.train)), list(map(of, shards.dev))


def _click_rephrasings(data: ShardData, recipe: Recipe) -> tuple[list[Rephrasings], list[Rephrasings]]:
    """(of the training pairs, of the held-out pairs): each query and clicked title as itself; queries as titles.

    Raises UsageError if the recipe names a class: clicks have none.
    """
    settings = _settings(recipe)
    if settings.paraphrase:
        raise UsageError(
            f"{recipe.name} reformulates pairs of the class {settings.paraphrase!r}, and clicks have no classes.",
            "Leave paraphrase out: a query is reformulated as its clicked title.",
        )

    def of(shard: Shard) -> Rephrasings:
        ways = [(shard.query, shard.clicked)] if settings.reformulate else []
        return _rephrasings(shard.texts, shard.strings, (shard.query, shard.clicked), ways)

    return list(map(of, data.train)), list(map(of, data.dev))


def _rephrasings(
    texts: TextTable,
    strings: pa.ChunkedArray,
    used: Sequence[np.ndarray],
    ways: Sequence[tuple[np.ndarray, np.ndarray]],
) -> Rephrasings:
    """Each text that is used as itself, then the pairs of (source, target) of each of the `ways`."""
    repeated = np.unique(np.concatenate(used))
    source, target = (np.concatenate([repeated, *(way[at] for way in ways)]).astype(np.int64) for at in (0, 1))
    return Rephrasings(texts=texts, strings=strings, source=source, target=target, num_repeats=len(repeated))


@dataclass(frozen=True, kw_only=True, slots=True)
class RephrasingExamples:
    texts: tuple[TextTable, np.ndarray]  # the source of each example
    words: Ragged  # its target, as indices into the vocabulary
    kept: np.ndarray | None  # whether each word before another is read (targets)
    noise_Bh: np.ndarray  # ε
    decoder: Decoder


@dataclass(frozen=True, kw_only=True, slots=True)
class RephrasingBatch(OnDevice):
    """As large_update.LossBatch."""

    texts: TextBatch
    targets: Targets
    noise_Bh: torch.Tensor
    decoder: Decoder

    def table_rows(self, side: str) -> torch.Tensor:
        return self.texts.rows

    def gradient(self, encoder: Encoder, update: int) -> LossGradient:
        settings = _settings(encoder.layout.recipe)
        forward = encoded(self.texts, "query", encoder)
        weight = kappa(update - 1, rate=settings.kappa_rate, middle=settings.kappa_middle)
        words, divergence = self.losses(forward.vectors_Nd, forward.parts)
        loss = words + weight * divergence + forward.own_loss
        return gradients(loss, [forward], encoder), loss.detach()

    def losses(self, vectors_Bd: torch.Tensor, parts: Parts) -> tuple[torch.Tensor, torch.Tensor]:
        """(-log p(s'|z) [], KL(q(z|s) || N(0, I)) []), each summed over the texts, in nats."""
        mu_Bh, sigma_Bh = vectors_Bd.chunk(2, dim=1)
        z_Bh = torch.addcmul(mu_Bh, sigma_Bh, self.noise_Bh.to(vectors_Bd))
        return self.decoder.loss(z_Bh, self.targets, parts), divergence(mu_Bh, sigma_Bh).sum()


def divergence(mu: torch.Tensor, sigma: torch.Tensor) -> torch.Tensor:
    """KL(N(μ, σ²) || N(0, I)) = ½ Σ (μ² + σ² - 1 - ln σ²) of each text, in nats, [B]; infinite where a σ is 0."""
    return (mu.square() + sigma.square() - 1).sum(1) / 2 - sigma.log().sum(1)


def kappa(step: int, rate: float = 0.002, middle: float = 2500) -> float:
    """κ, the weight of the divergence in the loss at a step (from 0): sigmoid(rate (step - middle))."""
    x = rate * (step - middle)
    e = math.exp(-abs(x))  # at most 1, so that no exponential overflows
    return 1 / (1 + e) if x >= 0 else e / (1 + e)


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerateTask:
    """As objective.Task."""

    recipe: Recipe
    word_rows: WordRows
    outputs: Outputs
    files: Sequence[str]
    train: list[Rephrasings]
    dev: list[Rephrasings]
    vocabulary: Mapping[str, int]  # word -> its id
    decoder: Decoder

    @property
    def lengths(self) -> Sequence[np.ndarray]:
        return [
            example.texts.words.lengths[example.source] + example.texts.words.lengths[example.target]
            for example in self.train
        ]

    def row_weights(self) -> np.ndarray | None:
        return None

    def examples(self, micro_batch: MicroBatch, epoch: int) -> RephrasingExamples:
        numbers = draws(self.recipe, micro_batch, epoch)
        example = self._examples(self.train[micro_batch.shard], micro_batch.pairs, numbers)
        if not _settings(self.recipe).word_dropout:
            return example
        return replace(example, kept=numbers.random(len(example.words.values)) >= _settings(self.recipe).word_dropout)

    def watched(self, judged: Judged | None) -> "WatchedRephrasings":
        batches: dict[str, list[RephrasingBatch]] = {"repeat": [], "reformulate": []}
        for number, shard in enumerate(self.dev):
            for kind, all_rows in (
                ("repeat", range(shard.num_repeats)),
                ("reformulate", range(shard.num_repeats, len(shard))),
            ):
                rows = np.array(all_rows[: MOST_MEASURED // len(self.dev)], np.int64)
                for start in range(0, len(rows), MEASURED_AT_ONCE):
                    batch_rows = rows[start : start + MEASURED_AT_ONCE]
                    drawn = held_out_draws(self.recipe, number, start)
                    batches[kind].append(batch(self._examples(shard, batch_rows, drawn)))
        return WatchedRephrasings(batches)

    def _examples(self, rephrasings: Rephrasings, rows: np.ndarray, numbers: np.random.Generator) -> RephrasingExamples:
        targets = rephrasings.strings.take(rephrasings.target[rows]).to_pylist()
        return RephrasingExamples(
            texts=(rephrasings.texts, rephrasings.source[rows]),
            words=word_ids(targets, self.vocabulary),
            kept=None,
            noise_Bh=numbers.standard_normal((len(rows), self.decoder.latent)),
            decoder=self.decoder,
        )


class WatchedRephrasings:
    """As objective.Watched: how well held-out texts are reconstructed, and the KL divergence of their z.

    dev_loss: -log p(s'|z) + KL of an example, with one fixed draw of z each; dev_kl: KL alone; dev_word_repeat and
    dev_word_reformulate: -log p of a word (the end of the text among them), in nats.
    """

    def __init__(self, batches: dict[str, list[RephrasingBatch]]) -> None:
        self._batches = batches
        self.source = "reconstruction of held-out texts" if any(batches.values()) else "nothing: no held-out texts"

    @property
    def table_rows(self) -> torch.Tensor:
        return touched_rows(batch.texts.rows.numpy() for of_kind in self._batches.values() for batch in of_kind)

    def measure(self, encoder: Encoder) -> Measured:
        parts = encoder.parts["shared"]
        measured: Measured = {}
        loss, diverged, num_examples = 0.0, 0.0, 0
        for kind, batches in self._batches.items():
            surprise, num_words = 0.0, 0
            for on_cpu in batches:
                batch = on_cpu.to(encoder.device.place)
                words, kl = batch.losses(encode_batch(batch.texts, "query", encoder), parts)
                surprise, diverged = surprise + float(words), diverged + float(kl)
                num_words += len(batch.targets.word)
                num_examples += len(batch.noise_Bh)
            loss += surprise
            measured[f"dev_word_{kind}"] = surprise / num_words if num_words else None
        measured["dev_kl"] = diverged / num_examples if num_examples else None
        measured["dev_loss"] = (loss + diverged) / num_examples if num_examples else None
        return measured
