"""The objectives of labelled texts, and of texts alone: their settings, those of heads and of the decoder."""

from dataclasses import asdict
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator

from clicktower.schemas.release import Similarity
from clicktower.schemas.section import Count, Factor, Natural, SectionFamily, Share, none_to_null, one_of, section
from clicktower.training.model.objective_settings import ObjectiveSettings
from clicktower.training.towers.tower_kinds import Variational
from clicktower.training.towers.tower_settings import TowerSettings


@section
class Rephrasing:
    """How a text is reconstructed, word by word, from a sample of its distribution.

    Args:
        reformulate: A text is also paraphrased: as its clicked title, or as `paraphrase` says.
        paraphrase: As the other text of a labelled pair of this class.
        decoder_cells: The decoder's cells.
        decoder_columns: Numbers of the decoder's word vectors.
        vocabulary: The decoder's words, the most frequent ones.
        word_dropout: The share of the decoder's input words read as unknown.
        kappa_rate: κ = sigmoid(rate (updates made - middle)) is the weight of the divergence; this is the rate.
        kappa_middle: The updates at which κ is a half.
    """

    reformulate: bool = False
    paraphrase: str = ""
    decoder_cells: Count = 96
    decoder_columns: Count = 64
    vocabulary: Count = 3000
    word_dropout: Share = 0.0
    kappa_rate: Factor = 0.0
    kappa_middle: Natural = 0

    def __post_init__(self) -> None:
        if self.paraphrase and not self.reformulate:
            raise ValueError("paraphrase must be unset without reformulate")


def _no_distribution(tower: TowerSettings, use: str) -> str:
    return "" if isinstance(tower, Variational) else f"tower must be variational, not {tower.kind} ({use})"


@section
class Generate(ObjectiveSettings, Rephrasing):
    """Reconstruction and paraphrase of texts, from a sample of their distribution."""

    code: ClassVar[str] = "clicktower.training.trainer.generate"
    layer: ClassVar[str] = "clicktower.training.model.decoder:decoder_of_model"
    kind: Literal["generate"] = "generate"
    stages: ClassVar[tuple[str, ...]] = ("build", "build-labelled")
    learns: ClassVar[str] = "texts to reconstruct"

    @property
    def similarity(self) -> Similarity:
        return "euclidean"

    def refused(self, tower: TowerSettings) -> str:
        return _no_distribution(tower, "a text is reconstructed from a sample")


@section
class Pretraining(Rephrasing):
    """First train this many epochs of `generate` on the same texts.

    Args:
        epochs: The epochs of it.
    """

    epochs: Count = 10


@section
class FeatureSettings(SectionFamily):
    """A head's view of a text's embedding, or of a pair's two (head)."""


@section
class PlainFeatures(FeatureSettings):
    """The embedding of a text itself."""

    kind: Literal["plain"] = "plain"


@section
class SiameseFeatures(FeatureSettings):
    """Both embeddings, their absolute difference and their product (InferSent)."""

    kind: Literal["siamese"] = "siamese"


@section
class W2Features(FeatureSettings):
    """The terms of W₂² of two distributions, and the product of their means (Deudon)."""

    kind: Literal["w2"] = "w2"


@section
class GatedFeatures(FeatureSettings):
    """Factors of the product of two embeddings (Lin et al.).

    Args:
        factors: k; 0 is as many as a row of the embedding has numbers.
    """

    kind: Literal["gated"] = "gated"
    factors: Natural = 0


@section
class HeadSettings(SectionFamily):
    """The layer above the features."""


@section
class MLP(HeadSettings):
    """A layer of ReLU units.

    Args:
        units: ReLU units.
    """

    kind: Literal["mlp"] = "mlp"
    units: Count = 64


@section
class Pruned(HeadSettings):
    """The layer that Lin et al. prune: groups of units that see a row or a column each.

    Args:
        row_units: p, which see one row of the embedding.
        column_units: q, which see one column.
    """

    kind: Literal["pruned"] = "pruned"
    row_units: Count = 16
    column_units: Count = 4


@section
class Classify(ObjectiveSettings):
    """The class of a labelled text or pair of texts, from a head above the tower.

    Args:
        features: What the head sees of a text's embedding, or of a pair's two.
        head: The layer above the features.
        dropout: The share of features, and of the layer above them, left out in training.
        l1: The weight of the head's absolute weights in the loss of each example.
        l2: The weight of their squares.
        pretrain: Train reconstruction first.
    """

    code: ClassVar[str] = "clicktower.training.trainer.classify"
    layer: ClassVar[str] = "clicktower.training.model.head:head_of_model"
    kind: Literal["classify"] = "classify"
    learns: ClassVar[str] = "labelled examples"
    measures: ClassVar[tuple[str, ...]] = ("dev_accuracy", "dev_area_under_roc")
    features: Annotated[FeatureSettings, one_of(FeatureSettings)] = PlainFeatures()
    head: Annotated[HeadSettings, one_of(HeadSettings)] = MLP()
    dropout: Share = 0.0
    l1: Factor = 0.0
    l2: Factor = 0.0
    pretrain: Annotated[Pretraining | None, BeforeValidator(none_to_null)] = None

    @property
    def pretraining(self) -> tuple[int, ObjectiveSettings] | None:
        if self.pretrain is None:
            return None
        settings = asdict(self.pretrain)
        return settings.pop("epochs"), Generate(**settings)

    @property
    def similarity(self) -> Similarity:
        return "euclidean" if isinstance(self.features, W2Features) else "cosine"

    def refused(self, tower: TowerSettings) -> str:
        if isinstance(self.features, W2Features):
            return _no_distribution(tower, "the features w2 are of μ and σ")
        return _no_distribution(tower, "a text is reconstructed from a sample") if self.pretrain else ""
