"""A user's TOML file, or `--set field=value` -> the frozen config that it describes."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, TypeVar

import pydantic

from clicktower.schemas.errors import StageError, TransientError, UsageError
from clicktower.schemas.section import changed, flat, kinds_of_fields
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
    return with_options(config, {}, assignments)


def with_options(config: Config, options: Mapping[str, Any], assignments: Assignments | None = None) -> Config:
    """The config with fields set by options of their own, and by `--set field=value` as with_fields.

    `options`: by field; None is an option that was not given, so a default overrides nothing. Raises UsageError where
    an option and `--set` give one field different values, and as `with_fields` does.
    """
    given = {name: value for name, value in options.items() if value is not None}
    changes = assignments or {}
    if not isinstance(changes, Mapping):
        from clicktower.flows.config.replacements import changes_of

        changes = changes_of(config, changes)
    if twice := given.keys() & changes.keys():
        from clicktower.flows.config.replacements import set_twice
        from clicktower.schemas.section_fields import are_equal

        for name in twice:
            if not are_equal(config, name, given[name], changes[name]):
                raise set_twice(name, f"by its own option and by --set {name}=")
    return changed(config, {**changes, **given})


def read_toml(path: str, kind: type[Parsed], *, subject: str, see: str, assignments: Sequence[str] = ()) -> Parsed:
    """The config of a type in a file. For the errors: `subject`, what it describes, and where to `see` its fields.

    `${NAME}` in a text is the environment variable, `$${` is `${`. `assignments`: fields that replace those of the
    file, as `with_fields` takes them. Raises UsageError: no such file, not TOML, an unknown or missing field, a value
    of the wrong type, a variable that is not set or names a secret.
    """
    try:
        value = tomllib.loads(read_text(path))
    except FileNotFoundError:
        raise UsageError(f"There is no {subject} file {path}.", f"Check the path, or see {see}.") from None
    except OSError as error:
        raise StageError(f"{path} cannot be read: {error.strerror}.", "Make it readable.") from None
    except StageError as error:
        raise UsageError(error.problem, error.fix) from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not TOML: {error}.", "Correct that line.") from None
    if assignments or "${" in str(value):
        from clicktower.flows.config.replacements import replace_values

        value = replace_values(value, path, assignments)
    try:
        return pydantic.TypeAdapter(kind).validate_python(value, context=Path(path).resolve().parent)
    except pydantic.ValidationError as error:
        from clicktower.flows.config.refused_fields import refused

        raise UsageError(f"{path}: {refused(error, kind)}.", f"See {see} for the fields.") from None
    except UsageError as error:
        raise UsageError(f"{path}: {error.problem}", error.fix) from None


def recipe_fields(fields: Mapping[str, Any], also: Sequence[str] = ()) -> dict[str, Any]:
    """Tables of a file as fields of a recipe by dotted name. Raises ValueError for names beside those and `also`."""
    by_name = flat(fields)
    unknown = by_name.keys() - {*also, *kinds_of_fields(Recipe, every=False)}  # of kinds that have been imported
    for name in sorted(unknown - kinds_of_fields(Recipe).keys()) if unknown else ():
        from clicktower.schemas.section_fields import nearest

        raise ValueError(f"there is no field {name}{nearest(name, Recipe)}")
    return by_name


RecipeFields = Annotated[Mapping[str, Any], pydantic.AfterValidator(lambda fields: recipe_fields(fields))]


def is_file(name: str) -> bool:
    """Whether this names a file and not a recipe."""
    return name.endswith(".toml")


def recipe_named(name: str) -> tuple[Recipe, str | None]:
    """(the recipe of a name or of a TOML file, the file of word vectors that it names: recipe_file).

    Raises UsageError: an unknown name, no such file, another format, an unknown field or an invalid value.
    """
    if not is_file(name):
        return recipe(name), None
    read: tuple[Recipe, str | None] = resolve_name("clicktower.flows.config.recipe_file:read_recipe")(name)
    return read


@contextmanager
def checking(where: str = "") -> Iterator[None]:
    """Within, what a stage would refuse is an error of the file, found before any stage starts."""
    try:
        yield
    except TransientError:
        raise
    except StageError as error:
        raise UsageError(f"{where}{error.problem} No stage was started.", error.fix) from None
