"""Heads: the embeddings of a labelled text, or of both texts of a labelled pair, become logits of classes.

    x = features of the embeddings        h = max(0, L(x) + b_1)        logits = h W_2 + b_2

L is x W_1, or the pruned map (`pruned`). In training, random numbers of x and of h are dropped (dropout) and the others
scaled up, so that evaluation needs no change:

    x' = x / (1 - p) if x is kept, with probability 1 - p, else 0        ("inverted" dropout)

Shapes: B labelled texts or pairs, d dimensions of an embedding, F features, H hidden units, C classes. An embedding may
be a matrix, its r rows of w numbers concatenated (self-attentive towers); for other towers r is 1. Features are a
matrix too, laid out flat. All parts are stored in the form that multiplies rows.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from clicktower.schemas.errors import UsageError
from clicktower.training.model import label_settings
from clicktower.training.model.model_folder import Outputs
from clicktower.training.model.recipe import Recipe
from clicktower.training.towers.threads import empty, in_blocks
from clicktower.training.towers.tower import Parts
from clicktower.training.towers.tower_settings import Shapes

Vectors = tuple[torch.Tensor, ...]  # (x [B, d],) of labelled texts, (a [B, d], b [B, d]) of labelled pairs
Unit = Literal["pairs", "texts"]


class Masks(NamedTuple):
    """What dropout keeps in one micro-batch."""

    features: torch.Tensor  # bool [B, F]
    hidden: torch.Tensor  # bool [B, H]


@dataclass(frozen=True, slots=True)
class Head:
    """Features of the embeddings, one hidden layer of ReLU units, a softmax layer."""

    settings: label_settings.Classify
    vector_rows: int  # r
    vector_width: int  # w
    classes: int

    @property
    def features(self) -> tuple[int, int]:
        """(rows, numbers in a row) of the matrix of features; F is their product."""
        r, w = self.vector_rows, self.vector_width
        match self.settings.features:
            case label_settings.PlainFeatures():
                return r, w
            case label_settings.SiameseFeatures():
                return 4 * r, w
            case label_settings.W2Features():
                return 3, r * w // 2
            case label_settings.GatedFeatures(factors=factors):
                return r, factors or w
        raise AssertionError(self.settings.features)

    @property
    def hidden(self) -> int:
        """H."""
        (rows, width), head = self.features, self.settings.head
        if isinstance(head, label_settings.Pruned):
            return rows * head.row_units + width * head.column_units
        assert isinstance(head, label_settings.MLP)
        return head.units

    @property
    def parts(self) -> Shapes:
        """All parameters. Each name begins with `head.`."""
        (rows, width), settings = self.features, self.settings
        shapes: list[tuple[str, tuple[int, ...]]] = []
        if isinstance(settings.features, label_settings.GatedFeatures):
            shapes += [(name, (rows, self.vector_width, width)) for name in ("head.W_fh", "head.W_fp")]
        if isinstance(settings.head, label_settings.Pruned):
            shapes += [
                ("head.W_v", (rows, width, settings.head.row_units)),
                ("head.W_h", (width, rows, settings.head.column_units)),
            ]
        else:
            shapes.append(("head.W_1", (rows * width, self.hidden)))
        above = ("head.b_1", (self.hidden,)), ("head.W_2", (self.hidden, self.classes)), ("head.b_2", (self.classes,))
        return (*shapes, *above)

    def initial(self, generator: np.random.Generator) -> dict[str, torch.Tensor]:
        """Initial values of the parts, float64, drawn in the order of `parts`, row by row.

        Weights are uniform in ±√(6 / (inputs + outputs)) (Glorot and Bengio 2010, eq. 16), with the inputs and outputs
        of one matrix if a part has several; biases are 0.
        """
        values = {}
        for name, shape in self.parts:
            if len(shape) == 1:
                values[name] = torch.zeros(shape, dtype=torch.float64)
            else:
                limit = math.sqrt(6 / (shape[-2] + shape[-1]))
                values[name] = torch.from_numpy((2 * generator.random(shape) - 1) * limit)
        return values

    def logits(self, vectors: Vectors, parts: Parts, masks: Masks | None = None) -> torch.Tensor:
        """[B, C]. `masks`: None without dropout, as in evaluation."""
        features_BF = self._features(vectors, parts)
        if masks is not None:
            features_BF = dropped(features_BF, masks.features, self.settings.dropout)
        if isinstance(self.settings.head, label_settings.Pruned):
            arriving_BH = pruned(features_BF, parts["head.W_v"], parts["head.W_h"])
        else:
            arriving_BH = _Product.apply(features_BF, parts["head.W_1"])
        hidden_BH = (arriving_BH + parts["head.b_1"]).relu()
        if masks is not None:
            hidden_BH = dropped(hidden_BH, masks.hidden, self.settings.dropout)
        return torch.addmm(parts["head.b_2"], hidden_BH, parts["head.W_2"])

    def _features(self, vectors: Vectors, parts: Parts) -> torch.Tensor:
        if isinstance(self.settings.features, label_settings.PlainFeatures):
            return vectors[0]
        a_Bd, b_Bd = vectors
        match self.settings.features:
            case label_settings.SiameseFeatures():
                return siamese(a_Bd, b_Bd)
            case label_settings.W2Features():
                return w2(a_Bd, b_Bd)
        return gated(a_Bd, b_Bd, parts["head.W_fp"], parts["head.W_fh"])


class _Product(torch.autograd.Function):
    """x W, for a matrix or equally many matrices.

    On a CPU the gradients go through W a stretch of rows at a time, so that both products find it in the cache, and lie
    in reused memory, since fetching new pages takes longer than filling them.
    """

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(values, weights)
        return values @ weights

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, by_product: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values, weights = ctx.saved_tensors
        by_values, by_weights = empty(values.shape, values), empty(weights.shape, weights)
        stretch = max(1, _STRETCH // weights.shape[-1]) if weights.device.type == "cpu" else weights.shape[-2]
        arrays = values.mT, weights, by_values.mT, by_weights
        for columns, rows, by_columns, by_rows in zip(*(array.split(stretch, dim=-2) for array in arrays), strict=True):
            torch.matmul(by_product, rows.mT, out=by_columns.mT)
            torch.matmul(columns, by_product, out=by_rows)
        return by_values, by_weights


_STRETCH = 1 << 19  # numbers of W


def siamese(a_Bd: torch.Tensor, b_Bd: torch.Tensor) -> torch.Tensor:
    """Features of a pair of any two vectors: [a, b, |a - b|, a ∘ b], [B, 4 d].

    InferSent's (Conneau et al., arXiv:1705.02364, section 3.1). |x| has the derivative 0 at 0, so two equal texts do
    not push each other apart.
    """
    return torch.cat([a_Bd, b_Bd, (a_Bd - b_Bd).abs(), a_Bd * b_Bd], dim=1)


def w2(a_Bd: torch.Tensor, b_Bd: torch.Tensor) -> torch.Tensor:
    """Features of a pair of normal distributions, N(μ_1, diag σ_1²) and N(μ_2, diag σ_2²), [B, 3 h] with d = 2 h.

        W_2² = Σ_i (μ_1i - μ_2i)² + (σ_1i - σ_2i)²

    The terms of that sum before they are summed, and the Hadamard product (Deudon, "Learning semantic similarity in a
    continuous space", 2018): three rows of h features, (μ_1 - μ_2)², (σ_1 - σ_2)² and μ_1 ∘ μ_2. The author's program
    adds the first two per dimension; apart, the hidden layer may weigh them alike or not. An embedding is μ and σ side
    by side, h numbers each, as the variational tower gives it.
    """
    h = a_Bd.shape[1] // 2
    return torch.cat([(a_Bd - b_Bd).square(), a_Bd[:, :h] * b_Bd[:, :h]], dim=1)


def gated(a_Bd: torch.Tensor, b_Bd: torch.Tensor, W_fp: torch.Tensor, W_fh: torch.Tensor) -> torch.Tensor:
    """Features of a pair of matrices by the gated encoder, [B, r k]; both weights are [r, w, k].

        F_h = batcheddot(M_h, W_fh)        row i of M_h times the i-th of r matrices
        F_p = batcheddot(M_p, W_fp)
        F_r = F_h ∘ F_p                    these are the features, no biases

    Lin et al., arXiv:1703.03130, section 4.3 and appendix B. M_p is the premise, a pair's first text, and M_h its
    hypothesis, the second. The paper leaves k, the width of the factors, open; the authors' program uses the width of a
    row of M, and also applies dropout to M_h and M_p, while here dropout begins at F_r.
    """
    premise_rBw, hypothesis_rBw = (x_Bd.unflatten(1, (len(W_fp), -1)).transpose(0, 1) for x_Bd in (a_Bd, b_Bd))
    factors_rBk = _Product.apply(premise_rBw, W_fp) * _Product.apply(hypothesis_rBw, W_fh)
    return factors_rBk.transpose(0, 1).flatten(1)


def pruned(features_BF: torch.Tensor, W_v: torch.Tensor, W_h: torch.Tensor) -> torch.Tensor:
    """The input of hidden units that each see one row or one column of M (Lin et al., appendix A), [B, H].

        M^v   r groups of p units; group i sees row i of M alone           W_v [r, 2u, p]
        M^h   2u groups of q units; group j sees column j of M alone       W_h [2u, r, q]

    Hidden units come in groups: first of M^v, then of M^h. M is a matrix of any features; for SNLI it is
    the gated encoder's F_r. The appendix calls M r by u; the numbers of weights in its Table 4 need 2u.
    """
    features_Brw = features_BF.unflatten(1, (len(W_v), -1))
    at_rows_Brp = torch.einsum("brw,rwp->brp", features_Brw, W_v)
    at_columns_Bwq = torch.einsum("brw,wrq->bwq", features_Brw, W_h)
    return torch.cat([at_rows_Brp.flatten(1), at_columns_Bwq.flatten(1)], dim=1)


def draw_masks(head: Head, size: int, generator: np.random.Generator) -> Masks | None:
    """Masks on the CPU for `size` texts or pairs; None for a head without dropout, and nothing is drawn.

    A function of the generator's state alone: first the features' mask row by row, then the hidden units'.
    """
    if not head.settings.dropout:
        return None
    # Steps of 2^-24 are fine enough for a probability, and drawing float32 takes half the time.
    drawn = (
        generator.random((size, width), dtype=np.float32) >= head.settings.dropout
        for width in (math.prod(head.features), head.hidden)
    )
    return Masks(*map(torch.from_numpy, drawn))


def dropped(values: torch.Tensor, kept: torch.Tensor, dropout: float) -> torch.Tensor:
    """The values scaled up, with 0 for those that are dropped."""
    return values * kept * (1 / (1 - dropout))


def penalise(gradient: Mapping[str, torch.Tensor], parts: Parts, l1: float, l2: float) -> torch.Tensor:
    """Σ (l1 |w| + l2 w²) over the weights of a head, not its biases, as both authors' programs have it; [].

    Its gradient, l1 sign(w) + 2 l2 w, is added to the contiguous `gradient` of the parts, a block at a time, since the
    weights may be all that a model is large for. L1 is Deudon's (1e-5), L2 Lin et al.'s (1e-4). Both add it to the MEAN
    of a minibatch's losses: to a sum over B texts or pairs it is B times as much.
    """
    total = next(iter(parts.values())).new_zeros(())
    for name in (name for name in parts if name.startswith("head.W_")):
        for weights, by_weights in zip(
            *(in_blocks(arrays[name].view(-1)) for arrays in (parts, gradient)), strict=True
        ):
            if l1:
                total += l1 * weights.abs().sum()
                by_weights.add_(weights.sign(), alpha=l1)
            if l2:
                total += l2 * weights.dot(weights)
                by_weights.add_(weights, alpha=2 * l2)
    return total


def head_of_model(recipe: Recipe, outputs: Outputs) -> Head:
    """The head for a recipe's classes."""
    assert isinstance(recipe.objective, label_settings.Classify)
    return head_of(
        recipe.objective,
        dimensions=recipe.tower.dimensions,
        rows=recipe.tower.rows,
        classes=len(outputs.classes),
        unit=outputs.unit or "texts",
    )


def head_of(settings: label_settings.Classify, *, dimensions: int, rows: int, classes: int, unit: Unit) -> Head:
    """The head for labelled pairs or texts whose embeddings have `dimensions` numbers in `rows` equal rows.

    Raises UsageError for features that do not fit the unit, for w2 with an odd number of dimensions, and for fewer than
    two classes.
    """
    assert dimensions % rows == 0, f"{dimensions} dimensions are not {rows} equal rows"
    of_pairs = not isinstance(settings.features, label_settings.PlainFeatures)
    if of_pairs != (unit == "pairs"):
        raise UsageError(
            f"The features {settings.features.kind} are those of {'two embeddings' if of_pairs else 'one embedding'},"
            f" and the labelled data are {unit}.",
            "Use plain for texts, and w2, siamese or gated for pairs.",
        )
    if isinstance(settings.features, label_settings.W2Features) and dimensions % 2:
        raise UsageError(
            f"The features w2 need an embedding of two halves, μ and σ, and this one has {dimensions} dimensions.",
            "Use a tower that gives both (variational), or the features siamese.",
        )
    if classes < 2:
        raise UsageError(
            f"The labelled {unit} have {classes} class{'es' * (classes != 1)}, so there is nothing to tell apart.",
            "Use data whose labels have at least two classes.",
        )
    return Head(settings, rows, dimensions // rows, classes)
