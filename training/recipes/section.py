"""What a recipe is made of: sections, frozen dataclasses that pydantic checks whenever one is made, some in kinds.

A kind is a class below its family's (TowerSettings, ObjectiveSettings, ...) that says its own `kind`; that is all of
its registration.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar, cast, dataclass_transform

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

Section = TypeVar("Section", bound=type)


@dataclass_transform(frozen_default=True, kw_only_default=True)
def section(kind: Section) -> Section:
    """The class as a section: frozen, made by keywords, each value checked and none that it does not know."""
    strict = ConfigDict(extra="forbid", allow_inf_nan=False)
    return cast(Section, dataclass(frozen=True, kw_only=True, config=strict)(kind))


Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, le=1e6)]
Factor = Annotated[float, Field(ge=0, le=1e6)]
Share = Annotated[float, Field(ge=0, lt=1)]


class Kinds:
    """A family of sections, of which a recipe has one kind. Raises ValueError for a kind that there is already."""

    kinds: ClassVar[dict[str, type[Any]]]  # by name, of each family its own
    kind: str

    def __init_subclass__(cls) -> None:
        if Kinds in cls.__bases__:
            cls.kinds = {}
        elif name := cls.__dict__.get("kind"):
            if name in cls.kinds:
                raise ValueError(f"there is a kind {name} of {cls.__mro__[-3].__name__} already")
            cls.kinds[name] = cls


def one_of(family: type[Kinds]) -> Any:
    """The validator of a field that holds one of a family: its kind's name alone, or with its fields as a mapping."""

    def read(value: Any) -> Any:
        if isinstance(value, str):
            value = {"kind": value}
        if not isinstance(value, Mapping):
            return value
        if (kind := value.get("kind", "")) not in family.kinds:
            raise ValueError(f"its kind {kind!r} must be one of {', '.join(family.kinds)}")
        return family.kinds[kind](**value)

    return BeforeValidator(read)


def or_none(value: Any) -> Any:
    """What `none` stands for in a file and on a command line, which know no None."""
    return None if value == "none" else value
