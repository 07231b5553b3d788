"""`--set field=value` for any field of a frozen config, checked against the field's type."""

import dataclasses
import difflib
from collections.abc import Sequence
from typing import Any, TypeVar, cast, get_type_hints

import pydantic

from schemas.errors import UsageError

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
