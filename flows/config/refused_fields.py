"""Why the fields of a TOML file are refused, in words."""

import re
from typing import Any

import pydantic

from clicktower.schemas.section_fields import nearest, reason_of

_VARIANT = re.compile(r"constrained-\w+|literal\[.*\]|\[key\]|int")  # pydantic's names for the forms of one field


def refused(error: pydantic.ValidationError, kind: type) -> str:
    """What is wrong with the first fields that pydantic refuses, of a config of this type."""
    problems: dict[str, str] = {}
    for problem in error.errors()[:5]:
        name, reason = _field(problem), _plain(problem, kind)
        problems[name] = f"{problems[name].rstrip(')')}, or {reason_of(problem)})" if name in problems else reason
    return "; ".join(f"the field {name} {reason}" for name, reason in problems.items())


def _field(error: Any) -> str:
    return ".".join(str(part) for part in error["loc"] if not _VARIANT.fullmatch(str(part)))


def _plain(error: Any, kind: type) -> str:
    if error["type"] == "unexpected_keyword_argument":
        return f"is unknown{nearest('.'.join(map(str, error['loc'])), kind)}"
    return "is missing" if error["type"] == "missing" else f"is wrong ({reason_of(error)})"
