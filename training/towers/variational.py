"""The variational tower (Deudon's VAR-Siamese): a text becomes a normal distribution with a diagonal covariance.

    s     = the last states of both directions of a bidirectional LSTM, side by side
    μ     = s W_mu + b_mu
    σ     = softplus(s W_sigma + b_sigma) + SIGMA_MIN                softplus(x) = log(1 + e^x)

The embedding is μ and σ side by side, so the Euclidean distance of two embeddings is the Wasserstein distance W₂ of
their distributions: W₂² = ||μ1 - μ2||² + ||σ1 - σ2||². Our decision: where e^x underflows, σ is SIGMA_MIN, never 0, so
that its logarithm and 1/σ are finite.

Shapes as in tower, with D = 2 cells, h dimensions of the distribution, d = 2 h.
"""

from dataclasses import dataclass

import torch

from training.data.text_batch import TextBatch
from training.towers.bilstm import BidirectionalLSTM, BidirectionalTrace
from training.towers.tower import Parts, Shapes

SIGMA_MIN = 1e-3


@dataclass(frozen=True, slots=True)
class VariationalTrace:
    both: BidirectionalTrace
    state_ND: torch.Tensor  # s
    by_argument_Nh: torch.Tensor  # dσ by softplus's argument


@dataclass(frozen=True, slots=True)
class Variational:
    both: BidirectionalLSTM
    latent: int  # h

    @property
    def columns(self) -> int:
        return self.both.columns

    @property
    def dimensions(self) -> int:
        return 2 * self.latent

    @property
    def parts(self) -> Shapes:
        weights, bias = (self.both.dimensions, self.latent), (self.latent,)
        ours: Shapes = (("W_mu", weights), ("b_mu", bias), ("W_sigma", weights), ("b_sigma", bias))
        return self.both.parts + ours

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> tuple[torch.Tensor, VariationalTrace]:
        """As tower.Tower.forward."""
        state_ND, both = self.both.forward(word_UG, self._recurrent(parts), batch)
        mean_Nh = torch.addmm(parts["b_mu"], state_ND, parts["W_mu"])
        argument_Nh = torch.addmm(parts["b_sigma"], state_ND, parts["W_sigma"])
        deviation_Nh = torch.logaddexp(argument_Nh, argument_Nh.new_zeros(())) + SIGMA_MIN
        return torch.cat([mean_Nh, deviation_Nh], dim=1), VariationalTrace(both, state_ND, argument_Nh.sigmoid_())

    def backward(
        self, trace: VariationalTrace, by_vectors_Nd: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0
    ) -> tuple[torch.Tensor, Parts]:
        """As tower.Tower.backward."""
        by_mean_Nh, by_deviation_Nh = by_vectors_Nd.chunk(2, dim=1)
        by_argument_Nh = by_deviation_Nh * trace.by_argument_Nh
        by_state_ND = by_mean_Nh @ parts["W_mu"].t() + by_argument_Nh @ parts["W_sigma"].t()
        by_word_UG, by_parts = self.both.backward(trace.both, by_state_ND, self._recurrent(parts), batch, steps)
        return by_word_UG, {
            **by_parts,
            "W_mu": trace.state_ND.t() @ by_mean_Nh,
            "b_mu": by_mean_Nh.sum(0),
            "W_sigma": trace.state_ND.t() @ by_argument_Nh,
            "b_sigma": by_argument_Nh.sum(0),
        }

    def _recurrent(self, parts: Parts) -> Parts:
        return {name: parts[name] for name, _ in self.both.parts}
