"""Towers of two LSTMs, one that reads left to right and one right to left.

    h(t) = y(t) of the one and of the other, concatenated; the rows of H

    bilstm           the last vector of each, concatenated
    max_pooled       v = max_t h(t), dimension by dimension (the baseline of Lin et al., arXiv:1703.03130, section 4;
                     of SNLI: Conneau et al., arXiv:1705.02364, section 3.2.2)
    self_attentive   (Lin et al., section 2)
                     A = softmax(W_s2 tanh(W_s1 Hᵀ)) over the words of the text, a row for each of r hops;   (eq. 6)
                         no biases
                     M = A H                                                                                 (eq. 7)
                     P = ||A Aᵀ - I||²_F, times `penalty`, is added to the loss of every text                (eq. 8)
    variational      (Deudon's VAR-Siamese) with s the vector of the bidirectional LSTM
                     μ = s W_mu + b_mu
                     σ = softplus(s W_sigma + b_sigma) + SIGMA_MIN               softplus(x) = log(1 + e^x)

The one that reads right to left ends at the text's first word, from which its T steps of truncated back-propagation are
counted. Columns are those of the first LSTM, then those of the second, and so is the last axis of each of its parts.

Of a self-attentive text the embedding is the rows of M concatenated, or their mean. r = 1 is the vector form
(eq. 5). W_s1 and W_s2 are stored transposed, as they multiply rows. In a text of one word every hop gives it the weight
1, and P is r² - r for any parameters.

Of a variational text it is μ and σ concatenated, so the Euclidean distance of two embeddings is the Wasserstein
distance W₂ of their distributions: W₂² = ||μ1 - μ2||² + ||σ1 - σ2||². Our decision: where e^x underflows, σ is
SIGMA_MIN, never 0, so that its logarithm and 1/σ are finite.

Shapes as in tower, with D = 2 u states of u cells each, a attention units, r hops; n texts of T words each.
"""

from dataclasses import dataclass, replace

import torch

from clicktower.training.towers import tower
from clicktower.training.towers.recurrent import LSTMTower
from clicktower.training.towers.text_batch import TextBatch
from clicktower.training.towers.tower_kinds import SelfAttentive
from clicktower.training.towers.tower_settings import SIGMA_MIN, GatedRecurrent


@dataclass(frozen=True, slots=True)
class BidirectionalLSTM:
    settings: GatedRecurrent
    lstm: type[LSTMTower] = LSTMTower  # of one way

    @property
    def one_way(self) -> LSTMTower:
        return self.lstm(self.settings)

    def forward(self, word_UG: torch.Tensor, parts: tower.Parts, batch: TextBatch) -> tower.Embedded:
        return self.last_states(word_UG, parts, batch), 0.0

    def last_states(self, word_UG: torch.Tensor, parts: tower.Parts, batch: TextBatch) -> torch.Tensor:
        """The last vectors of both, [N, D]."""
        return torch.cat([self.one_way.forward(*inputs)[0] for inputs in self.both_ways(word_UG, parts, batch)], dim=1)

    def every_state(self, word_UG: torch.Tensor, parts: tower.Parts, batch: TextBatch) -> torch.Tensor:
        """h(t) in each packed row, [P, D]."""
        right_Pd, left_Pd = (self.one_way.states(*inputs) for inputs in self.both_ways(word_UG, parts, batch))
        exchange = tower.opposite(batch), None
        return torch.cat([right_Pd, tower.gather_rows(left_Pd, exchange, exchange)], dim=1)

    def both_ways(
        self, word_UG: torch.Tensor, parts: tower.Parts, batch: TextBatch
    ) -> list[tuple[torch.Tensor, tower.Parts, TextBatch]]:
        """The inputs, the parts and the texts of each LSTM."""
        names = [name for name in ("W_rec", "b", "W_peep") if name in parts]
        # Contiguous, since every step multiplies by them.
        halves = [[half.contiguous() for half in parts[name].chunk(2, dim=-1)] for name in names]
        of_ways = (dict(zip(names, way, strict=True)) for way in zip(*halves, strict=True))
        return list(zip(word_UG.chunk(2, dim=1), of_ways, (batch, right_to_left(batch)), strict=True))


@dataclass(frozen=True, slots=True)
class MaxPooledTower(BidirectionalLSTM):
    """Every word is looked at, so there is no one step to count back from."""

    def forward(self, word_UG: torch.Tensor, parts: tower.Parts, batch: TextBatch) -> tower.Embedded:
        return tower.highest(self.every_state(word_UG, parts, batch), batch), 0.0


@dataclass(frozen=True, slots=True)
class SelfAttentiveTower(BidirectionalLSTM):
    """Every word is looked at, so there is no one step to count back from."""

    settings: SelfAttentive

    def forward(self, word_UG: torch.Tensor, parts: tower.Parts, batch: TextBatch) -> tower.Embedded:
        sums, penalties = [], []
        identity_rr = torch.eye(self.settings.hops, dtype=word_UG.dtype, device=word_UG.device)
        for weight_nTr, state_nTD in self.attention(self.every_state(word_UG, parts, batch), parts, batch):
            sums.append(weight_nTr.mT @ state_nTD)
            penalties.append((weight_nTr.mT @ weight_nTr - identity_rr).square().sum())
        sum_NrD = torch.cat(sums)
        vectors_Nd = sum_NrD.mean(1) if self.settings.average_hops else sum_NrD.flatten(1)
        return vectors_Nd, self.settings.penalty * torch.stack(penalties).sum()

    def attention(
        self, state_PD: torch.Tensor, parts: tower.Parts, batch: TextBatch
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """(Aᵀ, H) of all texts of one length [n, T, r], [n, T, D], given h(t); longest texts first."""
        order_P, place_P, _ = tower.reading_order(batch)
        state_PD = tower.gather_rows(state_PD, (order_P, None), (place_P, None))
        score_Pr = (state_PD @ parts["W_s1"]).tanh() @ parts["W_s2"]
        lengths = tower.length_groups(batch)
        words = [texts * length for texts, length in lengths]
        return [
            (score.unflatten(0, shape).softmax(1), state.unflatten(0, shape))
            for score, state, shape in zip(score_Pr.split(words), state_PD.split(words), lengths, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class VariationalTower(BidirectionalLSTM):
    def forward(self, word_UG: torch.Tensor, parts: tower.Parts, batch: TextBatch) -> tower.Embedded:
        state_ND = self.last_states(word_UG, parts, batch)
        mean_Nh = torch.addmm(parts["b_mu"], state_ND, parts["W_mu"])
        argument_Nh = torch.addmm(parts["b_sigma"], state_ND, parts["W_sigma"])
        deviation_Nh = torch.logaddexp(argument_Nh, argument_Nh.new_zeros(())) + SIGMA_MIN
        return torch.cat([mean_Nh, deviation_Nh], dim=1), 0.0


def right_to_left(batch: TextBatch) -> TextBatch:
    """The batch of the same texts with their words in reverse order."""
    exchange_P = tower.opposite(batch)
    return replace(batch, packed_words=batch.packed_words[exchange_P], words_packed=exchange_P[batch.words_packed])
