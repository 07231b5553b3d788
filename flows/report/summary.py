"""What a report tells of a run. Plain values, so that a report does not depend on how stages keep theirs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas.search_log import Ledger


@dataclass(frozen=True, kw_only=True, slots=True)
class StageSummary:
    """One stage of the DAG. `duration_seconds` is that of the work itself, also where its output was reused."""

    name: str
    digest: str
    path: str
    reused: bool
    duration_seconds: float | None = None
    headline: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankedTitle:
    """A title of a ranking. `grade` is None where nobody judged it."""

    title: str
    grade: int | None
    score: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """A query with the best titles of our model and of BM25. `why` it was chosen: "gain", "loss" and the like."""

    query: str
    ours: Sequence[RankedTitle]
    bm25: Sequence[RankedTitle]
    why: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSummary:
    """How a model was trained. Whatever is empty or None is left out.

    figures: the few that matter, (name, value, remark). facts: (name, value), what was trained and how.
    epochs: for each, {"epoch", "train_loss", "dev_loss", "dev_ndcg@10", ...}; what was not measured is None.
    steps: along the run, smoothed, {"epoch" (a fraction), "loss", "loss_low", "loss_high", "gradient_norm_query", ...,
    "pairs_per_second", ...}. clip_norm: th_G, 0 where there was none. num_steps: that `steps` was made of.
    unit: what one loss is of, a pair or an example.
    """

    figures: Sequence[tuple[str, str, str]] = ()
    facts: Sequence[tuple[str, str]] = ()
    epochs: Sequence[Mapping[str, Any]] = ()
    steps: Sequence[Mapping[str, float]] = ()
    num_steps: int = 0
    clip_norm: float = 0.0
    watched: str = ""
    unit: str = "pair"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSummary:
    """A run. Whatever is empty or None is left out of the report.

    privacy: for each k, {"k", "queries", "clicks", "pairs"}; k = 0 is the log without a gate. `k` is the chosen one.
    table: {"n", "systems": {name: {measure: interval}}, "difference": {"of", "to", "measures": {measure: interval}},
    "confidence", "rules", "warnings"}, of which only "systems" is needed; an interval is {"mean", "low", "high"}. Our
    system is called "model", the lexical baseline "bm25".
    comparison: the value of comparison.json, of a compare stage.
    promotion: {"live": whether the release is, "reason", "figures"}, as promotion decides.
    drift: for each figure {"words", "value", "usual", "basis", "alarm"}, as drift tells it.
    """

    title: str
    simulated: bool
    kind: str = "report of a run"
    click_derived: bool = False  # the judgments, at least some of them
    description: str = ""
    stages: Sequence[StageSummary] = ()
    ledger: Ledger | None = None
    privacy: Sequence[Mapping[str, int]] = ()
    k: int | None = None
    training: TrainingSummary | None = None
    table: Mapping[str, Any] | None = None
    comparison: Mapping[str, Any] | None = None
    examples: Sequence[Example] = ()
    promotion: Mapping[str, Any] | None = None
    drift: Sequence[Mapping[str, Any]] = ()
    release: str | None = None
    commands: Sequence[str] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
