"""The training objectives of a recipe, and their settings. Free of torch, as training.towers.tower_settings."""

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from clicktower.schemas.release import Similarity
from clicktower.schemas.section import Natural, Positive, SectionFamily, Share, Unnamed, none_to_null, one_of, section
from clicktower.training.towers.tower_settings import TowerSettings


@section
class ObjectiveSettings(SectionFamily):
    """The settings of an objective. `code` names the module of its torch code (trainer.objective).

    An objective outside this package is a subclass. Recipes may name it wherever its file has been imported, as with a
    tower (tower_settings).
    """

    elsewhere: ClassVar[str] = "clicktower.training.model.label_settings"
    layer: ClassVar[str] = ""  # "module:name" of what makes the parts that it adds to the tower (parameters.Layer)
    stages: ClassVar[tuple[str, ...]] = ("build-labelled",)  # the stages whose shards it trains on
    unit: ClassVar[str] = "example"  # a row of these shards
    learns: ClassVar[str] = "examples"
    measures: ClassVar[tuple[str, ...]] = ()  # of held-out data, besides dev_loss; the first one decides in a sweep

    def refused(self, tower: TowerSettings) -> str:
        """The reason why a tower does not fit; empty if it does."""
        return ""

    @property
    def pretraining(self) -> "tuple[int, ObjectiveSettings] | None":
        """The epochs and the objective of what a recipe trains first, on texts alone, for its tower; mostly nothing."""
        return None

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
