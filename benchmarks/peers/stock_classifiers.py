"""The step of labelled pairs in stock parts: nn.EmbeddingBag, nn.LSTM, nn.Linear, F.cross_entropy and autograd.

One text encoder for each tower, and the features, the ReLU layer and the softmax layer of each head, as one would write
them. Dropout is left out.

Shapes: B texts, T words of the longest one, D states, r hops, d dimensions of an embedding.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from benchmarks.peers.stock_bilstm import StockBilstm, StockTexts, Tensors
from clicktower.training.model.recipe import Recipe
from clicktower.training.towers.tower_settings import SIGMA_MIN

Arrangement = Literal["each side", "both sides"]  # what goes through the encoder at once


class LastStates(nn.Module):
    """siamese-lstm's: the last states of both directions."""

    own_parts: Mapping[str, str] = {}  # the trainer's names, and the parameters here

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.dimensions = 2 * recipe.tower.cells

    def forward(self, states: PackedSequence, last_BD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | float]:
        """(embeddings [B, d], the encoder's own loss)."""
        return last_BD, 0.0


class Maximum(LastStates):
    """siamese-max's: the maximum over the words."""

    def forward(self, states: PackedSequence, last_BD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | float]:
        """As LastStates.forward."""
        state_BTD, _ = pad_packed_sequence(states, batch_first=True, padding_value=-torch.inf)
        return state_BTD.max(dim=1).values, 0.0


class Attention(nn.Module):
    """gated-attention's: r weighted sums, and the penalty ||A Aᵀ - I||² of each text."""

    own_parts: Mapping[str, str] = {"W_s1": "W_s1.weight", "W_s2": "W_s2.weight"}

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.penalty, self.dimensions = recipe.tower.penalty, 2 * recipe.tower.cells * recipe.tower.hops
        self.W_s1 = nn.Linear(2 * recipe.tower.cells, recipe.tower.attention_units, bias=False)
        self.W_s2 = nn.Linear(recipe.tower.attention_units, recipe.tower.hops, bias=False)

    def forward(self, states: PackedSequence, last_BD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As LastStates.forward."""
        state_BTD, lengths_B = pad_packed_sequence(states, batch_first=True)
        beyond_BT = torch.arange(state_BTD.shape[1]) >= lengths_B[:, None]
        score_BTr = self.W_s2(torch.tanh(self.W_s1(state_BTD))).masked_fill(beyond_BT[:, :, None], -torch.inf)
        weight_BrT = torch.softmax(score_BTr, dim=1).mT
        surplus_Brr = weight_BrT @ weight_BrT.mT - torch.eye(weight_BrT.shape[1])
        return (weight_BrT @ state_BTD).flatten(1), self.penalty * surplus_Brr.square().sum()


class Distribution(nn.Module):
    """The head inputs of var-siamese: μ and σ concatenated."""

    own_parts: Mapping[str, str] = {
        "W_mu": "mu.weight",
        "b_mu": "mu.bias",
        "W_sigma": "sigma.weight",
        "b_sigma": "sigma.bias",
    }

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.dimensions = 2 * recipe.tower.latent
        self.mu = nn.Linear(2 * recipe.tower.cells, recipe.tower.latent)
        self.sigma = nn.Linear(2 * recipe.tower.cells, recipe.tower.latent)

    def forward(self, states: PackedSequence, last_BD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | float]:
        """As LastStates.forward."""
        return torch.cat([self.mu(last_BD), F.softplus(self.sigma(last_BD)) + SIGMA_MIN], dim=1), 0.0


ABOVE = {"bilstm": LastStates, "max_pooled": Maximum, "self_attentive": Attention, "variational": Distribution}


class PlainFeatures(nn.Module):
    """A single text's embedding."""

    def __init__(self, recipe: Recipe, dimensions: int) -> None:
        super().__init__()
        self.number = dimensions

    def forward(self, a_Bd: torch.Tensor) -> torch.Tensor:
        return a_Bd


class SiameseFeatures(nn.Module):
    """[a, b, |a - b|, a ∘ b]"""

    def __init__(self, recipe: Recipe, dimensions: int) -> None:
        super().__init__()
        self.number = 4 * dimensions

    def forward(self, a_Bd: torch.Tensor, b_Bd: torch.Tensor) -> torch.Tensor:
        return torch.cat([a_Bd, b_Bd, (a_Bd - b_Bd).abs(), a_Bd * b_Bd], dim=1)


class GatedFeatures(nn.Module):
    """Row by row, the two texts' factors multiplied."""

    def __init__(self, recipe: Recipe, dimensions: int) -> None:
        super().__init__()
        width = dimensions // recipe.tower.hops
        factors = recipe.objective.features.factors or width
        self.number = recipe.tower.hops * factors
        self.W_fp = nn.Parameter(torch.randn(recipe.tower.hops, width, factors) / width**0.5)
        self.W_fh = nn.Parameter(torch.randn(recipe.tower.hops, width, factors) / width**0.5)

    def forward(self, a_Bd: torch.Tensor, b_Bd: torch.Tensor) -> torch.Tensor:
        factors = [
            torch.einsum("brw,rwk->brk", vector_Bd.unflatten(1, (len(weights), -1)), weights)
            for vector_Bd, weights in ((a_Bd, self.W_fp), (b_Bd, self.W_fh))
        ]
        return (factors[0] * factors[1]).flatten(1)


class W2Features(nn.Module):
    """(μ_1 - μ_2)², (σ_1 - σ_2)², μ_1 ∘ μ_2"""

    def __init__(self, recipe: Recipe, dimensions: int) -> None:
        super().__init__()
        self.number = 3 * recipe.tower.latent

    def forward(self, a_Bd: torch.Tensor, b_Bd: torch.Tensor) -> torch.Tensor:
        (a_mu, _), (b_mu, _) = a_Bd.chunk(2, dim=1), b_Bd.chunk(2, dim=1)
        return torch.cat([(a_Bd - b_Bd).square(), a_mu * b_mu], dim=1)


FEATURES = {"plain": PlainFeatures, "siamese": SiameseFeatures, "gated": GatedFeatures, "w2": W2Features}


class StockClassifier(nn.Module):
    """A recipe's model with torch's own start. Its gradient is in the parameters' .grad after `gradient`."""

    def __init__(self, recipe: Recipe, table_rows: int, word_columns: int, classes: int) -> None:
        super().__init__()
        self.l1, self.l2 = recipe.objective.l1, recipe.objective.l2
        self.encoder = StockBilstm(table_rows, word_columns, recipe.tower.cells)
        self.above = ABOVE[recipe.tower.kind](recipe)
        self.features = FEATURES[recipe.objective.features.kind](recipe, self.above.dimensions)
        self.hidden = nn.Linear(self.features.number, recipe.objective.head.units)
        self.out = nn.Linear(recipe.objective.head.units, classes)

    def gradient(self, texts: Sequence[StockTexts], labels: torch.Tensor) -> float:
        """Differentiate the loss summed over the pairs; gives it. `texts`: of each side, or of both, one after the
        other."""
        self.zero_grad()
        encoded = [self.above(*self.encoder(each)) for each in texts]
        sides = torch.cat([vectors_Bd for vectors_Bd, _ in encoded]).split(len(labels))
        logits_BC = self.out(F.relu(self.hidden(self.features(*sides))))
        loss = F.cross_entropy(logits_BC, labels, reduction="sum") + sum(own for _, own in encoded)
        if self.l1:
            weights = self.hidden.weight.abs().sum() + self.out.weight.abs().sum()
            loss = loss + self.l1 * len(labels) * weights
        if self.l2:
            weights = self.hidden.weight.square().sum() + self.out.weight.square().sum()
            loss = loss + self.l2 * len(labels) * weights
        loss.backward()
        return loss.item()

    def parts(self, values: Tensors) -> Tensors:
        """Its parameters without the bag and the input matrix, or their gradients, as the trainer has them."""
        encoder, features = _under("encoder.", values), _under("features.", values)
        above = {part: values[f"above.{name}"] for part, name in self.above.own_parts.items()}
        head = {"W_1": "hidden.weight", "b_1": "hidden.bias", "W_2": "out.weight", "b_2": "out.bias"}
        return {
            **self.encoder.parts(encoder),
            **{part: value.t() for part, value in above.items()},  # nn.Linear's weights multiply columns
            **{f"head.{part}": values[name].t() for part, name in head.items()},
            **{f"head.{part}": value for part, value in features.items()},
        }


def _under(prefix: str, values: Tensors) -> Tensors:
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}
