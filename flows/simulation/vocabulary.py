"""The words of the simulated shop, read from vocabulary.toml (which explains its form)."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

MAX_ATTRIBUTES = 4  # of a product, its brand not counted


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """A thing with the one name that titles use and the names that people also ask for it by."""

    title: str
    asked: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProductType:
    """A kind of product. `near` is the number of the type that is a near miss of it."""

    name: Term
    category: str
    kinds: tuple[str, ...]  # of attributes
    part: str
    near: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Vocabulary:
    types: tuple[ProductType, ...]
    values: dict[str, tuple[Term, ...]]  # kind of attribute -> its values
    brands: tuple[str, ...]
    lists: dict[str, tuple[str, ...]]  # given_names, adult_words and the like


@cache
def load() -> Vocabulary:
    """The vocabulary that ships with the package."""
    content = tomllib.loads((resources.files("flows.simulation") / "vocabulary.toml").read_text(encoding="utf-8"))
    values = {kind: tuple(_term(line) for line in lines) for kind, lines in content.pop("values").items()}
    types: list[ProductType] = []
    for category, lines in content.pop("types").items():
        for line in lines:
            name, asked, kinds, part = (field.strip() for field in line.split("|"))
            types.append(
                ProductType(
                    name=_term(f"{name} | {asked}"),
                    category=category,
                    kinds=tuple(kinds.split()),
                    part=part,
                    near=len(types) ^ 1,
                )
            )
    first, last = content.pop("syllables_first"), content.pop("syllables_last")
    brands = tuple((a + b).capitalize() for b in last for a in first)
    return Vocabulary(
        types=tuple(types), values=values, brands=brands, lists={name: tuple(words) for name, words in content.items()}
    )


def _term(line: str) -> Term:
    title, _, asked = line.partition("|")
    return Term(title=title.strip(), asked=tuple(word.strip() for word in asked.split(";") if word.strip()))
