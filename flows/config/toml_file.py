"""A user's TOML file, or `--set field=value` -> the frozen config that it describes."""

import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pydantic

from clicktower.schemas.errors import StageError, TransientError, UsageError
from clicktower.schemas.section import Uri, changed, flat, kinds_of_fields, section
from clicktower.schemas.text_file import read_text
from clicktower.training.model.recipe import Recipe, recipe

Config = TypeVar("Config")
Assignments = Sequence[str] | Mapping[str, Any]  # `field=value`, or values by field, in tables as deep as sections
Parsed = TypeVar("Parsed")


def with_fields(config: Config, assignments: Assignments) -> Config:
    """The config with `field=value` assignments applied; `section.field=value` for a field of a section.

    Values are read as the field's type, lists and tables as JSON. Raises UsageError for other assignments, and as
    `changed` does.
    """
    return changed(config, _changes(config, assignments))


def with_options(config: Config, options: Mapping[str, Any], assignments: Assignments | None = None) -> Config:
    """The config with fields set by options of their own, and by `--set field=value`.

    `options`: by field; None is an option that was not given, so a default overrides nothing. Raises UsageError where
    an option and `--set` give one field different values, and as `with_fields` does.
    """
    given = {name: value for name, value in options.items() if value is not None}
    changes = _changes(config, assignments or ())
    for name in given.keys() & changes.keys():
        _require_equal(config, name, given[name], changes[name], f"by its own option and by --set {name}=")
    return changed(config, changes | given)


def _changes(config: object, assignments: Assignments) -> dict[str, Any]:
    """The value of each field that assignments set."""
    if isinstance(assignments, Mapping):
        return dict(assignments)
    changes: dict[str, Any] = {}
    for name, value in map(_assignment, assignments):
        if name in changes:
            _require_equal(config, name, changes[name], value, f"by --set {name}= twice")
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


def _require_equal(config: object, name: str, one: Any, other: Any, where: str) -> None:
    from clicktower.schemas.section_fields import are_equal

    if not are_equal(config, name, one, other):
        raise UsageError(f"The field {name} is set to different values, {where}.", "Leave out one of the two.")


def read_toml(path: str, kind: type[Parsed], *, what: str, see: str, assignments: Sequence[str] = ()) -> Parsed:
    """The config of a type in a file. `what` it describes and where to `see` its fields, for the errors.

    `${NAME}` in a text is the environment variable, `$${` is `${`. `assignments`: fields that replace those of the
    file, as `with_fields` takes them. Raises UsageError: no such file, not TOML, an unknown or missing field, a value
    of the wrong type, a variable that is not set or names a secret.
    """
    try:
        value = _with_variables(tomllib.loads(read_text(path)), path)
    except FileNotFoundError:
        raise UsageError(f"There is no {what} file {path}.", f"Check the path, or see {see}.") from None
    except OSError as error:
        raise StageError(f"{path} cannot be read: {error.strerror}.", "Make it readable.") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}.", "Correct that line.") from None
    _replace_fields(value, assignments)
    try:
        return pydantic.TypeAdapter(kind).validate_python(value, context=Path(path).resolve().parent)
    except pydantic.ValidationError as error:
        from clicktower.schemas.section_fields import reason_of

        problems: dict[str, str] = {}
        for problem in error.errors()[:5]:
            name, reason = _field(problem), _plain(problem, kind)
            problems[name] = f"{problems[name].rstrip(')')}, or {reason_of(problem)})" if name in problems else reason
        fields = "; ".join(f"the field {name} {reason}" for name, reason in problems.items())
        raise UsageError(f"{path}: {fields}.", f"See {see} for the fields.") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error.problem}", error.fix) from None


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


def _replace_fields(tables: dict[str, Any], assignments: Sequence[str]) -> None:
    """Set `section.field=value` in a file's tables."""
    replaced: dict[str, Any] = {}
    for name, value in map(_assignment, assignments):
        if replaced.setdefault(name, value) != value:
            raise UsageError(
                f"The field {name} is set to different values, by --set {name}= twice.", "Leave out one of the two."
            )
        *sections, field_name = name.split(".")
        table = tables
        for section_name in sections:
            table = table.setdefault(section_name, {})
            if not isinstance(table, dict):
                raise UsageError(
                    f"--set {name}: {section_name} is a field, not a section.", "Leave out what follows it."
                )
        table[field_name] = value


def _recipe_fields(fields: Mapping[str, Any], also: Sequence[str] = ()) -> dict[str, Any]:
    """Tables of a file as fields of a recipe by dotted name. Raises ValueError for names beside those and `also`."""
    by_name = flat(fields)
    unknown = by_name.keys() - {*also, *kinds_of_fields(Recipe, every=False)}  # of kinds that have been imported
    for name in sorted(unknown - kinds_of_fields(Recipe).keys()) if unknown else ():
        from clicktower.schemas.section_fields import nearest

        raise ValueError(f"there is no field {name}{nearest(name, Recipe)}")
    return by_name


RecipeFields = Annotated[Mapping[str, Any], pydantic.AfterValidator(lambda fields: _recipe_fields(fields))]
# Those of a sweep, which also varies the recipe.
VariedFields = Annotated[Mapping[str, Any], pydantic.AfterValidator(lambda fields: _recipe_fields(fields, ["recipe"]))]


# A recipe as users give it: by name, or as a TOML file, such as a sweep's best.


@section
class _RecipeSection:
    recipe: str
    word_vectors: Uri | None = None
    set: Mapping[str, Any] = field(default_factory=dict)


@section
class _RecipeFile:
    train: _RecipeSection


def is_file(name: str) -> bool:
    """Whether this names a file and not a recipe."""
    return name.endswith(".toml")


def recipe_named(name: str) -> tuple[Recipe, str | None]:
    """(the recipe of a name or of a TOML file, the file of word vectors that it names, relative to its own folder).

    The file is a [train] section: `recipe`, fields of it in [train.set], and `word_vectors` if words start from a file.
    Raises UsageError: an unknown name, no such file, another format, an unknown field or an invalid value.
    """
    if not is_file(name):
        return recipe(name), None
    file_section = read_toml(name, _RecipeFile, what="recipe", see="docs/running.md").train
    try:
        return changed(recipe(file_section.recipe), file_section.set), file_section.word_vectors
    except UsageError as error:
        raise UsageError(f"{name}: {error.problem}", error.fix) from None


@contextmanager
def checking(where: str = "") -> Iterator[None]:
    """Within, what a stage would refuse is an error of the file, found before any stage starts."""
    try:
        yield
    except TransientError:
        raise
    except StageError as error:
        raise UsageError(f"{where}{error.problem} No stage was started.", error.fix) from None


_VARIANT = re.compile(r"constrained-\w+|literal\[.*\]|\[key\]|int")  # pydantic's names for the forms of one field


def _field(error: Any) -> str:
    return ".".join(str(part) for part in error["loc"] if not _VARIANT.fullmatch(str(part)))


def _plain(error: Any, kind: type) -> str:
    from clicktower.schemas.section_fields import nearest, reason_of

    if error["type"] == "unexpected_keyword_argument":
        return f"is unknown{nearest('.'.join(map(str, error['loc'])), kind)}"
    return "is missing" if error["type"] == "missing" else f"is wrong ({reason_of(error)})"
