"""Recipes: everything that decides a model's numbers, as one frozen value, and the named ones a user can ask for."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, get_args, get_type_hints

from schemas.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """What to train and how. Values the paper leaves open were chosen on held-out data (docs/model.md section 4).

    Raises UsageError for a value that means nothing.
    """

    name: str
    tower: Literal["lstm", "rnn"] = "lstm"
    cells: int = 96
    forget_gate: bool = False
    peepholes: bool = False
    tie_towers: bool = False  # one parameter set for queries and documents
    same_start: bool = True  # both parameter sets start from the same random numbers
    max_words: int = 0  # words of a text that are read; 0: all
    overflow: Literal["merge", "truncate"] = "merge"  # what becomes of the words beyond max_words
    gamma: float = 5.0  # of eq. 5
    num_negatives: int = 4  # n
    negatives: Literal["redrawn", "fixed"] = "redrawn"  # new ones from the pool each epoch, or the shards' own
    epochs: int = 20
    minibatch: int = 256  # pairs of one large update
    micro_batch: int = 128  # pairs computed at once; the unit that workers share out
    step: float = 0.002  # ε of eq. 6; L is the sum over the minibatch
    momentum_edge: float = 0.9  # μ in the first and last 2% of all updates
    momentum_middle: float = 0.9  # μ in between; the paper's 0.995 remembers 200 updates
    clip_norm: float = 0.0  # th_G, for each tower on its own; 0: never
    truncate_steps: int = 0  # T; 0: as long as the longest text
    initial_range: float = 0.2  # parameters start uniform in ±this
    reduction: Literal["exact", "fast"] = "exact"
    dtype: Literal["float32", "float64"] = "float32"
    shuffle_clicks: bool = False  # leak check: clicked titles are permuted among the training pairs
    seed: int = 1

    def __post_init__(self) -> None:
        for field in ("cells", "num_negatives", "epochs", "minibatch", "micro_batch"):
            _require(self, field, "at least 1", getattr(self, field) >= 1)
        for field in ("gamma", "step", "initial_range"):
            _require(self, field, "a number above 0 and at most 1,000,000", 0 < getattr(self, field) <= 1e6)
        for field in ("clip_norm", "truncate_steps", "max_words", "seed"):
            _require(self, field, "at least 0", 0 <= getattr(self, field) < float("inf"))
        for field, kind in get_type_hints(Recipe).items():
            if choices := get_args(kind):
                _require(self, field, f"one of {', '.join(choices)}", getattr(self, field) in choices)
        for field in ("momentum_edge", "momentum_middle"):
            _require(self, field, "at least 0 and below 1", 0 <= getattr(self, field) < 1)
        _require(
            self, "minibatch", f"a multiple of micro_batch ({self.micro_batch})", self.minibatch % self.micro_batch == 0
        )
        for field in ("forget_gate", "peepholes"):
            _require(
                self,
                field,
                "false (this release trains the cell of the paper's experiments, which has none)",
                not getattr(self, field),
            )


def lstm_96() -> Recipe:
    """The paper's main model: an LSTM of 96 cells without forget gate and peepholes, n = 4."""
    return Recipe(name="lstm-96")


def lstm_64() -> Recipe:
    """The LSTM row of Table IV with 64 cells."""
    return replace(lstm_96(), name="lstm-64", cells=64)


def lstm_32() -> Recipe:
    """The LSTM row of Table IV with 32 cells."""
    return replace(lstm_96(), name="lstm-32", cells=32)


def rnn_288() -> Recipe:
    """The RNN row of Table IV: as many parameters in W as lstm-96.

    288 recurrent units in ±0.2 have a spectral radius near 2 (0.2 / √3 x √288): tanh saturates and nothing is learned.
    ±0.05 keeps it below 1. Chosen with the step on held-out judgments, as the LSTM's were.
    """
    return replace(lstm_96(), name="rnn-288", tower="rnn", cells=288, initial_range=0.05, step=0.0005)


_NAMED: tuple[Callable[[], Recipe], ...] = (lstm_96, lstm_64, lstm_32, rnn_288)


def names() -> list[str]:
    """The names `recipe` knows."""
    return [make().name for make in _NAMED]


def recipe(name: str) -> Recipe:
    """The recipe of a name. Raises UsageError for an unknown one."""
    for make in _NAMED:
        if (found := make()).name == name:
            return found
    raise UsageError(
        asked=f"the recipe {name!r} was to be trained",
        found="there is no recipe of that name",
        do=f"use one of {', '.join(names())}",
    )


def _require(recipe: Recipe, field: str, wanted: str, holds: bool) -> None:
    if not holds:
        raise UsageError(
            asked=f"the recipe's {field} is {getattr(recipe, field)!r}",
            found=f"it must be {wanted}",
            do=f"set {field} to a value of that kind",
        )
