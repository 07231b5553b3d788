"""What a candidate has to show before it goes live: section [promotion] of a pipeline.toml."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import ConfigDict

# The parts that slices tells apart of an evaluation's queries.
PARTS = (
    "1 word", "2 words", "3 words", "4 words and more",
    "all words known", "a word in no title", "no word in any title",
    "head", "torso", "tail",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class PromotionRules:
    """What a candidate has to show. Values are means over queries, from 0 to 1."""

    rule: Literal["better", "always", "never"] = "better"  # never: candidates are made, a person makes one live
    measure: str = "ndcg@10"
    min_gain: float = 0.0  # the interval of the gain lies above it; -0.005 also takes what is at most that much worse
    max_slice_drop: float = 0.02  # of a slice's mean
    slice_limits: Mapping[str, float] = field(default_factory=dict)  # the same for single slices: {"1 word": 0.05}
    min_slice_queries: int = 50  # smaller slices are shown and decide nothing
    min_queries: int = 20  # with fewer queries an interval means little, and nothing is promoted
    first: Literal["always", "above bm25"] = "always"  # what the first release of all has to show
    confidence: float = 0.95
    num_resamples: int = 10_000
    seed: int = 0
    __pydantic_config__ = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        if self.rule not in ("better", "always", "never") or self.first not in ("always", "above bm25"):
            raise ValueError("rule must be better, always or never, and first always or above bm25")
        if not -1 < self.min_gain < 1:
            raise ValueError("min_gain must be between -1 and 1: it is a difference of means")
        if min([self.max_slice_drop, *self.slice_limits.values()]) < 0:
            raise ValueError("max_slice_drop and slice_limits must be 0 or more: they are drops of a mean")
        if unknown := sorted(set(self.slice_limits) - set(PARTS)):
            raise ValueError(f"slice_limits names {', '.join(unknown)}; the slices are {', '.join(PARTS)}")
        if min(self.min_slice_queries, self.min_queries, self.num_resamples) < 1:
            raise ValueError("min_slice_queries, min_queries and num_resamples must be at least 1")
        if not 0 < self.confidence < 1:
            raise ValueError("confidence must be between 0 and 1")
