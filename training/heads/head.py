"""Heads: the embeddings of a labelled text, or of both texts of a labelled pair, become logits of classes.

    x = features of the embeddings        h = max(0, L(x) + b_1)        logits = h W_2 + b_2

L is x W_1, or the pruned map (PrunedLayer). In training numbers of x and of h are left out at random (dropout) and the
others scaled up, so that evaluation changes nothing:

    x' = x / (1 - p) if x is kept, with probability 1 - p, else 0        ("inverted" dropout)

Shapes: B labelled texts or pairs, d dimensions of an embedding, F features, H hidden units, C classes. An embedding may
be a matrix, its r rows of w numbers one after the other (self-attentive towers); of other towers r is 1. All parts are
stored as they multiply rows.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, get_args, get_type_hints

import numpy as np
import torch

from schemas.errors import UsageError
from training.towers.tower import Parts, Shapes

Vectors = tuple[torch.Tensor, ...]  # (x [B, d],) of labelled texts, (a [B, d], b [B, d]) of labelled pairs
Unit = Literal["pairs", "texts"]


class Masks(NamedTuple):
    """What dropout keeps in one micro-batch."""

    features: torch.Tensor  # bool [B, F]
    hidden: torch.Tensor  # bool [B, H]


@dataclass(frozen=True, slots=True)
class Head:
    """Features of the embeddings, one hidden layer of ReLU units, a softmax layer."""

    features: "Features"
    layer: "HiddenLayer"
    classes: int
    dropout: float  # the probability with which a feature, and a hidden unit, is left out in training

    @property
    def parts(self) -> Shapes:
        """All parameters. Each name begins with `head.`."""
        units = self.layer.units
        above: Shapes = (
            ("head.b_1", (units,)),
            ("head.W_2", (units, self.classes)),
            ("head.b_2", (self.classes,)),
        )
        return self.features.parts + self.layer.parts + above

    def logits(self, vectors: Vectors, parts: Parts, masks: Masks | None = None) -> torch.Tensor:
        """[B, C]. `masks`: None where nothing is left out, as in evaluation."""
        features_BF = self.features.of(vectors, parts)
        if masks is not None:
            features_BF = dropped(features_BF, masks.features, self.dropout)
        hidden_BH = (self.layer.arriving(features_BF, parts) + parts["head.b_1"]).relu()
        if masks is not None:
            hidden_BH = dropped(hidden_BH, masks.hidden, self.dropout)
        return torch.addmm(parts["head.b_2"], hidden_BH, parts["head.W_2"])


def draw_masks(head: Head, size: int, generator: np.random.Generator) -> Masks | None:
    """Masks on the CPU for `size` texts or pairs; None for a head without dropout, and nothing is drawn.

    A function of the generator's state alone: first the features' mask row by row, then the hidden units'.
    """
    if not head.dropout:
        return None
    # Steps of 2^-24 are fine enough for a probability, and float32 is drawn in half the time.
    drawn = (
        generator.random((size, width), dtype=np.float32) >= head.dropout
        for width in (head.features.rows * head.features.row_width, head.layer.units)
    )
    return Masks(*map(torch.from_numpy, drawn))


def dropped(values: torch.Tensor, kept: torch.Tensor, dropout: float) -> torch.Tensor:
    """The values scaled up, those that are not kept 0."""
    return values * kept * (1 / (1 - dropout))


def penalty(parts: Parts, l1: float, l2: float) -> torch.Tensor:
    """Σ (l1 |w| + l2 w²) over the weights of a head, not its biases, as both authors' programs have it; [].

    L1 is Deudon's ("Learning semantic similarity in a continuous space": 1e-5 ||ψ||₁), L2 Lin et al.'s (1e-4). Both add
    it to the MEAN of a minibatch's losses: to a sum over B texts or pairs it is B times as much. `parts`: a tower's
    among them are left out. |w| has the derivative 0 at 0.
    """
    weights = torch.cat([part.flatten() for name, part in parts.items() if name.startswith("head.W_")])
    return l1 * weights.abs().sum() + l2 * weights.square().sum()


def initial_head(head: Head, generator: np.random.Generator) -> dict[str, torch.Tensor]:
    """Every part, float64, a function of the generator's state alone: drawn part by part in their order, row by row.

    Weights are uniform in ±√(6 / (inputs + outputs)) (Glorot and Bengio 2010, eq. 16), inputs and outputs being those
    of one matrix where a part has several; biases are 0.
    """
    return {name: _initial(shape, generator) for name, shape in head.parts}


def _initial(shape: tuple[int, ...], generator: np.random.Generator) -> torch.Tensor:
    if len(shape) == 1:
        return torch.zeros(shape, dtype=torch.float64)
    limit = math.sqrt(6 / (shape[-2] + shape[-1]))
    return torch.from_numpy((2 * generator.random(shape) - 1) * limit)


class Features(Protocol):
    """What a head sees of each labelled text or pair: a matrix of features, laid out flat."""

    @property
    def rows(self) -> int:
        """Of the matrix."""

    @property
    def row_width(self) -> int:
        """Numbers in one of its rows; F = rows x row_width."""

    @property
    def parts(self) -> Shapes:
        """Parameters of the features themselves."""

    def of(self, vectors: Vectors, parts: Parts) -> torch.Tensor:
        """The features, [B, F]."""


@dataclass(frozen=True, slots=True)
class Plain:
    """Of a labelled text: its embedding as it is, M of Lin et al. or a vector."""

    rows: int
    row_width: int

    @property
    def parts(self) -> Shapes:
        return ()

    def of(self, vectors: Vectors, parts: Parts) -> torch.Tensor:
        """The vectors themselves."""
        return vectors[0]


@dataclass(frozen=True, slots=True)
class Siamese:
    """Of a pair of any two vectors: [a, b, |a - b|, a ∘ b] (InferSent: Conneau et al., arXiv:1705.02364, Fig. 1).

    Section 3.1 names them as the concatenation, the element-wise product and the absolute element-wise difference of
    the two. |x| has the derivative 0 at 0, so two equal texts do not drive each other apart. F = 4 d.
    """

    vector_rows: int  # of one embedding
    row_width: int

    @property
    def rows(self) -> int:
        return 4 * self.vector_rows

    @property
    def parts(self) -> Shapes:
        return ()

    def of(self, vectors: Vectors, parts: Parts) -> torch.Tensor:
        """As Features.of."""
        a, b = vectors
        return torch.cat([a, b, (a - b).abs(), a * b], dim=1)


@dataclass(frozen=True, slots=True)
class W2:
    """Of a pair of normal distributions (Deudon, "Learning semantic similarity in a continuous space", 2018).

        W_2² = Σ_i (μ_1i - μ_2i)² + (σ_1i - σ_2i)²        of N(μ_1, diag σ_1²) and N(μ_2, diag σ_2²)

    What is classified are the terms of that sum before they are summed, and the Hadamard product μ_1 ∘ μ_2: three rows
    of h features, (μ_1 - μ_2)², (σ_1 - σ_2)² and μ_1 ∘ μ_2. The author's program adds the first two per dimension and
    so has two rows of h; apart, the hidden layer may weigh them alike or not. An embedding is μ and σ side by side, h
    numbers each, as the variational tower gives it; of another tower's these features mean nothing. They do not tell
    which text of a pair came first. d = 2 h, F = 3 h.
    """

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

    def of(self, vectors: Vectors, parts: Parts) -> torch.Tensor:
        """As Features.of."""
        a, b = vectors
        return torch.cat([(a - b).square(), a[:, : self.latent] * b[:, : self.latent]], dim=1)


@dataclass(frozen=True, slots=True)
class Gated:
    """Of a pair of matrices: the gated encoder (Lin et al., arXiv:1703.03130, section 4.3 and appendix B).

        F_h = batcheddot(M_h, W_fh)        row i of M_h times the i-th of r matrices
        F_p = batcheddot(M_p, W_fp)
        F_r = F_h ∘ F_p                    these are the features, no biases

    It is the encoder of Memisevic's factored gated autoencoder. M_p is the premise, a pair's first text, and M_h its
    hypothesis, the second. The paper leaves k, the width of the factors, open; the authors' program has it as wide as a
    row of M, and also drops out M_h and M_p, where here dropout begins at F_r. F = r k.
    """

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

    def of(self, vectors: Vectors, parts: Parts) -> torch.Tensor:
        """As Features.of."""
        premise_Brw, hypothesis_Brw = (vector_Bd.unflatten(1, (self.rows, -1)) for vector_Bd in vectors)
        premise_Brk = torch.einsum("brw,rwk->brk", premise_Brw, parts["head.W_fp"])
        return (premise_Brk * torch.einsum("brw,rwk->brk", hypothesis_Brw, parts["head.W_fh"])).flatten(1)


class HiddenLayer(Protocol):
    """A hidden layer before its biases and its ReLU: a linear map of the features."""

    @property
    def units(self) -> int:
        """H."""

    @property
    def parts(self) -> Shapes:
        """The weights."""

    def arriving(self, features_BF: torch.Tensor, parts: Parts) -> torch.Tensor:
        """What arrives at each hidden unit, [B, H]."""


@dataclass(frozen=True, slots=True)
class DenseLayer:
    """Each unit sees every feature."""

    num_features: int
    units: int

    @property
    def parts(self) -> Shapes:
        return (("head.W_1", (self.num_features, self.units)),)

    def arriving(self, features_BF: torch.Tensor, parts: Parts) -> torch.Tensor:
        """As HiddenLayer.arriving."""
        return features_BF @ parts["head.W_1"]


@dataclass(frozen=True, slots=True)
class PrunedLayer:
    """Each unit sees one row or one column of M (Lin et al., arXiv:1703.03130, appendix A).

        M^v   r groups of p units; group i sees row i of M alone
        M^h   2u groups of q units; group j sees column j of M alone

    The softmax layer above sees them all: (r p + 2u q) C weights, without its biases 52,500 for Yelp (p = 150, q = 10),
    63,750 for Age (25, 20) and 45,000 for SNLI (300, 10), as Table 4 prints them. M is a matrix of any features; for
    SNLI it is the gated encoder's F_r. The appendix calls M r by u; its numbers need 2u.

    The weights W_v have a matrix for each row, W_h one for each column; hidden units are those of M^v, group after
    group, then those of M^h.
    """

    rows: int
    row_width: int
    row_units: int  # p
    column_units: int  # q

    @property
    def units(self) -> int:
        return self.rows * self.row_units + self.row_width * self.column_units

    @property
    def parts(self) -> Shapes:
        return (
            ("head.W_v", (self.rows, self.row_width, self.row_units)),
            ("head.W_h", (self.row_width, self.rows, self.column_units)),
        )

    def arriving(self, features_BF: torch.Tensor, parts: Parts) -> torch.Tensor:
        """As HiddenLayer.arriving."""
        features_Brw = features_BF.unflatten(1, (self.rows, -1))
        at_rows_Brp = torch.einsum("brw,rwp->brp", features_Brw, parts["head.W_v"])
        at_columns_Bwq = torch.einsum("brw,wrq->bwq", features_Brw, parts["head.W_h"])
        return torch.cat([at_rows_Brp.flatten(1), at_columns_Bwq.flatten(1)], dim=1)


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadSettings:
    """Which features of the embeddings are classified, and how. Raises UsageError for a value that means nothing.

    plain: the embedding of a text itself; w2, siamese, gated: of the two of a pair. Every kind has one hidden layer of
    ReLU units below the softmax layer.
    """

    kind: Literal["mlp", "pruned"] = "mlp"
    features: Literal["plain", "w2", "siamese", "gated"] = "plain"
    hidden: int = 0  # of mlp: hidden units
    row_units: int = 0  # of pruned: p, hidden units that see one row
    column_units: int = 0  # of pruned: q, hidden units that see one column
    factors: int = 0  # of gated: k, numbers of a row of F_h and F_p; 0: as many as an embedding's row has
    dropout: float = 0.0  # the probability with which a feature, and a hidden unit, is left out in training

    def __post_init__(self) -> None:
        for field, kind in get_type_hints(HeadSettings).items():
            if choices := get_args(kind):
                _require(field, getattr(self, field), f"one of {', '.join(choices)}", getattr(self, field) in choices)
        self._require_units("hidden", self.kind == "mlp")
        for field in ("row_units", "column_units"):
            self._require_units(field, self.kind == "pruned")
        gated = self.features == "gated"
        wanted = "at least 0" if gated else f"0 (features {self.features} have no factors)"
        _require("factors", self.factors, wanted, (self.factors >= 0) if gated else self.factors == 0)
        in_range = math.isfinite(self.dropout) and 0 <= self.dropout < 1
        _require("dropout", self.dropout, "at least 0 and below 1", in_range)

    def _require_units(self, field: str, has: bool) -> None:
        wanted = "at least 1" if has else f"0 (a head of kind {self.kind} has none)"
        units = getattr(self, field)
        _require(field, units, wanted, (units >= 1) if has else units == 0)


def _require(field: str, value: Any, wanted: str, holds: bool) -> None:
    if not holds:
        raise UsageError(
            asked=f"the head's {field} is {value!r}",
            found=f"it must be {wanted}",
            do=f"set {field} to a value of that kind",
        )


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
    return Head(features, layer, classes, settings.dropout)


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
