"""A user's TOML file, or `--set field=value` -> the frozen config that it describes."""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import pydantic

from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.section import changed, flat, kinds_of_fields, nearest, section
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
    changes: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise UsageError(f"There is no = in --set {text}.", "Write --set field=value.")
        try:
            changes[name] = json.loads(text) if text.startswith(("[", "{")) else text
        except ValueError as error:
            raise UsageError(f"The value of --set {text} is not JSON: {error}.", "Correct the value.") from None
    return changed(config, changes)


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
        fields = "; ".join(f"the field {'.'.join(map(str, e['loc']))} {_plain(e, kind)}" for e in error.errors()[:5])
        raise UsageError(f"{path}: {fields}.", f"See {see} for the fields.") from None


def beside_file(uri: str, info: pydantic.ValidationInfo) -> str:
    """A path relative to the TOML file that names it; unchanged if it is a URI, absolute, or not from a file."""
    return str(info.context / uri) if info.context and "://" not in uri else uri


Uri = Annotated[str, pydantic.AfterValidator(beside_file)]
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


def check_fields(path: str, section: str, fields: Mapping[str, Any], config: object) -> None:
    """Raise UsageError if `config` would refuse the `fields` that a section of the file sets."""
    try:
        with_fields(config, assignments(flat(fields, type(config))))
    except UsageError as error:
        raise UsageError(f"{path}, [{section}]: {error.problem} No stage was started.", error.fix) from None


def check_names(path: str, section: str, names: Iterable[str], kind: type, also: Sequence[str] = ()) -> None:
    """Raise UsageError for a name in a section that is neither a field of a dataclass nor in `also`."""
    names_of_fields = [*also, *kinds_of_fields(kind)]
    for name in names:
        if name not in names_of_fields:
            raise UsageError(
                f"{path}, [{section}]: there is no field {name}{nearest(name, kind)}. No stage was started.",
                f"Use one of {', '.join(names_of_fields)}.",
            )


def _plain(error: Any, kind: type) -> str:
    if error["type"] == "unexpected_keyword_argument":
        return f"is unknown{nearest('.'.join(map(str, error['loc'])), kind)}"
    return "is missing" if error["type"] == "missing" else f"is wrong ({error['msg']})"
