"""The training objectives of a recipe, and their settings. Free of torch, as training.towers.tower_settings."""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from clicktower.schemas.release import Similarity
from clicktower.schemas.section import (
    Count,
    Factor,
    Natural,
    Positive,
    SectionFamily,
    Share,
    Unnamed,
    none_to_null,
    one_of,
    section,
)
from clicktower.training.towers.tower_settings import TowerSettings, Variational


@section
class ObjectiveSettings(SectionFamily):
    """The settings of an objective. `code` names the module of its torch code (trainer.objective).

    An objective outside this package is a subclass. Recipes may name it wherever its file has been imported, as with a
    tower (tower_settings).
    """

    layer: ClassVar[str] = ""  # "module:name" of what makes the parts that it adds to the tower (parameters.Layer)
    stages: ClassVar[tuple[str, ...]] = ("build-labelled",)  # the stages whose shards it trains on
    unit: ClassVar[str] = "example"  # a row of these shards
    learns: ClassVar[str] = "examples"
    measures: ClassVar[tuple[str, ...]] = ()  # of held-out data, besides dev_loss; the first one decides in a sweep

    def refused(self, tower: TowerSettings) -> str:
        """The reason why a tower does not fit; empty if it does."""
        return ""

    @property
    def similarity(self) -> Similarity:
        """How vectors are compared afterwards: as they were in training."""
        return "cosine"

    @property
    def towers(self) -> tuple[str, ...]:
        """The trained parameter sets: Λ_Q and Λ_D, or one that both sides share."""
        return ("shared",)


@section
class NegativeSettings(SectionFamily):
    """Unclicked titles."""


@section
class Redrawn(NegativeSettings):
    """New titles for each pair and epoch."""

    kind: Literal["redrawn"] = "redrawn"


@section
class Fixed(NegativeSettings):
    """The titles in the shards."""

    kind: Literal["fixed"] = "fixed"


@section
class Pool(NegativeSettings):
    """Titles that the pairs of a micro-batch share.

    Args:
        size: Titles that a micro-batch shares; 0 is as many as micro_batch.
        softmax: Against every unclicked title of the shared pool instead of n of them.
    """

    kind: Literal["pool"] = "pool"
    size: Natural = 0
    softmax: bool = False


@section
class Teaching:
    """Agreeing with a given teacher instead of the clicks.

    Args:
        share: The teacher's share of the loss.
        gamma: γ of the teacher's softmax.
    """

    share: Annotated[float, Field(gt=0, le=1)] = 0.5
    gamma: Positive = 5.0


@section
class Clicks(ObjectiveSettings):
    """The paper's objective: a clicked title against unclicked ones.

    Args:
        tie_towers: One parameter set for queries and documents.
        same_start: Both parameter sets start from the same random numbers.
        start: idf: rows of W in proportion to how rare their trigram is in titles.
        gamma: γ of eq. 5.
        num_negatives: n; at most, as in a build.
        negatives: Which unclicked titles.
        weights: The weight of a pair's loss: 1; w, its clicks and what its conversions count in clicks; or 1 + ln w (w
            below 1).
        teacher: Agreement with a teacher, if `--teacher` gives one.
        word_share: The share of the words' own matches in a score; not trained.
        lexical_share: The share of BM25 in a score; not trained.
        shuffle_clicks: Leak check: clicked titles are permuted among the training pairs.
        loss_after_epoch: Measure the training pairs' loss again after each epoch (Fig. 7), as that of held-out pairs:
            with the shards' negatives, without weights.
    """

    code: ClassVar[str] = "clicktower.training.trainer.clicks"
    kind: Literal["clicks"] = "clicks"
    stages: ClassVar[tuple[str, ...]] = ("build",)
    unit: ClassVar[str] = "pair"
    learns: ClassVar[str] = "pairs of query and clicked title"
    measures: ClassVar[tuple[str, ...]] = ("dev_ndcg@10", "dev_ndcg@3", "dev_ndcg@1")
    tie_towers: bool = False
    same_start: bool = True
    start: Literal["uniform", "idf"] = "uniform"
    gamma: Positive = 5.0
    num_negatives: Annotated[int, Field(ge=1, le=1_000)] = 4
    negatives: Annotated[NegativeSettings, one_of(NegativeSettings)] = Redrawn()
    weights: Literal["none", "clicks", "log_clicks"] = "none"
    teacher: Annotated[Teaching | None, BeforeValidator(none_to_null)] = None
    word_share: Share = 0.0
    lexical_share: Annotated[Share, Unnamed(at=0.0)] = 0.0
    shuffle_clicks: bool = False
    loss_after_epoch: Annotated[bool, Unnamed(at=False)] = False

    @property
    def towers(self) -> tuple[str, ...]:
        return ("shared",) if self.tie_towers else ("query", "document")


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
    def similarity(self) -> Similarity:
        return "euclidean" if isinstance(self.features, W2Features) else "cosine"

    def refused(self, tower: TowerSettings) -> str:
        if isinstance(self.features, W2Features):
            return _no_distribution(tower, "the features w2 are of μ and σ")
        return _no_distribution(tower, "a text is reconstructed from a sample") if self.pretrain else ""
