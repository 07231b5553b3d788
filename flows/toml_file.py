"""A TOML file that a user writes -> the frozen config that it describes."""

import tomllib
from pathlib import Path
from typing import Any, TypeVar

import pydantic

from schemas.errors import UsageError

Config = TypeVar("Config")


def read_toml(path: str, kind: type[Config], *, what: str, command: str) -> Config:
    """The config of a type in a file. `what` it describes and the `command` that takes it, for the errors.

    Raises UsageError: no such file, not TOML, an unknown or missing field, a value of the wrong type.
    """
    asked = f"the {what} was to be read from {path}"
    try:
        value = tomllib.loads(Path(path).read_text(encoding="utf-8"))
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
        found = "; ".join(f"the field {'.'.join(map(str, e['loc']))} {_plain(e)}" for e in error.errors()[:5])
        raise UsageError(
            asked=asked,
            found=found,
            do=f"see `clicktower {command} --help` and the commented {what}.toml for the fields",
        ) from None


def absolute(uri: str, base: Path) -> str:
    """A relative path as one below `base`; a URI or an absolute path as it is."""
    return uri if "://" in uri or Path(uri).is_absolute() else str(base / uri)


def _plain(error: Any) -> str:
    known = {"missing": "is missing", "unexpected_keyword_argument": "is unknown"}
    return known.get(error["type"], f"is wrong ({error['msg']})")
