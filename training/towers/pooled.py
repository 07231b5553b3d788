"""Towers that pool over all words at once: CNN (Kim, arXiv:1408.5882) and SWEM (Shen et al., arXiv:1805.09843).

    CNN    y = max_t tanh(Σ_k W_k l(t + k) + b), unit by unit
    SWEM   x(t) = W l(t);    aver y = mean_t x(t)    max y = max_t x(t)    concat y = both, side by side

Windows are CLSM's (bag). Above word vectors x(t) is the word's vector times W_in; the paper pools the vectors
themselves.
"""

from dataclasses import dataclass

import torch

from clicktower.training.towers.bag import CLSMTower
from clicktower.training.towers.text_batch import TextBatch
from clicktower.training.towers.tower import Embedded, Parts, highest, packed_inputs, reading_order, text_sums
from clicktower.training.towers.tower_kinds import CNN, SWEM
from clicktower.training.towers.tower_settings import Shapes


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
