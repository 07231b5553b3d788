"""A recipe: everything that decides a model's numbers, as one frozen value."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Annotated, Any, Literal, TypeVar, cast, get_args, get_type_hints

import pydantic
from pydantic import BeforeValidator

from schemas.errors import UsageError
from training.recipes.objectives import Clicks, ObjectiveSettings, Pool
from training.recipes.section import Count, Factor, Kinds, Natural, Positive, Share, one_of, or_none, section
from training.recipes.towers import LSTM, TowerSettings


@section
class WordVectorSettings(Kinds):
    """Words of a given file start from its vectors (word_vectors)."""

    kind: str
    columns: Natural = 0  # of such a vector; 0: as many as the file's have


@section
class Tuned(WordVectorSettings):
    """And move like all else."""

    kind: Literal["tuned"] = "tuned"


@section
class Frozen(WordVectorSettings):
    """And never move."""

    kind: Literal["frozen"] = "frozen"


@section
class OptimiserSettings(Kinds):
    kind: str
    step: Positive = 0.002  # ε of eq. 6, where L is the sum over the minibatch; of adam, its length
    clip_norm: Factor = 0.0  # th_G, for each tower on its own; 0: never


@section
class Nesterov(OptimiserSettings):
    kind: Literal["nesterov"] = "nesterov"
    momentum_edge: Share = 0.9  # μ in the first and last 2% of all updates
    momentum_middle: Share = 0.9  # μ in between; the paper's 0.995 remembers 200 updates


@section
class Adam(OptimiserSettings):
    kind: Literal["adam"] = "adam"


@section
class Recipe:
    """What to train and how. Values the paper leaves open were chosen on held-out data (docs/model.md section 4).

    Raises pydantic.ValidationError for a value that means nothing; `changed` says it in words.
    """

    name: str
    tower: Annotated[TowerSettings, one_of(TowerSettings)] = LSTM()
    objective: Annotated[ObjectiveSettings, one_of(ObjectiveSettings)] = Clicks()
    optimiser: Annotated[OptimiserSettings, one_of(OptimiserSettings)] = Nesterov()
    word_vectors: Annotated[WordVectorSettings | None, one_of(WordVectorSettings), BeforeValidator(or_none)] = None
    max_words: Natural = 0  # words of a text that are read; 0: all
    overflow: Literal["merge", "truncate"] = "merge"  # what becomes of the words beyond max_words
    initial_range: Positive = 0.2  # parameters start uniform in ±this
    epochs: Count = 20
    minibatch: Count = 256  # pairs of one large update
    micro_batch: Count = 128  # pairs computed at once; the unit that workers share out
    reduction: Literal["exact", "fast"] = "exact"
    dtype: Literal["float32", "float64"] = "float32"
    seed: Natural = 1

    def __post_init__(self) -> None:
        if self.minibatch % self.micro_batch:
            raise ValueError(f"minibatch must be a multiple of micro_batch ({self.micro_batch})")
        negatives, n = self.clicks.negatives, self.clicks.num_negatives
        if isinstance(negatives, Pool) and not negatives.softmax and (negatives.size or self.micro_batch) < n:
            raise ValueError(f"a pool's size must be at least num_negatives ({n}); 0 is micro_batch")
        if reason := self.objective.refused(self.tower):
            raise ValueError(reason)

    @property
    def clicks(self) -> Clicks:
        """How click shards are read: as the objective says, or as by default where it is another than Clicks."""
        return self.objective if isinstance(self.objective, Clicks) else Clicks()


# Names and values that a user gives to a config: `--set tower.cells=32`, a table of a TOML file, an axis of a sweep.

Config = TypeVar("Config")
# Fields of before there were sections whose new names do not end with the old one.
_RENAMED = {
    "pool_size": "objective.negatives.size",
    "pool_softmax": "objective.negatives.softmax",
    "word_columns": "word_vectors.columns",
}


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """The config with some fields set: `{"tower.cells": 32}`, or the same nested, `{"tower": {"cells": 32}}`.

    Another kind of a section (`{"tower": "rnn"}`) keeps the fields that both have. Raises UsageError for an unknown
    field, naming the nearest, and for a value that this field, or another one beside it, does not allow.
    """
    hints = get_type_hints(type(config), include_extras=True)
    values = {}
    try:
        for name, change in _nested(changes).items():
            if name not in hints:
                near = nearest(name, type(config))
                raise _refused(config, changes, f"{type(config).__name__} has no field {name}{near}")
            values[name] = pydantic.TypeAdapter(hints[name]).validate_python(_merged(getattr(config, name), change))
        name = ""
        return replace(cast(Any, config), **values)
    except pydantic.ValidationError as error:
        problems = [_problem(config, name, problem) for problem in error.errors()]
        raise _refused(config, changes, "; ".join(problems)) from None
    except ValueError as error:
        raise _refused(config, changes, str(error)) from None


def flat(fields: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """Tables of a file as fields by dotted name, as far as `kind` has sections: `{"tower": {"cells": 32}}` as above."""
    known = kinds_of_fields(kind)

    def pairs(fields: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
        for name, value in fields.items():
            is_section = any(field.startswith(f"{before}{name}.") for field in known)
            if is_section and isinstance(value, Mapping):
                yield from pairs(value, f"{before}{name}.")
            else:
                yield f"{before}{name}", value

    return dict(pairs(fields, ""))


def kinds_of_fields(kind: type) -> dict[str, list[str]]:
    """Every field that a config may have, by dotted name, with the kinds of its section that have it."""
    found: dict[str, list[str]] = {}

    def add(kind: Any, before: str) -> None:
        hints = get_type_hints(kind)
        for name in (field.name for field in fields(kind)):
            found.setdefault(f"{before}{name}", []).append(getattr(kind, "kind", ""))
            inner: Any
            for inner in filter(is_dataclass, (hints[name], *get_args(hints[name]))):
                for one in inner.kinds.values() if issubclass(inner, Kinds) else [inner]:
                    add(one, f"{before}{name}.")

    add(kind, "")
    return found


def nearest(name: str, kind: type) -> str:
    """ "; did you mean tower.cells?" for the fields of a config that an unknown name is most like; or nothing."""
    known = kinds_of_fields(kind)
    last = {field.rpartition(".")[2]: field for field in sorted(known, key=len, reverse=True)}
    if _RENAMED.get(name) in known:
        near = [_RENAMED[name]]
    else:  # the last parts of a place, or the place or its last part misspelt
        ends = {field: {"_".join(field.split(".")[at:]) for at in range(field.count(".") + 1)} for field in known}
        near = sorted((field for field in known if name in ends[field]), key=len)[:2]
        near = near or difflib.get_close_matches(name, known, n=1)
        near = near or [last[one] for one in difflib.get_close_matches(name.rpartition(".")[2], last, n=1)]
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _nested(changes: Mapping[str, Any]) -> dict[str, Any]:
    """`{"tower": "rnn", "tower.cells": 32}` as `{"tower": {"kind": "rnn", "cells": 32}}`."""
    found: dict[str, Any] = {}
    for name in sorted(changes):  # a section before its fields
        value, inside = changes[name], found
        *places, last = name.split(".")
        for place in places:
            before = inside.get(place, {})
            inside[place] = {"kind": before} if isinstance(before, str) else dict(before)
            inside = inside[place]
        inside[last] = value
    return found


def _merged(old: Any, change: Any) -> Any:
    """What validates to a section with some of its fields changed."""
    if not is_dataclass(old) or change == "none":
        return change
    if isinstance(change, str):
        change = {"kind": change}
    if not isinstance(change, Mapping):
        return change
    kind = old.kinds.get(change.get("kind", old.kind), Kinds) if isinstance(old, Kinds) else type(old)
    start = (
        {field.name: getattr(old, field.name, field.default) for field in fields(kind)} if is_dataclass(kind) else {}
    )
    return start | {name: _merged(start.get(name), value) for name, value in change.items()}


def _problem(config: object, name: str, problem: Any) -> str:
    """What pydantic found wrong, with its place."""
    place = ".".join(map(str, filter(None, (name, *problem["loc"]))))
    if problem["type"] == "unexpected_keyword_argument":
        kinds = kinds_of_fields(type(config)).get(place)
        which = f" of this kind, but of {', '.join(kinds)}" if kinds else nearest(place, type(config))
        return f"there is no field {place}{which}"
    said = problem["msg"].removeprefix("Value error, ").replace("Input should be", "it must be")
    return f"the field {place} is {problem['input']}: {said}" if place else said


def _refused(config: object, changes: Mapping[str, Any], found: str) -> UsageError:
    return UsageError(
        asked=f"a field was to be set: {', '.join(f'{name}={value}' for name, value in changes.items())}",
        found=found,
        do="set a field that there is, to a value that it allows",
    )
