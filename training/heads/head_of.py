"""The head that settings ask for."""

from typing import Literal

from schemas.errors import UsageError
from training.heads.classifier import Classifier
from training.heads.dense_layer import DenseLayer
from training.heads.features import Features
from training.heads.gated import Gated
from training.heads.head import Head
from training.heads.hidden_layer import HiddenLayer
from training.heads.plain import Plain
from training.heads.pruned_layer import PrunedLayer
from training.heads.settings import HeadSettings
from training.heads.siamese import Siamese
from training.heads.w2 import W2

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
