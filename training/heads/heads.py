"""The head that settings ask for."""

from dataclasses import dataclass
from typing import Any, Literal

import torch

from schemas.errors import UsageError
from training.heads.head import Features, Gradients, Head, HeadSettings, Masks, Vectors
from training.heads.layers import DenseLayer, HiddenLayer, PrunedLayer, dropped
from training.towers.tower import Parts, Shapes

Unit = Literal["pairs", "texts"]


def head_of(settings: HeadSettings, *, dimensions: int, rows: int, classes: int, unit: Unit) -> Head:
    """The head for labelled pairs or texts whose embeddings have `dimensions` numbers in `rows` equal rows.

    Raises UsageError for features that do not fit the unit, for w2 of an odd number of dimensions, and for fewer than
    two classes.
    """
    _require_fitting(settings, dimensions, classes, unit)
    features = _features(settings, dimensions, rows)
    layer: HiddenLayer
    match settings.kind:
        case "mlp":
            layer = DenseLayer(features.rows * features.row_width, settings.hidden)
        case "pruned":
            layer = PrunedLayer(features.rows, features.row_width, settings.row_units, settings.column_units)
    return Classifier(features, layer, classes, settings.dropout)


def _features(settings: HeadSettings, dimensions: int, rows: int) -> Features:
    assert dimensions % rows == 0, f"{dimensions} dimensions are not {rows} equal rows"
    row_width = dimensions // rows
    match settings.features:
        case "plain":
            return Plain(rows, row_width)
        case "w2":
            return W2(dimensions // 2)
        case "siamese":
            return Siamese(rows, row_width)
        case "gated":
            return Gated(rows, row_width, settings.factors or row_width)


def _require_fitting(settings: HeadSettings, dimensions: int, classes: int, unit: Unit) -> None:
    of_pairs = settings.features != "plain"
    if of_pairs != (unit == "pairs"):
        raise UsageError(
            asked=f"labelled {unit} were to be classified by the features {settings.features}",
            found=f"those are of {'two embeddings' if of_pairs else 'one embedding'}",
            do="use plain for texts, and w2, siamese or gated for pairs",
        )
    if settings.features == "w2" and dimensions % 2:
        raise UsageError(
            asked="labelled pairs were to be classified by the features w2",
            found=f"an embedding has {dimensions} dimensions, which are not two halves",
            follows="there would be no μ and σ in it",
            do="use a tower that gives both (variational), or the features siamese",
        )
    if classes < 2:
        raise UsageError(
            asked=f"labelled {unit} were to be classified",
            found=f"they have {classes} class" + "es" * (classes != 1),
            follows="there would be nothing to tell apart",
            do="use data whose labels have at least two classes",
        )


# The head: features of the embeddings, one hidden layer of ReLU units, a softmax layer.
#
#     x = features        h = max(0, L(x) + b_1)        logits = h W_2 + b_2
#
# L is x W_1, or the pruned map (layers). In training, x and h go through dropout
# (layers). max(0, x) has the derivative 0 at 0.
#
# Shapes as in head.


@dataclass(frozen=True, slots=True)
class ClassifierTrace:
    of_features: Any
    features_BF: torch.Tensor  # after dropout
    hidden_BH: torch.Tensor  # after dropout
    masks: Masks | None


@dataclass(frozen=True, slots=True)
class Classifier:
    features: Features
    layer: HiddenLayer
    classes: int
    dropout: float

    @property
    def parts(self) -> Shapes:
        units = self.layer.units
        above: Shapes = (
            ("head.b_1", (units,)),
            ("head.W_2", (units, self.classes)),
            ("head.b_2", (self.classes,)),
        )
        return self.features.parts + self.layer.parts + above

    @property
    def droppable(self) -> tuple[int, int]:
        return self.features.rows * self.features.row_width, self.layer.units

    def forward(self, vectors: Vectors, parts: Parts, masks: Masks | None) -> tuple[torch.Tensor, ClassifierTrace]:
        """As head.Head.forward."""
        features_BF, of_features = self.features.forward(vectors, parts)
        if masks is not None:
            features_BF = dropped(features_BF, masks.features, self.dropout)
        hidden_BH = self.layer.forward(features_BF, parts).add_(parts["head.b_1"]).relu_()
        if masks is not None:
            hidden_BH = dropped(hidden_BH, masks.hidden, self.dropout)
        logits_BC = torch.addmm(parts["head.b_2"], hidden_BH, parts["head.W_2"])
        return logits_BC, ClassifierTrace(of_features, features_BF, hidden_BH, masks)

    def backward(self, trace: ClassifierTrace, by_logits_BC: torch.Tensor, parts: Parts) -> tuple[Vectors, Gradients]:
        """As head.Head.backward."""
        by_arrived_BH = by_logits_BC @ parts["head.W_2"].t()
        if trace.masks is not None:
            by_arrived_BH = dropped(by_arrived_BH, trace.masks.hidden, self.dropout)
        by_arrived_BH *= trace.hidden_BH > 0
        by_features_BF, by_layer = self.layer.backward(trace.features_BF, by_arrived_BH, parts)
        if trace.masks is not None:
            by_features_BF = dropped(by_features_BF, trace.masks.features, self.dropout)
        by_vectors, by_features_parts = self.features.backward(trace.of_features, by_features_BF, parts)
        above = {
            "head.b_1": by_arrived_BH.sum(0),
            "head.W_2": trace.hidden_BH.t() @ by_logits_BC,
            "head.b_2": by_logits_BC.sum(0),
        }
        return by_vectors, {**by_features_parts, **by_layer, **above}


# Features of a pair of any two vectors: [a, b, |a - b|, a ∘ b] (InferSent: Conneau et al., arXiv:1705.02364, Fig. 1).
#
# Section 3.1 names them as the concatenation, the element-wise product and the absolute element-wise difference of the
# two. |x| has the derivative 0 at 0, so two equal texts do not drive each other apart.
#
# Shapes as in head, with F = 4 d.


@dataclass(frozen=True, slots=True)
class Siamese:
    vector_rows: int  # of one embedding
    row_width: int

    @property
    def rows(self) -> int:
        return 4 * self.vector_rows

    @property
    def parts(self) -> Shapes:
        return ()

    def forward(self, vectors: Vectors, parts: Parts) -> tuple[torch.Tensor, Vectors]:
        """As head.Features.forward."""
        first_Bd, second_Bd = vectors
        return torch.cat([first_Bd, second_Bd, (first_Bd - second_Bd).abs_(), first_Bd * second_Bd], dim=1), vectors

    def backward(self, trace: Vectors, by_features_BF: torch.Tensor, parts: Parts) -> tuple[Vectors, Gradients]:
        """As head.Features.backward."""
        first_Bd, second_Bd = trace
        by_first_Bd, by_second_Bd, by_distance_Bd, by_product_Bd = by_features_BF.chunk(4, dim=1)
        by_difference_Bd = (first_Bd - second_Bd).sign_() * by_distance_Bd
        return (
            by_first_Bd + by_difference_Bd + second_Bd * by_product_Bd,
            by_second_Bd - by_difference_Bd + first_Bd * by_product_Bd,
        ), {}


# Features of a pair of matrices: the gated encoder (Lin et al., arXiv:1703.03130, section 4.3 and appendix B).
#
#     F_h = batcheddot(M_h, W_fh)        row i of M_h times the i-th of r matrices
#     F_p = batcheddot(M_p, W_fp)
#     F_r = F_h ∘ F_p                    these are the features, no biases
#
# It is the encoder of Memisevic's factored gated autoencoder. M_p is the premise, a pair's first text, and M_h its
# hypothesis, the second. The paper leaves k, the width of the factors, open; the authors' program has it as wide as a
# row of M, and also drops out M_h and M_p, where here dropout begins at F_r.
#
# Shapes as in head, with k factors in a row and F = r k.


@dataclass(frozen=True, slots=True)
class GatedTrace:
    premise_Brw: torch.Tensor
    hypothesis_Brw: torch.Tensor
    premise_factor_Brk: torch.Tensor  # F_p
    hypothesis_factor_Brk: torch.Tensor  # F_h


@dataclass(frozen=True, slots=True)
class Gated:
    rows: int
    vector_width: int  # w, numbers in a row of an embedding
    factors: int  # k

    @property
    def row_width(self) -> int:
        return self.factors

    @property
    def parts(self) -> Shapes:
        shape = (self.rows, self.vector_width, self.factors)
        return ("head.W_fh", shape), ("head.W_fp", shape)

    def forward(self, vectors: Vectors, parts: Parts) -> tuple[torch.Tensor, GatedTrace]:
        """As head.Features.forward."""
        premise_Brw, hypothesis_Brw = (vector_Bd.unflatten(1, (self.rows, -1)) for vector_Bd in vectors)
        trace = GatedTrace(
            premise_Brw,
            hypothesis_Brw,
            torch.einsum("brw,rwk->brk", premise_Brw, parts["head.W_fp"]),
            torch.einsum("brw,rwk->brk", hypothesis_Brw, parts["head.W_fh"]),
        )
        return (trace.premise_factor_Brk * trace.hypothesis_factor_Brk).flatten(1), trace

    def backward(self, trace: GatedTrace, by_features_BF: torch.Tensor, parts: Parts) -> tuple[Vectors, Gradients]:
        """As head.Features.backward."""
        by_product_Brk = by_features_BF.unflatten(1, (self.rows, -1))
        by_premise_factor_Brk = by_product_Brk * trace.hypothesis_factor_Brk
        by_hypothesis_factor_Brk = by_product_Brk * trace.premise_factor_Brk
        by_premise_Brw = torch.einsum("brk,rwk->brw", by_premise_factor_Brk, parts["head.W_fp"])
        by_hypothesis_Brw = torch.einsum("brk,rwk->brw", by_hypothesis_factor_Brk, parts["head.W_fh"])
        return (by_premise_Brw.flatten(1), by_hypothesis_Brw.flatten(1)), {
            "head.W_fh": torch.einsum("brw,brk->rwk", trace.hypothesis_Brw, by_hypothesis_factor_Brk),
            "head.W_fp": torch.einsum("brw,brk->rwk", trace.premise_Brw, by_premise_factor_Brk),
        }


# Features of a labelled text: its embedding as it is, M of Lin et al. or a vector.


@dataclass(frozen=True, slots=True)
class Plain:
    rows: int
    row_width: int

    @property
    def parts(self) -> Shapes:
        return ()

    def forward(self, vectors: Vectors, parts: Parts) -> tuple[torch.Tensor, None]:
        """As head.Features.forward; the features are the vectors themselves."""
        (vector_Bd,) = vectors
        return vector_Bd, None

    def backward(self, trace: None, by_features_BF: torch.Tensor, parts: Parts) -> tuple[Vectors, Gradients]:
        """As head.Features.backward."""
        return (by_features_BF,), {}


# Features of a pair of normal distributions (Deudon, "Learning semantic similarity in a continuous space", 2018).
#
#     W_2² = Σ_i (μ_1i - μ_2i)² + (σ_1i - σ_2i)²        of N(μ_1, diag σ_1²) and N(μ_2, diag σ_2²)
#
# What is classified are the terms of that sum before they are summed, and the Hadamard product μ_1 ∘ μ_2: three rows of
# h features, (μ_1 - μ_2)², (σ_1 - σ_2)² and μ_1 ∘ μ_2. The author's program adds the first two per dimension and so has
# two rows of h; apart, the hidden layer may weigh them alike or not. An embedding is μ and σ side by side, h numbers
# each, as the variational tower gives it; of another tower's these features mean nothing. They do not tell which text
# of a pair came first.
#
# Shapes as in head, with d = 2 h and F = 3 h.


@dataclass(frozen=True, slots=True)
class W2:
    latent: int  # h

    @property
    def rows(self) -> int:
        return 3

    @property
    def row_width(self) -> int:
        return self.latent

    @property
    def parts(self) -> Shapes:
        return ()

    def forward(self, vectors: Vectors, parts: Parts) -> tuple[torch.Tensor, Vectors]:
        """As head.Features.forward."""
        first_Bd, second_Bd = vectors
        squared_Bd = (first_Bd - second_Bd).square_()
        product_Bh = first_Bd[:, : self.latent] * second_Bd[:, : self.latent]
        return torch.cat([squared_Bd, product_Bh], dim=1), vectors

    def backward(self, trace: Vectors, by_features_BF: torch.Tensor, parts: Parts) -> tuple[Vectors, Gradients]:
        """As head.Features.backward."""
        first_Bd, second_Bd = trace
        by_squared_Bd, by_product_Bh = by_features_BF.split([2 * self.latent, self.latent], dim=1)
        by_first_Bd = 2 * (first_Bd - second_Bd) * by_squared_Bd
        by_second_Bd = -by_first_Bd
        by_first_Bd[:, : self.latent] += second_Bd[:, : self.latent] * by_product_Bh
        by_second_Bd[:, : self.latent] += first_Bd[:, : self.latent] * by_product_Bh
        return (by_first_Bd, by_second_Bd), {}
