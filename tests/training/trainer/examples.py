"""One micro-batch of labels, or of texts to reconstruct, over random texts, with the parameters it is computed at."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from clicktower.training.model.decoder import decoder_of_model
from clicktower.training.model.head import draw_masks, head_of_model
from clicktower.training.model.parameters import Encoder, Layout, Outputs
from clicktower.training.model.recipe import Recipe
from clicktower.training.towers.text_table import Ragged, WordRows, list_offsets
from clicktower.training.trainer import classify, generate
from clicktower.training.trainer.classify import LabelledBatch, LabelledExamples
from clicktower.training.trainer.generate import RephrasingBatch, RephrasingExamples
from tests.training.texts import Text, random_texts

TRIGRAMS, CLASSES, SIZE = 30, ("entailed", "neutral", "contradicted"), 5
WORDS = ("steel", "angle", "bracket", "hose")


@dataclass(frozen=True, kw_only=True)
class Case:
    """`texts` as plain lists; `examples` say which of them."""

    recipe: Recipe
    layout: Layout
    matrix: torch.Tensor  # [rows, columns], float64
    texts: list[Text]
    examples: Any
    batch: LabelledBatch | RephrasingBatch

    def encoder(self, matrix: torch.Tensor | None = None) -> Encoder:
        at = self.matrix if matrix is None else matrix
        return Encoder.of(self.layout, {"shared": at})

    def loss(self, matrix: torch.Tensor, update: int) -> float:
        return float(self.batch.gradient(self.encoder(matrix), update)[1])


def labelled_case(recipe: Recipe, *, unit: str = "pairs") -> Case:
    """Five pairs (or texts) of three classes; a text stands in several pairs, and in one with itself."""
    rng = np.random.default_rng(3)
    table, texts = random_texts(rng, 6, longest=4, num_trigrams=TRIGRAMS)
    outputs = Outputs(unit=unit, classes=CLASSES)
    head = head_of_model(recipe, outputs)
    sides = (np.array([0, 1, 2, 3, 0]), np.array([1, 2, 2, 4, 5]))
    examples = LabelledExamples(
        texts=(table, np.arange(6)),
        sides=sides if unit == "pairs" else sides[:1],
        labels=np.array([0, 2, 2, 1, 0]),
        masks=draw_masks(head, SIZE, rng),
        head=head,
    )
    return _case(recipe, outputs, texts, examples, classify.batch(examples))


def rephrasing_case(recipe: Recipe) -> Case:
    """Five texts, one of them twice, each said as up to four words."""
    rng = np.random.default_rng(4)
    table, texts = random_texts(rng, 4, longest=4, num_trigrams=TRIGRAMS)
    outputs = Outputs(vocabulary=WORDS)
    decoder = decoder_of_model(recipe, outputs)
    said = [[2, 3, 0], [0], [5, 1, 4, 2, 0], [3, 3, 0], [4, 0]]
    examples = RephrasingExamples(
        texts=(table, np.array([0, 1, 2, 3, 0])),
        words=Ragged(list_offsets(np.array([len(s) for s in said])), np.array([i for s in said for i in s])),
        kept=rng.random(sum(map(len, said))) >= recipe.objective.word_dropout,
        noise_Bh=rng.standard_normal((SIZE, decoder.latent)),
        decoder=decoder,
    )
    return _case(recipe, outputs, texts, examples, generate.batch(examples))


def _case(recipe: Recipe, outputs: Outputs, texts: list[Text], examples: Any, batch: Any) -> Case:
    layout = Layout(recipe=recipe, word_rows=WordRows(TRIGRAMS), outputs=outputs)
    # Of size 0.7, so that no gate, hop or unit is near where it is flat; the filling is zero, as in training.
    random = torch.from_numpy(np.random.default_rng(5).normal(0, 0.7, (layout.rows, layout.columns)))
    matrix = layout.join(*layout.split(random))
    return Case(recipe=recipe, layout=layout, matrix=matrix, texts=texts, examples=examples, batch=batch)
