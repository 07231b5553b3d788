"""The building blocks of recipes and settings: sections, frozen dataclasses that pydantic checks when they are made.

A kind is a subclass in a family (TowerSettings, ObjectiveSettings, ...) that states its `kind` and where its code is;
nothing else registers it. `changed` sets fields by name: `--set tower.cells=32`, a table of a TOML file, an axis of a
sweep.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pkgutil import resolve_name
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast, dataclass_transform, get_args, get_type_hints

import pydantic
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

from clicktower.schemas.errors import UsageError

Section = TypeVar("Section", bound=type)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def section(kind: Section) -> Section:
    """Make the class a section: frozen, with keyword arguments, each checked, and no unknown ones."""
    strict = ConfigDict(extra="forbid", allow_inf_nan=False)
    return cast(Section, dataclass(frozen=True, kw_only=True, config=strict)(kind))


Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]  # what NumPy, torch and the compiled code all take
Positive = Annotated[float, Field(gt=0, le=1e6)]
Factor = Annotated[float, Field(ge=0, le=1e6)]
Share = Annotated[float, Field(ge=0, lt=1)]
Part = Annotated[float, Field(ge=0, le=1)]
Confidence = Annotated[float, Field(gt=0, lt=1)]


@section
class SectionFamily:
    """A family of sections, of which a recipe has one kind. Raises ValueError for a repeated kind."""

    kinds: ClassVar[dict[str, type[Any]]]  # by name, those that have been imported; each family has its own
    elsewhere: ClassVar[str] = ""  # of a family: a module with more kinds, imported when one of them is named
    code: ClassVar[str] = ""  # of a kind: "module" or "module:name", imported by code_of alone
    kind: str

    def __init_subclass__(cls) -> None:
        if SectionFamily in cls.__bases__:
            cls.kinds = {}
        elif name := cls.__dict__.get("kind"):
            if name in cls.kinds:
                raise ValueError(f"there is a kind {name} of {cls.__mro__[-3].__name__} already")
            cls.kinds[name] = cls

    @classmethod
    def all_kinds(cls) -> dict[str, type[Any]]:
        """Every kind of the family by name, with those of `elsewhere`."""
        if cls.elsewhere:
            resolve_name(cls.elsewhere)
        return cls.kinds

    @classmethod
    def kind_named(cls, name: str) -> type[Any] | None:
        return cls.kinds.get(name) or cls.all_kinds().get(name)


def code_of(settings: SectionFamily) -> Any:
    """The code of a kind, which this imports: a process loads that of the kinds that it uses."""
    return resolve_name(settings.code)


class UnknownKind(ValueError):
    """A section has a kind that nothing imported defines."""

    @classmethod
    def within(cls, error: Exception) -> "UnknownKind | None":
        """The one that an error of pydantic is about."""
        problems = error.errors() if isinstance(error, pydantic.ValidationError) else ()
        causes = (problem.get("ctx", {}).get("error") for problem in problems)
        return next((cause for cause in causes if isinstance(cause, cls)), None)


def one_of(family: type[SectionFamily]) -> Any:
    """The validator of a field that holds one of a family: the name of its kind, or a mapping with its fields."""

    def read(value: Any) -> Any:
        if isinstance(value, str):
            value = {"kind": value}
        if not isinstance(value, Mapping):
            return value
        if (kind := family.kind_named(value.get("kind", ""))) is None:
            raise UnknownKind(f"its kind {value.get('kind', '')!r:.60} must be one of {', '.join(family.kinds)}")
        return kind(**value)

    return BeforeValidator(read)


def none_to_null(value: Any) -> Any:
    """Reads `none` as None, which files and command lines cannot express."""
    return None if value == "none" else value


Config = TypeVar("Config")


def take_fields(kind: type[Config], values: dict[str, Any]) -> Config:
    """A dataclass from those of the values that have the names of its fields. They leave `values`."""
    names = [field.name for field in fields(cast(Any, kind)) if field.name in values]
    return kind(**{name: values.pop(name) for name in names})


@dataclasses.dataclass(frozen=True, slots=True)
class Unnamed:
    """Marks a setting that does not identify the result: for example a path, if the file's content is an input instead.

    `at`: only at this value, for a newer setting that leaves earlier digests unchanged.
    """

    at: Any = ...


def named_settings(config: Any) -> dict[str, Any]:
    """The settings that identify the result of a stage: all fields except those that are Unnamed, also in sections."""
    if isinstance(config, Mapping):
        return {name: named_settings(value) if is_dataclass(value) else value for name, value in config.items()}
    settings = dataclasses.asdict(config)
    for name, hint in get_type_hints(type(config), include_extras=True).items():
        if is_dataclass(inner := getattr(config, name)):
            settings[name] = named_settings(inner)
        for marker in getattr(hint, "__metadata__", ()):
            if isinstance(marker, Unnamed) and (marker.at is ... or marker.at == settings[name]):
                del settings[name]
    return settings


def beside_file(uri: str, info: pydantic.ValidationInfo) -> str:
    """A path relative to the TOML file that names it; unchanged if it is a URI, absolute, or not from a file.

    Raises ValueError for an empty one, which would be the file's own folder.
    """
    if not uri:
        raise ValueError("it must be a path, and is empty")
    return str(info.context / uri) if info.context and "://" not in uri else uri


Uri = Annotated[str, AfterValidator(beside_file)]


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """The config with some fields set: `{"tower.cells": 32}`, or nested, `{"tower": {"cells": 32}}`.

    Another kind of a section (`{"tower": "rnn"}`) keeps the fields that both have. Raises UsageError for an unknown
    field, naming the nearest, and for a value that this field, or a combination of fields, does not allow.
    """
    hints = get_type_hints(type(config), include_extras=True)
    values = {}
    try:
        for name, change in _nested(changes).items():
            if name not in hints:
                near = _code_about_fields("nearest")(name, type(config))
                raise _refused(f"{type(config).__name__} has no field {name}{near}.")
            values[name] = pydantic.TypeAdapter(hints[name]).validate_python(_merged(getattr(config, name), change))
        name = ""
        return replace(cast(Any, config), **values)
    except pydantic.ValidationError as error:
        problems = [_code_about_fields("problem_of")(config, name, problem) for problem in error.errors()]
        raise _refused(" ".join(problems)) from None
    except ValueError as error:
        raise _refused(f"{str(error).rstrip('.')}.") from None


def _code_about_fields(name: str) -> Any:
    return resolve_name(f"clicktower.schemas.section_fields:{name}")


def flat(fields: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Tables of a file as fields by dotted name: `{"tower": {"cells": 32}}` as above."""
    names: dict[str, Any] = {}
    for name, value in fields.items():
        names |= flat(value, f"{before}{name}.") if isinstance(value, Mapping) else {f"{before}{name}": value}
    return names


def kinds_of_fields(kind: type, *, every: bool = True) -> dict[str, list[str]]:
    """Every possible field of a config, by dotted name, with the kinds of its section that have it. Without `every`
    only of those kinds that have been imported.
    """
    result: dict[str, list[str]] = {}

    def add(kind: Any, before: str) -> None:
        hints = get_type_hints(kind)
        for name in (field.name for field in fields(kind)):
            result.setdefault(f"{before}{name}", []).append(getattr(kind, "kind", ""))
            inner: Any
            for inner in filter(is_dataclass, (hints[name], *get_args(hints[name]))):
                of_family = inner if issubclass(inner, SectionFamily) else None
                kinds = (of_family.all_kinds() if every else of_family.kinds).values() if of_family else [inner]
                for section_kind in kinds:
                    add(section_kind, f"{before}{name}.")

    add(kind, "")
    return result


def _nested(changes: Mapping[str, Any]) -> dict[str, Any]:
    """`{"tower": "rnn", "tower.cells": 32}` as `{"tower": {"kind": "rnn", "cells": 32}}`."""
    result: dict[str, Any] = {}
    for name in sorted(changes):  # sections precede their fields
        value, inside = changes[name], result
        *places, last = name.split(".")
        for place in places:
            before = inside.get(place, {})
            inside[place] = {"kind": before} if isinstance(before, str) else dict(before)
            inside = inside[place]
        inside[last] = value
    return result


def _merged(old: Any, change: Any) -> Any:
    """The input from which pydantic makes a section with some fields changed."""
    if not is_dataclass(old) or change == "none":
        return change
    if isinstance(change, str):
        change = {"kind": change}
    if not isinstance(change, Mapping):
        return change
    kind: Any = old.kind_named(change.get("kind", old.kind)) if isinstance(old, SectionFamily) else type(old)
    start = {field.name: getattr(old, field.name, field.default) for field in fields(kind)} if kind else {}
    return start | {name: _merged(start.get(name), value) for name, value in change.items()}


def _refused(problem: str) -> UsageError:
    return UsageError(problem, "Set an existing field to a value that it allows.")


# The languages whose terms the lexical contract knows: here, so that a setting which names one loads no stemmer.
Language = Literal[
    "none",  # words as they are
    "arabic", "armenian", "basque", "catalan", "czech", "danish", "dutch", "english", "esperanto", "estonian",
    "finnish", "french", "german", "greek", "hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian",
    "nepali", "norwegian", "persian", "polish", "portuguese", "romanian", "russian", "serbian", "sesotho", "spanish",
    "swedish", "tamil", "turkish", "yiddish",
]  # fmt: skip
DEFAULT_LANGUAGE: Language = "english"
