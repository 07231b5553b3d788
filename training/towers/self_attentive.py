"""The self-attentive tower (Lin et al., arXiv:1703.03130, section 2): r weighted sums of a bidirectional LSTM's states.

    h(t) of every_state; the rows of H                                                     (eq. 1-4)
    A    = softmax(W_s2 tanh(W_s1 Hᵀ)) over the words of the text, a row for each of r hops; no biases     (eq. 6)
    M    = A H                                                                                             (eq. 7)
    P    = ||A Aᵀ - I||²_F, times `penalty`, is added to the loss of every text                            (eq. 8)

The embedding is the rows of M one after the other, or their mean. r = 1 is the vector form (eq. 5). The LSTM is
lstm's, with its switches; the parts W_s1 and W_s2 are stored transposed, as they multiply rows. In a
text of one word every hop gives it the weight 1, and P is r² - r whatever the parameters are.

Shapes as in tower, with P packed rows (text_batch), D = 2 u states, a attention units, r hops;
n texts of T words each.
"""

from dataclasses import dataclass

import torch

from training.data.text_batch import TextBatch
from training.towers.every_state import EveryState, EveryStateTrace
from training.towers.lstm import LSTM
from training.towers.tower import Parts, Shapes, texts_of_one_length


@dataclass(frozen=True, slots=True)
class SelfAttentiveTrace:
    states: EveryStateTrace
    state_PD: torch.Tensor  # H of all texts
    hidden_Pa: torch.Tensor  # tanh(W_s1 Hᵀ)
    of_lengths: list[torch.Tensor]  # tower.texts_of_one_length
    weight_Pr: torch.Tensor  # A of all texts
    surplus: list[torch.Tensor]  # A Aᵀ - I of each text, [n, r, r] for each length


@dataclass(frozen=True, slots=True)
class SelfAttentive:
    one_way: LSTM
    attention_units: int  # d_a
    hops: int  # r
    penalty: float
    average: bool  # the rows of M; otherwise they stand side by side

    @property
    def columns(self) -> int:
        return self._states.columns

    @property
    def dimensions(self) -> int:
        return self._states.dimensions * (1 if self.average else self.hops)

    @property
    def parts(self) -> Shapes:
        attention: Shapes = (
            ("W_s1", (self._states.dimensions, self.attention_units)),
            ("W_s2", (self.attention_units, self.hops)),
        )
        return self._states.parts + attention

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> tuple[torch.Tensor, SelfAttentiveTrace]:
        """As tower.Tower.forward."""
        state_PD, states = self._states.forward(word_UG, parts, batch)
        hidden_Pa = (state_PD @ parts["W_s1"]).tanh_()
        weight_Pr = hidden_Pa @ parts["W_s2"]  # before the softmax over each text's words
        of_lengths, sums, surplus = texts_of_one_length(batch), [], []
        identity_rr = torch.eye(self.hops, dtype=word_UG.dtype, device=word_UG.device)
        for rows_nT in of_lengths:
            weight_nTr = torch.softmax(weight_Pr[rows_nT], dim=1)
            weight_Pr[rows_nT] = weight_nTr
            sums.append(weight_nTr.mT @ state_PD[rows_nT])
            surplus.append(weight_nTr.mT @ weight_nTr - identity_rr)
        sum_NrD = torch.cat(sums)
        vectors_Nd = sum_NrD.mean(1) if self.average else sum_NrD.flatten(1)
        return vectors_Nd, SelfAttentiveTrace(states, state_PD, hidden_Pa, of_lengths, weight_Pr, surplus)

    def own_loss(self, trace: SelfAttentiveTrace) -> torch.Tensor:
        """As tower.Penalised.own_loss: the penalty of all texts, []."""
        return self.penalty * torch.stack([surplus_nrr.square().sum() for surplus_nrr in trace.surplus]).sum()

    def backward(
        self, trace: SelfAttentiveTrace, by_vectors_Nd: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0
    ) -> tuple[torch.Tensor, Parts]:
        """As tower.Tower.backward; every word is looked at, so there is no one step to count from."""
        state_PD, hidden_Pa, weight_Pr = trace.state_PD, trace.hidden_Pa, trace.weight_Pr
        if self.average:
            by_sum_NrD = (by_vectors_Nd / self.hops)[:, None].expand(-1, self.hops, -1)
        else:
            by_sum_NrD = by_vectors_Nd.unflatten(1, (self.hops, -1))
        by_state_PD, by_score_Pr = torch.empty_like(state_PD), torch.empty_like(weight_Pr)
        by_sums = by_sum_NrD.split([len(rows_nT) for rows_nT in trace.of_lengths])
        for rows_nT, by_sum_nrD, surplus_nrr in zip(trace.of_lengths, by_sums, trace.surplus, strict=True):
            weight_nTr = weight_Pr[rows_nT]
            by_state_PD[rows_nT] = weight_nTr @ by_sum_nrD
            by_weight_nTr = state_PD[rows_nT] @ by_sum_nrD.mT
            by_weight_nTr += 4 * self.penalty * (weight_nTr @ surplus_nrr)  # A Aᵀ - I is symmetric
            product_nTr = weight_nTr * by_weight_nTr
            by_score_Pr[rows_nT] = product_nTr - weight_nTr * product_nTr.sum(1, keepdim=True)
        by_argument_Pa = (by_score_Pr @ parts["W_s2"].t()).mul_(1 - hidden_Pa.square())
        by_state_PD += by_argument_Pa @ parts["W_s1"].t()
        by_word_UG, by_parts = self._states.backward(trace.states, by_state_PD, parts, batch)
        return by_word_UG, {**by_parts, "W_s1": state_PD.t() @ by_argument_Pa, "W_s2": hidden_Pa.t() @ by_score_Pr}

    @property
    def _states(self) -> EveryState:
        return EveryState(self.one_way)
