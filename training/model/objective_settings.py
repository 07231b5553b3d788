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
    """The settings of an objective. objective_registry.OBJECTIVES names the torch code of each class.

    An objective outside this package is a subclass and an entry in OBJECTIVES. Recipes may name it wherever its file
    has been imported, as with a tower (tower_settings).
    """

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
    """Titles that the pairs of a micro-batch share (pairs)."""

    kind: Literal["pool"] = "pool"
    size: Natural = 0  # titles that a micro-batch shares; 0: as many as micro_batch
    softmax: bool = False  # against every unclicked title of the shared pool instead of n of them


@section
class Teaching:
    """Agreeing with a given teacher (objectives.clicks) instead of the clicks."""

    share: Annotated[float, Field(gt=0, le=1)] = 0.5  # of the loss
    gamma: Positive = 5.0  # γ of the teacher's softmax


@section
class Clicks(ObjectiveSettings):
    """The paper's objective: a clicked title against unclicked ones."""

    kind: Literal["clicks"] = "clicks"
    stages: ClassVar[tuple[str, ...]] = ("build",)
    unit: ClassVar[str] = "pair"
    learns: ClassVar[str] = "pairs of query and clicked title"
    measures: ClassVar[tuple[str, ...]] = ("dev_ndcg@10", "dev_ndcg@3", "dev_ndcg@1")
    tie_towers: bool = False  # one parameter set for queries and documents
    same_start: bool = True  # both parameter sets start from the same random numbers
    start: Literal["uniform", "idf"] = "uniform"  # idf: rows of W in proportion to how rare their trigram is in titles
    gamma: Positive = 5.0  # of eq. 5
    num_negatives: Annotated[int, Field(ge=1, le=1_000)] = 4  # n; at most, as in a build
    negatives: Annotated[NegativeSettings, one_of(NegativeSettings)] = Redrawn()
    # The weight of a pair's loss: 1; w, its clicks and what its conversions count in clicks; or 1 + ln w (w below 1).
    weights: Literal["none", "clicks", "log_clicks"] = "none"
    teacher: Annotated[Teaching | None, BeforeValidator(none_to_null)] = None
    word_share: Share = 0.0  # the share of the words' own matches in a score (ranking.title_ranking); not trained
    lexical_share: Annotated[Share, Unnamed(at=0.0)] = 0.0  # the share of BM25 in a score; not trained
    shuffle_clicks: bool = False  # leak check: clicked titles are permuted among the training pairs

    @property
    def towers(self) -> tuple[str, ...]:
        return ("shared",) if self.tie_towers else ("query", "document")


@section
class Rephrasing:
    """How a text is reconstructed, word by word, from a sample of its distribution."""

    reformulate: bool = False  # a text is also paraphrased: as its clicked title, or
    paraphrase: str = ""  # as the other of a labelled pair of this class
    decoder_cells: Count = 96
    decoder_columns: Count = 64  # of the decoder's word vectors
    vocabulary: Count = 3000  # the decoder's words, the most frequent ones
    word_dropout: Share = 0.0  # share of the decoder's input words read as unknown
    kappa_rate: Factor = 0.0  # κ = sigmoid(rate (updates made - middle)), the weight of the divergence
    kappa_middle: Natural = 0

    def __post_init__(self) -> None:
        if self.paraphrase and not self.reformulate:
            raise ValueError("paraphrase must be unset without reformulate")


def _no_distribution(tower: TowerSettings, use: str) -> str:
    return "" if isinstance(tower, Variational) else f"tower must be variational, not {tower.kind} ({use})"


@section
class Generate(ObjectiveSettings, Rephrasing):
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
    """First train this many epochs of `generate` on the same texts."""

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
    kind: Literal["siamese"] = "siamese"


@section
class W2Features(FeatureSettings):
    kind: Literal["w2"] = "w2"


@section
class GatedFeatures(FeatureSettings):
    kind: Literal["gated"] = "gated"
    factors: Natural = 0  # k; 0: as many as a row of the embedding has numbers


@section
class HeadSettings(SectionFamily):
    """The layer above the features."""


@section
class MLP(HeadSettings):
    kind: Literal["mlp"] = "mlp"
    units: Count = 64  # ReLU units


@section
class Pruned(HeadSettings):
    kind: Literal["pruned"] = "pruned"
    row_units: Count = 16  # p, which see one row of the embedding
    column_units: Count = 4  # q, which see one column


@section
class Classify(ObjectiveSettings):
    """The class of a labelled text or pair of texts, from a head above the tower."""

    kind: Literal["classify"] = "classify"
    learns: ClassVar[str] = "labelled examples"
    measures: ClassVar[tuple[str, ...]] = ("dev_accuracy", "dev_area_under_roc")
    features: Annotated[FeatureSettings, one_of(FeatureSettings)] = PlainFeatures()
    head: Annotated[HeadSettings, one_of(HeadSettings)] = MLP()
    dropout: Share = 0.0  # of features and of the layer above them
    l1: Factor = 0.0  # weight of the head's absolute weights in the loss of each example
    l2: Factor = 0.0  # weight of their squares
    pretrain: Annotated[Pretraining | None, BeforeValidator(none_to_null)] = None

    @property
    def similarity(self) -> Similarity:
        return "euclidean" if isinstance(self.features, W2Features) else "cosine"

    def refused(self, tower: TowerSettings) -> str:
        if isinstance(self.features, W2Features):
            return _no_distribution(tower, "the features w2 are of μ and σ")
        return _no_distribution(tower, "a text is reconstructed from a sample") if self.pretrain else ""
