"""Several models as one: their unit vectors side by side, whose cosine is a weighted mean of theirs.

The mean of m members that agree on a text's direction, each with errors of its own, errs less than each: other seeds of
one recipe, even more so other towers, and most of all an encoder that learned from other texts
(model.imported_encoder). Free of torch, so that a search of compiled and imported members starts fast.

    score = Σ_m a_m ((1 - l_m) ((1 - w_m) R_m + w_m M_m) + l_m L) = (1 - l) ((1 - w) R + w M) + l L

Of the members: shares a_m, word shares w_m, lexical shares l_m (ranking.title_ranking). l = Σ_m a_m l_m, and with
b_m = a_m (1 - l_m) / (1 - l) w = Σ_m b_m w_m. R, the cosine of all vectors side by side, weighs R_m by
b_m (1 - w_m) / (1 - w). M is of the words' vectors by the members that match words, weighed by b_m w_m / w.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from clicktower.schemas.release import Similarity
from clicktower.training.model.embedding import Empty, Side, TextEncoder, unit
from clicktower.training.model.model_folder import SCHEMA_VERSION, ShapesDiffer, Stored


@dataclass(frozen=True, kw_only=True, slots=True)
class Ensemble:
    """Models with one contract of letter trigrams. `shares`: a_m, which add up to 1; none: equal ones."""

    members: tuple[Any, ...]  # Model or ImportedEncoder
    shares: tuple[float, ...] = ()

    @property
    def similarity(self) -> Similarity:
        """How its vectors are compared; `combine` accepts no member that compares by distance."""
        return "cosine"

    @property
    def dimensions(self) -> int:
        return sum(member.dimensions for member in self.members)

    @property
    def word_share(self) -> float:
        return sum(share * member.word_share for member, share in self._of_vectors())

    @property
    def lexical_share(self) -> float:
        return sum(share * member.lexical_share for member, share in self._with_shares())

    @property
    def num_parameters(self) -> int:
        return sum(member.num_parameters for member in self.members)

    @property
    def text_contract(self) -> Mapping[str, Any]:
        """The contract of letter trigrams that its members share, and the tokenisers of imported ones."""
        return {name: value for member in self.members for name, value in member.text_contract.items()}

    def encode(self, texts: Sequence[str], side: Side, *, empty: Empty = "error") -> np.ndarray:
        """As `Model.encode`, but of length 1: each member's unit vector, weighed as above."""
        return _side_by_side(self.members, self.text_weights, texts, side, empty=empty)

    @property
    def of_words(self) -> TextEncoder:
        """The encoder of single words for their matches, as above; of all members if none has a share for words."""
        weighted = [(member, share * member.word_share) for member, share in self._of_vectors() if member.word_share]
        if not weighted:
            return self
        members, weights = zip(*weighted, strict=True)
        return _WordEncoder(members, _normalised(weights))

    @property
    def text_weights(self) -> list[float]:
        """The weight of each member's cosine in that of all vectors side by side; they add up to 1."""
        return _normalised([share * (1 - member.word_share) for member, share in self._of_vectors()])

    def _of_vectors(self) -> list[tuple[Any, float]]:
        """Each member with its share of what vectors contribute to the score, b_m."""
        members, shares = zip(*self._with_shares(), strict=True)
        weights = [share * (1 - member.lexical_share) for member, share in zip(members, shares, strict=True)]
        return list(zip(members, _normalised(weights), strict=True))

    def _with_shares(self) -> list[tuple[Any, float]]:
        equal = (1 / len(self.members),) * len(self.members)
        return list(zip(self.members, self.shares or equal, strict=True))


@dataclass(frozen=True, slots=True)
class _WordEncoder:
    members: Sequence[Any]
    weights: Sequence[float]
    similarity: Similarity = "cosine"

    def encode(self, texts: Sequence[str], side: Side) -> np.ndarray:
        return _side_by_side(self.members, self.weights, texts, side)


def _normalised(weights: Sequence[float]) -> list[float]:
    return [weight / sum(weights) for weight in weights]


def _side_by_side(
    members: Sequence[Any], weights: Sequence[float], texts: Sequence[str], side: Side, *, empty: Empty = "error"
) -> np.ndarray:
    """Each member's unit vectors times the root of its weight, float32 [texts, all dimensions]."""
    parts = (
        unit(member.encode(texts, side, empty=empty)) * np.float32(sqrt(weight))
        for member, weight in zip(members, weights, strict=True)
    )
    return np.concatenate(list(parts), axis=1)


# The files of an ensemble: the weights 0.query.W, ... of the first member, 1.query.W, ... of the second; `members`, the
# description of each, and `shares`.


def stored_members(stored: Stored) -> tuple[list[Stored], tuple[float, ...]]:
    """(the content of each member's own folder, the shares) of an ensemble's. Raises as model.load_encoder."""
    description, weights = stored
    members = description["members"]
    numbers = [str(at) for at in range(len(members))]
    shares = tuple(description.get("shares", ()))
    if not members or {name.partition(".")[0] for name in weights} != set(numbers):
        raise ShapesDiffer
    if shares and (len(shares) != len(members) or min(shares) <= 0):
        raise ValueError("there is a share above 0 for each member")
    arrays = ({n.partition(".")[2]: array for n, array in weights.items() if n.startswith(f"{at}.")} for at in numbers)
    return list(zip(members, arrays, strict=True)), shares


def stored_ensemble(members: Sequence[Stored], shares: Sequence[float] = ()) -> Stored:
    """The ensemble of some members, as one folder."""
    descriptions, arrays = zip(*members, strict=True)
    contract = {name: value for member in descriptions for name, value in member["text_contract"].items()}
    return {
        "schema_version": SCHEMA_VERSION,
        "members": list(descriptions),
        **({"shares": list(shares)} if shares else {}),
        "text_contract": contract,
        "dimensions": sum(member["dimensions"] for member in descriptions),
        "parameters": sum(member["parameters"] for member in descriptions),
    }, {f"{at}.{name}": array for at, of_member in enumerate(arrays) for name, array in of_member.items()}
