"""A user's TOML file, or `--set field=value` -> the frozen config that it describes."""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pydantic

from clicktower.schemas.errors import StageError, TransientError, UsageError
from clicktower.schemas.section import Uri, are_equal, changed, flat, kinds_of_fields, nearest, reason_of, section
from clicktower.schemas.text_file import read_text
from clicktower.training.model.named_recipes import recipe
from clicktower.training.model.recipe import Recipe

Config = TypeVar("Config")
Parsed = TypeVar("Parsed")


def with_fields(config: Config, assignments: Sequence[str]) -> Config:
    """The config with `field=value` assignments applied; `section.field=value` for a field of a section.

    Values are read as the field's type, lists and tables as JSON. Raises UsageError for other assignments, and as
    `changed` does.
    """
    return changed(config, _changes(config, assignments))


def with_options(config: Config, options: Mapping[str, Any], assignments: Sequence[str] | None = None) -> Config:
    """The config with fields set by options of their own, and by `--set field=value`.

    `options`: by field; None is an option that was not given, so a default overrides nothing. Raises UsageError where
    an option and `--set` give one field different values, and as `with_fields` does.
    """
    given = {name: value for name, value in options.items() if value is not None}
    changes = _changes(config, assignments or ())
    for name in given.keys() & changes.keys():
        _require_equal(config, name, given[name], changes[name], f"by its own option and by --set {name}=")
    return changed(config, changes | given)


def _changes(config: object, assignments: Sequence[str]) -> dict[str, Any]:
    """The value of each field that assignments set."""
    changes: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise UsageError(f"There is no = in --set {text}.", "Write --set field=value.")
        try:
            value = json.loads(text) if text.startswith(("[", "{")) else text
        except ValueError as error:
            raise UsageError(f"The value of --set {text} is not JSON: {error}.", "Correct the value.") from None
        if name in changes:
            _require_equal(config, name, changes[name], value, f"by --set {name}= twice")
        changes[name] = value
    return changes


def _require_equal(config: object, name: str, one: Any, other: Any, where: str) -> None:
    if not are_equal(config, name, one, other):
        raise UsageError(f"The field {name} is set to different values, {where}.", "Leave out one of the two.")


def assignments(fields: Mapping[str, Any]) -> list[str]:
    """`field=value` as `with_fields` reads it: text unchanged, other values as JSON; None is omitted."""
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}
    return [f"{name}={text}" for name, text in texts.items() if fields[name] is not None]


def read_toml(path: str, kind: type[Parsed], *, what: str, see: str) -> Parsed:
    """The config of a type in a file. `what` it describes and where to `see` its fields, for the errors.

    Raises UsageError: no such file, not TOML, an unknown or missing field, a value of the wrong type.
    """
    try:
        value = tomllib.loads(read_text(path))
    except FileNotFoundError:
        raise UsageError(f"There is no {what} file {path}.", f"Check the path, or see {see}.") from None
    except OSError as error:
        raise StageError(f"{path} cannot be read: {error.strerror}.", "Make it readable.") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}.", "Correct that line.") from None
    try:
        return pydantic.TypeAdapter(kind).validate_python(value, context=Path(path).resolve().parent)
    except pydantic.ValidationError as error:
        problems: dict[str, str] = {}
        for problem in error.errors()[:5]:
            name, reason = _field(problem), _plain(problem, kind)
            problems[name] = f"{problems[name].rstrip(')')}, or {reason_of(problem)})" if name in problems else reason
        fields = "; ".join(f"the field {name} {reason}" for name, reason in problems.items())
        raise UsageError(f"{path}: {fields}.", f"See {see} for the fields.") from None


# Fields of a recipe, by dotted name.
RecipeFields = Annotated[Mapping[str, Any], pydantic.AfterValidator(lambda fields: flat(fields, Recipe))]


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


def check_fields(
    path: str, section: str, fields: Mapping[str, Any], config: Config, options: Mapping[str, Any] | None = None
) -> Config:
    """`config` with the `fields` that a section of the file sets, and `options` that are set elsewhere in it.

    Raises UsageError if it refuses them, or if the two give one field different values.
    """
    with checking(f"{path}, [{section}]: "):
        return with_options(config, options or {}, assignments(flat(fields, type(config))))


@contextmanager
def checking(where: str = "") -> Iterator[None]:
    """Within, what a stage would refuse is an error of the file, found before any stage starts."""
    try:
        yield
    except TransientError:
        raise
    except StageError as error:
        raise UsageError(f"{where}{error.problem} No stage was started.", error.fix) from None


def check_names(path: str, section: str, names: Iterable[str], kind: type, also: Sequence[str] = ()) -> None:
    """Raise UsageError for a name in a section that is neither a field of a dataclass nor in `also`."""
    names_of_fields = [*also, *kinds_of_fields(kind)]
    for name in names:
        if name not in names_of_fields:
            with checking(f"{path}, [{section}]: "):
                raise UsageError(
                    f"there is no field {name}{nearest(name, kind)}.", f"Use one of {', '.join(names_of_fields)}."
                )


_VARIANT = re.compile(r"constrained-\w+|literal\[.*\]|\[key\]|int")  # pydantic's names for the forms of one field


def _field(error: Any) -> str:
    return ".".join(str(part) for part in error["loc"] if not _VARIANT.fullmatch(str(part)))


def _plain(error: Any, kind: type) -> str:
    if error["type"] == "unexpected_keyword_argument":
        return f"is unknown{nearest('.'.join(map(str, error['loc'])), kind)}"
    return "is missing" if error["type"] == "missing" else f"is wrong ({reason_of(error)})"
