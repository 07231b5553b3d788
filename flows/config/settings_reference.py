"""The settings of every command as a list: the name, type, default and meaning of each field, from the sections
themselves. A meaning stands under `Args:` of the class that has the field, or of one above it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any, get_args, get_type_hints

import docstring_parser
import pydantic

from clicktower.flows.config.commands import COMMANDS, code
from clicktower.schemas.section import SectionFamily, none_to_null
from clicktower.schemas.section_fields import uri_fields

# The class that holds the settings of a command. A recipe's are those of `compare --set` too.
CLASSES = {name: command.settings for name, command in COMMANDS.items() if command.settings}

REQUIRED = "required"
MOST_NAMED = 10  # alternatives of a field: of more, the languages, docs/model.md has the list


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One field. only: the kinds of its section that have it, if not all have. kinds: of a field that holds one of a
    family, each with its meaning.
    """

    name: str
    type: str
    default: str
    meaning: str
    only: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)


def settings_class(command: str) -> type[Any]:
    """The class of CLASSES, imported."""
    return code(CLASSES[command])


def settings_of(kind: type[Any], before: str = "") -> Iterator[Setting]:
    """Every field of a config by dotted name, sections with all their kinds."""
    hints, uris = get_type_hints(kind), uri_fields(kind)
    for name, info in kind.__pydantic_fields__.items():
        if name == "kind":
            continue
        parts = (hints[name], *get_args(hints[name]))
        inner = next((part for part in parts if isinstance(part, type) and is_dataclass(part)), None)
        kinds = inner.all_kinds() if inner and issubclass(inner, SectionFamily) else {}
        yield Setting(
            name=f"{before}{name}",
            type=_type(kind, name, inner, is_uri=name in uris),
            default=_default(info),
            meaning=_meaning(kind, name),
            kinds={kind_name: summary(its_class) for kind_name, its_class in kinds.items()},
        )
        if kinds:
            yield from _settings_of_kinds(kinds, f"{before}{name}.")
        elif inner and not _is_of_another_command(inner):
            yield from settings_of(inner, f"{before}{name}.")


def _is_of_another_command(kind: type[Any]) -> bool:
    return f"{kind.__module__}:{kind.__name__}".removeprefix("clicktower.") in CLASSES.values()


def _settings_of_kinds(kinds: Mapping[str, type[Any]], before: str) -> Iterator[Setting]:
    """The fields of all kinds of a family; those that several kinds share once."""
    having: dict[tuple[str, ...], tuple[Setting, list[str]]] = {}
    for name, kind in kinds.items():
        for setting in settings_of(kind, before):
            key = (setting.name, setting.type, setting.default, setting.meaning, *setting.only)
            having.setdefault(key, (setting, []))[1].append(name)
    for setting, names in having.values():
        only = setting.only or (() if len(names) == len(kinds) else tuple(names))
        yield replace(setting, only=only)


def summary(kind: type[Any]) -> str:
    """The first sentence or sentences of a class's description."""
    return " ".join((docstring_parser.parse(kind.__doc__ or "").short_description or "").split())


def _meaning(kind: type[Any], name: str) -> str:
    for its_class in kind.__mro__:
        for param in docstring_parser.parse(its_class.__dict__.get("__doc__") or "").params:
            if param.arg_name == name:
                return " ".join((param.description or "").split())
    return ""


def _default(info: Any) -> str:
    if info.is_required():
        return REQUIRED
    value = info.get_default(call_default_factory=True)
    if is_dataclass(value):
        return getattr(value, "kind", "")
    return "" if value in (None, {}) else _text(value)


def _text(value: Any) -> str:
    """A value as TOML has it."""
    match value:
        case bool():
            return str(value).lower()
        case int():
            return f"{value:_}" if value >= 10_000 else str(value)
        case float():
            return repr(value)
        case tuple():
            return f"[{', '.join(map(_text, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _type(kind: type[Any], name: str, inner: type[Any] | None, *, is_uri: bool) -> str:
    hint = get_type_hints(kind, include_extras=True)[name]
    reads_none = any(getattr(marker, "func", None) is none_to_null for marker in getattr(hint, "__metadata__", ()))
    if inner:
        words = "kind" if issubclass(inner, SectionFamily) else "table"
    else:
        words = _words(pydantic.TypeAdapter(hint).json_schema())
    return (words.replace("text", "path") if is_uri else words) + (" or none" if reads_none else "")


def _words(schema: Mapping[str, Any]) -> str:
    """A type of JSON schema in words."""
    if "anyOf" in schema:
        return " or ".join(_words(part) for part in schema["anyOf"] if part.get("type") != "null")
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        *most, last = map(str, schema["enum"])
        return (
            f"{', '.join(most)} or {last}" if len(most) < MOST_NAMED else f"{', '.join(most[:3])}, … ({len(most) + 1})"
        )
    match schema.get("type"):
        case "integer" | "number":
            signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
            bounds = ", ".join(f"{sign} {_bound(schema[name])}" for name, sign in signs.items() if name in schema)
            return f"{schema['type']} {bounds}".rstrip()
        case "array":
            return f"list: {_words(schema['items'])}"
        case "object":
            return "table"
    return {"boolean": "boolean", "string": "text"}.get(schema.get("type", ""), "value")


def _bound(value: float) -> str:
    """2^31 for a power of two that is long in digits."""
    number = int(value) if value == int(value) else value  # JSON schema has 1000000.0
    power = number.bit_length() - 1 if isinstance(number, int) and number > 1 << 20 else 0
    return f"2^{power}" if power and number == 1 << power else _text(number)
