"""What a head is made of, as one frozen value that needs no torch."""

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_type_hints

from schemas.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadSettings:
    """Which features of the embeddings are classified, and how. Raises UsageError for a value that means nothing.

    plain: the embedding of a text itself (heads); w2, siamese, gated: of the two of a pair (the files of
    those names). Every kind has one hidden layer of ReLU units below the softmax layer.
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
