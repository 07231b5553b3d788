"""Settings of a release, and the number of releases to keep."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishConfig:
    # auto: partitions (IVF) above `index_above` documents, every document compared up to it (1 ms a query at 50,000).
    index: Literal["auto", "none", "ivf"] = "auto"
    index_above: int = 20_000
    recall_at: int = 10
    min_recall: float = 0.95  # of the index, against exact search, or it is not used
    num_recall_queries: int = 200  # titles drawn by a keyed hash, encoded as queries
    seed: int = 0
    keep: int = 7  # earlier releases that stay, besides the live one and its predecessor

    def __post_init__(self) -> None:
        if self.index not in ("auto", "none", "ivf"):
            raise ValueError("index must be auto, none or ivf")
        if not 0 < self.min_recall <= 1:
            raise ValueError("min_recall must be above 0 and at most 1")
        if min(self.recall_at, self.num_recall_queries) < 1 or min(self.index_above, self.keep) < 0:
            raise ValueError("recall_at and num_recall_queries must be at least 1, index_above and keep 0")
