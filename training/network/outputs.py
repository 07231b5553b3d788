"""What a model says of a text besides its embedding: the classes of a labelled set, the words that a decoder knows.

They come from the data and decide the shapes of parameters, so the model's description holds them.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Outputs:
    """Nothing, as for a model trained on clicks, unless an objective says otherwise (training.objectives)."""

    unit: Literal["", "pairs", "texts"] = ""  # what is classified
    classes: tuple[str, ...] = ()
    vocabulary: tuple[str, ...] = ()  # of the decoder (targets)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(value: Mapping[str, Any] | None) -> "Outputs":
        """The inverse of `to_json`; None: those of a model from before there were any."""
        if value is None:
            return Outputs()
        return Outputs(unit=value["unit"], classes=tuple(value["classes"]), vocabulary=tuple(value["vocabulary"]))


NOTHING = Outputs()
