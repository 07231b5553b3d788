"""Fields of sections by name: what an unknown one probably means, what is wrong with a value, which are paths."""

import difflib
import re
from dataclasses import is_dataclass
from typing import Any, get_args, get_type_hints

import pydantic
from pydantic import AfterValidator

from clicktower.schemas.errors import UsageError
from clicktower.schemas.section import beside_file, kinds_of_fields


def uri_fields(kind: type) -> list[str]:
    """The fields of a config that hold a Uri, by dotted name."""
    names = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        names += [name] if _holds_uri(hint) else []
        for inner in (hint, *get_args(hint)):
            if isinstance(inner, type) and is_dataclass(inner):
                names += [f"{name}.{inner_name}" for inner_name in uri_fields(inner)]
    return names


def _holds_uri(hint: Any) -> bool:
    markers = getattr(hint, "__metadata__", ())
    if any(isinstance(marker, AfterValidator) and marker.func is beside_file for marker in markers):
        return True
    return any(map(_holds_uri, get_args(hint)))


def are_equal(config: object, name: str, *values: Any) -> bool:
    """Whether a field of a config, by dotted name, takes these values for one. A value that it refuses equals itself
    alone.
    """
    try:
        adapter = pydantic.TypeAdapter(_hint_of(type(config), name))
        first, *others = map(adapter.validate_python, values)
    except (ValueError, UsageError):
        first, *others = values
    return all(other == first for other in others)


def _hint_of(kind: type, name: str) -> Any:
    """The type of a field; str for one that only some kinds of a section have."""
    first, _, rest = name.partition(".")
    hint = get_type_hints(kind, include_extras=True).get(first, str)
    if not rest:
        return hint
    sections = [inner for inner in (hint, *get_args(hint)) if isinstance(inner, type) and is_dataclass(inner)]
    return _hint_of(sections[0], rest) if sections else str


def nearest(name: str, kind: type) -> str:
    """ " (did you mean tower.cells?)" for the fields of a config that are most similar to an unknown name; or
    nothing.
    """
    kinds = kinds_of_fields(kind)
    last = {field.rpartition(".")[2]: field for field in sorted(kinds, key=len, reverse=True)}
    # The last parts of a field's path, or the path or its last part misspelt.
    ends = {field: {"_".join(field.split(".")[at:]) for at in range(field.count(".") + 1)} for field in kinds}
    near = sorted((field for field in kinds if name in ends[field]), key=len)[:2]
    near = near or difflib.get_close_matches(name, kinds, n=1)
    near = near or [last[match] for match in difflib.get_close_matches(name.rpartition(".")[2], last, n=1)]
    return f" (did you mean {' or '.join(near)}?)" if near else ""


def reason_of(problem: Any) -> str:
    """Pydantic's complaint in our words."""
    words = problem["msg"].removeprefix("Value error, ").replace("Input should be", "it must be")
    return str(re.sub(r"^\w+ should have (.*) after validation, not.*", r"it must have \1", words))


def problem_of(config: object, name: str, problem: Any) -> str:
    """Pydantic's complaint, with its field."""
    place = ".".join(map(str, filter(None, (name, *problem["loc"]))))
    if problem["type"] == "unexpected_keyword_argument":
        kinds = kinds_of_fields(type(config)).get(place)
        which = f" of this kind, but of {', '.join(kinds)}" if kinds else nearest(place, type(config))
        return f"There is no field {place}{which}."
    reason = reason_of(problem).rstrip(".")
    return f"The field {place} is {problem['input']}: {reason}." if place else f"{reason[:1].upper()}{reason[1:]}."
