"""A TOML file that a user writes -> the frozen config that it describes."""

import dataclasses
import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast, get_args, get_type_hints

import pydantic

from schemas import storage
from schemas.errors import UsageError

# `--set field=value` for any field of a frozen config, checked against the field's type.


Config = TypeVar("Config")


def with_fields(config: Config, assignments: Sequence[str]) -> Config:
    """The config with `field=value` assignments applied; values are read as the field's type, lists and tables as JSON.

    Raises UsageError for an assignment of another form, an unknown field (naming the nearest) or a bad value.
    """
    changes: dict[str, Any] = {}
    types = {f.name: f.type for f in dataclasses.fields(cast(Any, config))}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise UsageError(asked=f"--set {assignment}", found="there is no = in it", do="write --set field=value")
        if name not in types:
            near = difflib.get_close_matches(name, types, n=1)
            raise UsageError(
                asked=f"--set {assignment}",
                found=f"{type(config).__name__} has no field {name}",
                do=f"did you mean {near[0]}?" if near else f"use one of {', '.join(types)}",
            )
        changes[name] = _value(config, name, text, assignment)
    try:
        return dataclasses.replace(cast(Any, config), **changes)
    except ValueError as error:
        raise UsageError(
            asked=f"--set {' '.join(assignments)}", found=f"it is refused: {error}", do="choose another value"
        ) from None


def _value(config: object, name: str, text: str, assignment: str) -> Any:
    hint = get_type_hints(type(config))[name]
    try:
        kind = pydantic.TypeAdapter(hint)
        return kind.validate_json(text) if text.startswith(("[", "{")) else kind.validate_python(text)
    except pydantic.ValidationError as error:
        raise UsageError(
            asked=f"--set {assignment}",
            found=error.errors()[0]["msg"],
            do=f"give {name} a value of type {getattr(hint, '__name__', hint)}",
        ) from None


Parsed = TypeVar("Parsed")
_SECTION = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]")


def read_toml(path: str, kind: type[Parsed], *, what: str, command: str) -> Parsed:
    """The config of a type in a file. `what` it describes and the `command` that takes it, for the errors.

    Raises UsageError: no such file, not TOML, an unknown or missing field, a value of the wrong type.
    """
    asked = f"the {what} was to be read from {path}"
    try:
        text = storage.read_bytes(path).decode()
        value = tomllib.loads(text)
    except FileNotFoundError:
        raise UsageError(
            asked=asked,
            found="there is no such file",
            do=f"check the path; `{what}.toml` of the repository is a commented example",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(asked=asked, found=f"it is not TOML: {error}", do="mend that line") from None
    try:
        return pydantic.TypeAdapter(kind).validate_python(value)
    except pydantic.ValidationError as error:
        found = "; ".join(
            f"the field {'.'.join(map(str, e['loc']))}{line_of(text, e['loc'])} {_plain(e, kind)}"
            for e in error.errors()[:5]
        )
        raise UsageError(
            asked=asked,
            found=found,
            do=f"see `clicktower {command} --help` and the commented {what}.toml for the fields",
        ) from None


def absolute(uri: str, base: Path) -> str:
    """A relative path as one below `base`; a URI or an absolute path as it is."""
    return uri if "://" in uri or Path(uri).is_absolute() else str(base / uri)


def check_fields(path: str, section: str, fields: Mapping[str, Any], config: object) -> None:
    """Nothing. Raises UsageError where `config` would refuse one of the `fields` that a section of the file sets."""
    assignments = {name: f"{name}={value if isinstance(value, str) else json.dumps(value)}"
                   for name, value in fields.items()}  # fmt: skip
    try:
        with_fields(config, list(assignments.values()))
    except UsageError as error:
        wrong = [name for name, assignment in assignments.items() if _is_refused(config, assignment)]
        text = storage.read_bytes(path).decode()
        raise UsageError(
            asked=f"[{section}] {wrong[0] if wrong else ''}".rstrip()
            + f"{line_of(text, (*section.split('.'), *wrong[:1]))} was to be read from {path}",
            found=error.found,
            follows="a stage would refuse it, so none was started",
            do=error.do,
        ) from None


def check_names(path: str, section: str, names: Iterable[str], kind: type, also: Sequence[str] = ()) -> None:
    """Nothing. Raises UsageError for a name in a section that no field of a dataclass has, nor is one of `also`."""
    known = [*also, *(field.name for field in dataclasses.fields(kind))]
    for name in names:
        if name not in known:
            text = storage.read_bytes(path).decode()
            raise UsageError(
                asked=f"[{section}] was to be read from {path}",
                found=f"the field {name}{line_of(text, (*section.split('.'), name))} is unknown{nearest(name, known)}",
                follows="nothing was started",
                do=f"use one of {', '.join(known)}",
            )


def _is_refused(config: object, assignment: str) -> bool:
    try:
        with_fields(config, [assignment])
    except UsageError:
        return True
    return False


def line_of(text: str, keys: Sequence[Any]) -> str:
    """ " (line 12)" for the keys that lead to a value in a TOML file, as far as they can be followed; or nothing."""
    names, inside, found = [str(key) for key in keys if isinstance(key, str)], "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        if section := _SECTION.match(line):
            inside = section[1]
            if inside == ".".join(names):
                return f" (line {number})"
        elif names[: len(path := inside.split(".") if inside else [])] == path:
            found = number if line.partition("=")[0].strip() in names[len(path) :] else found
    return f" (line {found})" if found else ""


def nearest(name: str, known: Iterable[str]) -> str:
    """ "; did you mean step?" for the known name that is most like this one; or nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _plain(error: Any, kind: type) -> str:
    if error["type"] == "unexpected_keyword_argument":
        return f"is unknown{nearest(str(error['loc'][-1]), _names_at(kind, error['loc'][:-1]))}"
    return "is missing" if error["type"] == "missing" else f"is wrong ({error['msg']})"


def _names_at(kind: Any, keys: Sequence[Any]) -> list[str]:
    """The fields of the dataclass that keys lead to from another."""
    for key in keys:
        kind = get_type_hints(kind).get(str(key)) if dataclasses.is_dataclass(kind) else None
        kind = next((one for one in get_args(kind) if dataclasses.is_dataclass(one)), kind)
    return [field.name for field in dataclasses.fields(cast(Any, kind))] if dataclasses.is_dataclass(kind) else []
