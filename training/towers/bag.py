"""Towers that read all words, or windows of them, at once: the bag of trigrams, DSSM and CLSM.

    bag     y = Σ_t W l(t)
    DSSM    h = tanh(W Σ_t l(t) + b)                                              y = tanh(W_s h + b_s)
    CLSM    h = max_t tanh(Σ_k W_k l(t + k) + b), unit by unit                    y = tanh(W_s h + b_s)

CLSM's k goes from -w to w for a window of 2w + 1 words, with zero vectors beyond the text's ends; its columns are W_-w,
..., W_w. The maximum is taken before tanh, which does not move it.

With rows of random numbers the cosine of two bags is that of their trigram counts, to within 1/√d (Johnson and
Lindenstrauss); with rows that start in proportion to the trigrams' rarity (`start = idf`) it is that of their weighted
trigrams. So a bag ranks by the letters that two texts share before the first click, and learns from there.

Shapes as in tower, with H hidden units, K words in a window; G = d of a bag, H of DSSM, K H of CLSM.

CNN (Kim, arXiv:1408.5882) and SWEM (Shen et al., arXiv:1805.09843) pool over all words at once.

    CNN    y = max_t tanh(Σ_k W_k l(t + k) + b), unit by unit
    SWEM   x(t) = W l(t);    aver y = mean_t x(t)    max y = max_t x(t)    concat y = both, side by side

Their windows are CLSM's. Above word vectors x(t) is the word's vector times W_in; the paper pools the vectors
themselves.
"""

from dataclasses import dataclass

import torch

from clicktower.training.towers.text_batch import TextBatch
from clicktower.training.towers.tower import (
    Embedded,
    Parts,
    gather_rows,
    highest,
    neighbour,
    packed_inputs,
    reading_order,
    text_sums,
)
from clicktower.training.towers.tower_kinds import CNN, SWEM
from clicktower.training.towers.tower_settings import CLSM, DSSM, Bag, Shapes


@dataclass(frozen=True, slots=True)
class BagTower:
    dimensions: int

    @property
    def columns(self) -> int:
        return self.dimensions

    @property
    def parts(self) -> Shapes:
        return ()

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0) -> Embedded:
        return text_sums(word_UG, batch), 0.0


@dataclass(frozen=True, slots=True)
class DSSMTower:
    hidden: int
    dimensions: int

    @property
    def columns(self) -> int:
        return self.hidden

    @property
    def parts(self) -> Shapes:
        return ("b", (self.hidden,)), ("W_s", (self.hidden, self.dimensions)), ("b_s", (self.dimensions,))

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0) -> Embedded:
        hidden_NH = (text_sums(word_UG, batch) + parts["b"]).tanh()
        return torch.addmm(parts["b_s"], hidden_NH, parts["W_s"]).tanh(), 0.0


@dataclass(frozen=True, slots=True)
class CLSMTower:
    window: int
    hidden: int
    dimensions: int

    @property
    def columns(self) -> int:
        return self.window * self.hidden

    @property
    def parts(self) -> Shapes:
        return DSSMTower(self.hidden, self.dimensions).parts

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0) -> Embedded:
        hidden_NH = (highest(self._windows(word_UG, batch), batch) + parts["b"]).tanh()
        return torch.addmm(parts["b_s"], hidden_NH, parts["W_s"]).tanh(), 0.0

    def _windows(self, word_UG: torch.Tensor, batch: TextBatch) -> torch.Tensor:
        """Σ_k W_k l(t + k) for each word of each text, [P, H]."""
        if self.window == 1:
            return packed_inputs(word_UG, batch)
        words = torch.cat([batch.packed_words, torch.full((1,), len(word_UG), device=word_UG.device)])
        half = self.window // 2
        place_PK = torch.stack(
            [words[neighbour(batch, k)] * self.window + at for at, k in enumerate(range(-half, half + 1))], dim=1
        )
        rows = torch.cat([word_UG, word_UG.new_zeros(1, self.columns)]).view(-1, self.hidden)
        begins = torch.arange(0, place_PK.numel(), self.window, device=word_UG.device)
        return gather_rows(rows, (place_PK.flatten(), begins))


# Of a recipe's settings.


def bag(settings: Bag) -> BagTower:
    return BagTower(settings.cells)


def dssm(settings: DSSM) -> DSSMTower:
    return DSSMTower(settings.hidden, settings.cells)


def clsm(settings: CLSM) -> CLSMTower:
    return CLSMTower(settings.window, settings.hidden, settings.cells)


@dataclass(frozen=True, slots=True)
class CNNTower(CLSMTower):
    @property
    def parts(self) -> Shapes:
        return (("b", (self.hidden,)),)

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0) -> Embedded:
        return (highest(self._windows(word_UG, batch), batch) + parts["b"]).tanh(), 0.0


@dataclass(frozen=True, slots=True)
class SWEMTower:
    columns: int
    aggregate: str

    @property
    def dimensions(self) -> int:
        return self.columns * (2 if self.aggregate == "concat" else 1)

    @property
    def parts(self) -> Shapes:
        return ()

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0) -> Embedded:
        pooled = []
        if self.aggregate != "max":
            begins_N = reading_order(batch)[2]
            length_N = torch.diff(begins_N, append=begins_N.new_tensor([batch.step_offsets[-1]]))
            pooled.append(text_sums(word_UG, batch) / length_N[:, None])
        if self.aggregate != "aver":
            pooled.append(highest(packed_inputs(word_UG, batch), batch))
        return torch.cat(pooled, dim=1), 0.0


# Of a recipe's settings.


def cnn(settings: CNN) -> CNNTower:
    return CNNTower(settings.window, settings.cells, settings.cells)


def swem(settings: SWEM) -> SWEMTower:
    return SWEMTower(settings.cells, settings.aggregate)
