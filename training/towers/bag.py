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
from clicktower.training.towers.tower_kinds import CLSM, CNN, DSSM, SWEM, Bag


@dataclass(frozen=True, slots=True)
class BagTower:
    settings: Bag

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> Embedded:
        return text_sums(word_UG, batch), 0.0


@dataclass(frozen=True, slots=True)
class DSSMTower:
    settings: DSSM

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> Embedded:
        hidden_NH = (text_sums(word_UG, batch) + parts["b"]).tanh()
        return torch.addmm(parts["b_s"], hidden_NH, parts["W_s"]).tanh(), 0.0


@dataclass(frozen=True, slots=True)
class CLSMTower:
    settings: CLSM | CNN

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> Embedded:
        return torch.addmm(parts["b_s"], self.pooled(word_UG, parts, batch), parts["W_s"]).tanh(), 0.0

    def pooled(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> torch.Tensor:
        """h of each text, [N, H]."""
        return (highest(self._windows(word_UG, batch), batch) + parts["b"]).tanh()

    def _windows(self, word_UG: torch.Tensor, batch: TextBatch) -> torch.Tensor:
        """Σ_k W_k l(t + k) for each word of each text, [P, H]."""
        window = self.settings.window
        if window == 1:
            return packed_inputs(word_UG, batch)
        words = torch.cat([batch.packed_words, torch.full((1,), len(word_UG), device=word_UG.device)])
        half = window // 2
        place_PK = torch.stack(
            [words[neighbour(batch, k)] * window + at for at, k in enumerate(range(-half, half + 1))], dim=1
        )
        rows = torch.cat([word_UG, word_UG.new_zeros(1, word_UG.shape[1])]).view(-1, word_UG.shape[1] // window)
        begins = torch.arange(0, place_PK.numel(), window, device=word_UG.device)
        return gather_rows(rows, (place_PK.flatten(), begins))


@dataclass(frozen=True, slots=True)
class CNNTower(CLSMTower):
    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> Embedded:
        return self.pooled(word_UG, parts, batch), 0.0


@dataclass(frozen=True, slots=True)
class SWEMTower:
    settings: SWEM

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> Embedded:
        pooled = []
        if self.settings.aggregate != "max":
            begins_N = reading_order(batch)[2]
            length_N = torch.diff(begins_N, append=begins_N.new_tensor([batch.step_offsets[-1]]))
            pooled.append(text_sums(word_UG, batch) / length_N[:, None])
        if self.settings.aggregate != "aver":
            pooled.append(highest(packed_inputs(word_UG, batch), batch))
        return torch.cat(pooled, dim=1), 0.0
