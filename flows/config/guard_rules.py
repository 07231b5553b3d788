"""Sections [drift], [promotion], [publish.set] and [keep] of a pipeline.toml: what is watched, what a candidate must
show, how a release is made, and what a store keeps.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from clicktower.schemas.section import DEFAULT_LANGUAGE, Confidence, Count, Language, Natural, Seed, Unnamed, section

Kind = Literal["times", "points", "drop", "distribution"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """A watched figure, known after `stage`. `limit`: times (1.5: half as much again, or two thirds), points (a
    difference of shares), a drop, or a PSI. `of_window`: it depends on how many days a build united.
    """

    words: str
    stage: str
    kind: Kind
    limit: float
    of_window: bool = False


FIGURES: Mapping[str, Figure] = {
    "lines": Figure(words="lines of the log", stage="ingest", kind="times", limit=1.5),
    "searches": Figure(words="searches", stage="ingest", kind="times", limit=1.5),
    "unreadable": Figure(words="share of lines that cannot be read", stage="ingest", kind="points", limit=0.01),
    "bots": Figure(words="share of lines of bots", stage="ingest", kind="points", limit=0.05),
    "below_k": Figure(
        words="share of lines lost to the privacy gate", stage="build", kind="points", limit=0.10, of_window=True
    ),
    "pairs": Figure(words="pairs to learn from", stage="build", kind="times", limit=1.5, of_window=True),
    "documents": Figure(words="documents", stage="build", kind="times", limit=1.2),
    "quality": Figure(words="NDCG@10 of the new model", stage="evaluate", kind="drop", limit=0.02),
    "scores": Figure(words="best cosines of the judged queries", stage="evaluate", kind="distribution", limit=0.25),
    "live_quality": Figure(words="the live model on today's judgments", stage="publish", kind="drop", limit=0.02),
}
# Figures known only after the decision about a release are too late to stop anything.
_MAY_STOP = [name for name, figure in FIGURES.items() if figure.stage != "publish"]


@section
class DriftRules:
    """Which unusual figures warn, and which stop a run.

    Args:
        stop: The figures whose alarm stops the run.
        accept: The dates whose alarms a person has examined and accepted.
        limits: The largest usual change of a figure, in place of its default (docs/running.md).
        days: The number of earlier days that define what is usual.
        same_weekdays: If so many of them are of the same weekday, the usual value is the median of these alone.
        exit_code: That of `clicktower run` after an alarm; by default 1 if it stops the run, else 0.
    """

    stop: tuple[str, ...] = ()
    accept: tuple[str, ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)
    days: Annotated[int, Field(ge=7)] = 28
    same_weekdays: Annotated[int, Field(ge=2)] = 3
    exit_code: Annotated[int, Field(ge=1, le=125)] | None = None

    def __post_init__(self) -> None:
        for name in self.stop:
            if name not in _MAY_STOP:
                raise ValueError(f"stop names {name}; it can hold {', '.join(_MAY_STOP)}")
        for name, limit in self.limits.items():
            if name not in FIGURES:
                raise ValueError(f"limits names {name}; it can hold {', '.join(FIGURES)}")
            if limit <= (1 if FIGURES[name].kind == "times" else 0):
                raise ValueError(f"limits.{name} must be above {1 if FIGURES[name].kind == 'times' else 0}")
        if self.exit_code == 2:
            raise ValueError("exit_code 2 is that of a wrong usage")
        if self.same_weekdays > self.days // 7:
            raise ValueError(f"same_weekdays must be at most {self.days // 7}, the weeks in days")


# The slices of an evaluation's queries.
PARTS = (
    "1 word", "2 words", "3 words", "4 words and more",
    "all words known", "a word in no title", "no word in any title",
    "head", "torso", "tail",
)  # fmt: skip
Drop = Annotated[float, Field(ge=0)]


@section
class PromotionRules:
    """What a candidate must show before it goes live. Values are means over queries, from 0 to 1.

    Args:
        rule: better: a release goes live if its gain is beyond chance; always; never: only a person makes one live.
        measure: The measure of the evaluation that decides.
        min_gain: What the interval of the gain must be above; -0.005 also accepts a loss of at most that much.
        max_slice_drop: The largest loss of a slice's mean.
        slice_limits: The same for single slices: {"1 word": 0.05}.
        min_slice_queries: Slices of fewer queries are shown but do not decide.
        min_queries: With fewer queries an interval says little, and nothing is promoted.
        first: The condition for the very first release.
        confidence: The confidence of the interval.
        num_resamples: Resamples of the bootstrap.
        seed: The seed of the resamples.
    """

    rule: Literal["better", "always", "never"] = "better"
    measure: str = "ndcg@10"
    min_gain: Annotated[float, Field(gt=-1, lt=1)] = 0.0
    max_slice_drop: Drop = 0.02
    slice_limits: Mapping[str, Drop] = field(default_factory=dict)
    min_slice_queries: Count = 50
    min_queries: Count = 20
    first: Literal["always", "above bm25"] = "always"
    confidence: Confidence = 0.95
    num_resamples: Count = 10_000
    seed: Seed = 0

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.slice_limits) - set(PARTS)):
            raise ValueError(f"slice_limits names {', '.join(unknown)}; the slices are {', '.join(PARTS)}")


_UNFIT = re.compile(r"[.`]|^_row|^$")  # LanceDB's rules for names, in whose form a release can be exported


def _additional(columns: tuple[str, ...]) -> tuple[str, ...]:
    if len({*columns, "id", "title", "vector"}) < len(columns) + 3:
        raise ValueError("they must differ from each other and from id, title and vector, which every release has")
    unfit = next(filter(_UNFIT.search, columns), None)
    if unfit is not None:
        raise ValueError(
            f"a release's table cannot have the column {unfit!r}: a name must not be empty, have a dot or a backtick,"
            " or begin with _row; give the column another name in the documents"
        )
    return columns


@section
class PublishConfig:
    """How a release is made, and how many are kept.

    Args:
        index: auto: partitions (IVF) above `index_above` documents, otherwise every document is compared (1 ms a query
            at 50,000).
        index_above: The documents above which auto makes an index.
        recall_at: The results of a query that recall is measured on.
        min_recall: The smallest recall of a usable index, against exact search.
        num_recall_queries: The queries of that measurement: two words each of titles drawn by a keyed hash.
        seed: The seed of the index and of these queries.
        columns: The columns of the documents to return with each hit and to filter by.
        language: The language of the titles' terms (BM25) (docs/model.md).
        keep: The earlier releases to keep, besides the live one and its predecessor.
    """

    index: Literal["auto", "none", "ivf"] = "auto"
    index_above: Natural = 20_000
    recall_at: Count = 10
    min_recall: Annotated[float, Field(gt=0, le=1)] = 0.98
    num_recall_queries: Count = 200
    seed: Seed = 0
    columns: Annotated[tuple[str, ...], Unnamed(at=()), AfterValidator(_additional)] = ()
    language: Annotated[Language, Unnamed(at=DEFAULT_LANGUAGE)] = DEFAULT_LANGUAGE
    keep: Annotated[Natural, Unnamed()] = 7


@section
class KeepRules:
    """What a store keeps.

    Args:
        days: The dates whose days stay, and the window of the run.
        models: The newest models that stay, besides those of releases.
    """

    days: Count = 90
    models: Count = 5
