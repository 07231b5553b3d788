"""What replaces values of a TOML file or of a config: `--set field=value`, and the environment's variables."""

import json
import os
import re
from collections.abc import Sequence
from typing import Any

from clicktower.schemas.errors import UsageError
from clicktower.schemas.section_fields import are_equal


def changes_of(config: object, assignments: Sequence[str]) -> dict[str, Any]:
    """The value of each field of a config that `field=value` sets. Raises UsageError where two set it differently."""
    changes: dict[str, Any] = {}
    for name, value in map(_assignment, assignments):
        if name in changes and not are_equal(config, name, changes[name], value):
            raise set_twice(name, f"by --set {name}= twice")
        changes[name] = value
    return changes


def _assignment(text: str) -> tuple[str, Any]:
    """The field and the value of `field=value`. Raises UsageError."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"There is no = in --set {text}.", "Write --set field=value.")
    try:
        return name, json.loads(value) if value.startswith(("[", "{")) else value
    except ValueError as error:
        raise UsageError(f"The value of --set {text} is not JSON: {error}.", "Correct the value.") from None


def set_twice(name: str, where: str) -> UsageError:
    """The error for a field with two values; `where` says how it came by them."""
    return UsageError(f"The field {name} is set to different values, {where}.", "Leave out one of the two.")


def replace_values(tables: dict[str, Any], path: str, assignments: Sequence[str]) -> dict[str, Any]:
    """The tables of a file with the environment's variables in their texts, and with `section.field=value` set.

    Raises UsageError: a variable that is not set or names a secret, and other assignments.
    """
    tables = _with_variables(tables, path)
    replaced: dict[str, Any] = {}
    for name, value in map(_assignment, assignments):
        if replaced.setdefault(name, value) != value:
            raise set_twice(name, f"by --set {name}= twice")
        *sections, field_name = name.split(".")
        table = tables
        for section_name in sections:
            table = table.setdefault(section_name, {})
            if not isinstance(table, dict):
                raise UsageError(
                    f"--set {name}: {section_name} is a field, not a section.", "Leave out what follows it."
                )
        table[field_name] = value
    return tables


_VARIABLE = re.compile(r"\$\$\{|\$\{([^}]*)\}?")
_SECRET = re.compile(r"(?i)secret|passw|token|credential|key(_?id)?$")


def _with_variables(value: Any, path: str) -> Any:
    """The value with the environment's variables in its texts, in tables and lists too."""
    if isinstance(value, dict):
        return {name: _with_variables(inner, path) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_variables(inner, path) for inner in value]
    return _VARIABLE.sub(lambda match: _variable(match, path), value) if isinstance(value, str) else value


def _variable(match: re.Match[str], path: str) -> str:
    written, name = match[0], match[1]
    if name is None:
        return "${"
    if not re.fullmatch(r"[A-Za-z_]\w*", name) or not written.endswith("}"):
        raise UsageError(
            f"{path}: {written} names no environment variable.", "Write ${NAME}, or $${ for the characters themselves."
        )
    if _SECRET.search(name):
        raise UsageError(
            f"{path}: {written} looks like a secret, and values of this file are shown in commands, manifests and"
            " reports.",
            "Leave it out: clients of stores and engines read their credentials from the environment themselves.",
        )
    if name not in os.environ:
        raise UsageError(
            f"{path}: the environment variable {name} is not set.",
            f"Set it ({name}=... clicktower ...), or write $${{ if the characters themselves are meant.",
        )
    return os.environ[name]
