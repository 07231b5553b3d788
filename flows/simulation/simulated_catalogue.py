"""The products of the simulated shop: document i is a function of (seed, i), so no title is ever stored.

What is kept in memory is a few bytes for each document: its type, attributes, brand, and the documents of each type.
"""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np

from flows.simulation.simulation_config import bits, bits_of, pick, stream, uniform, uniform_of

# The words of the simulated shop, read from vocabulary.toml (which explains its form).


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
class ShopVocabulary:
    types: tuple[ProductType, ...]
    values: dict[str, tuple[Term, ...]]  # kind of attribute -> its values
    brands: tuple[str, ...]
    lists: dict[str, tuple[str, ...]]  # given_names, adult_words and the like


@cache
def load() -> ShopVocabulary:
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
    return ShopVocabulary(
        types=tuple(types), values=values, brands=brands, lists={name: tuple(words) for name, words in content.items()}
    )


def _term(line: str) -> Term:
    title, _, asked = line.partition("|")
    return Term(title=title.strip(), asked=tuple(word.strip() for word in asked.split(";") if word.strip()))


BRANDS_OF_CATEGORY, BRANDS_OF_TYPE = 40, 14
PART_SHARE, MODEL_SHARE = 0.08, 0.35
MEASURES = ("inches", "wide", "feet", "volume", "litres", "weight", "memory", "screen")  # kinds of attributes
PACKS = ("pack", "wear", "shoe", "bed")
NONE = -1  # an attribute that the product does not have


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalogue:
    """Arrays over D documents. `source` is the document whose product this is: the same title sold under two ids."""

    source: np.ndarray  # int32 (D)
    type: np.ndarray  # int16 (D)
    attributes: np.ndarray  # int8 (D, MAX_ATTRIBUTES + 1): the values' numbers within their kinds, the brand's last
    is_part: np.ndarray  # bool (D): a spare part of the product, not the product
    popularity: np.ndarray  # float32 (D), in [0, 1)
    type_share: np.ndarray  # float64 (T): how much of the catalogue, and of the demand, a type is
    order: np.ndarray  # int32 (D): documents by type, products before parts, popular ones first
    type_start: np.ndarray  # int64 (T + 1): where a type begins in `order`
    num_products: np.ndarray  # int64 (T): how many of a type are products

    def __len__(self) -> int:
        return len(self.type)


def draw_catalogue(vocabulary: ShopVocabulary, seed: int, num_documents: int, shared_titles: float) -> Catalogue:
    """The catalogue of a seed. Document i is the same whatever `num_documents` is."""
    source = _sources(seed, np.arange(num_documents), shared_titles)
    num_types = len(vocabulary.types)
    popular_rank = np.argsort(bits_of(seed, "type popularity", np.arange(num_types)))
    type_share = 1 / (20 + np.argsort(popular_rank))
    type_share /= type_share.sum()
    kind = pick(type_share, uniform_of(seed, "type", source)).astype(np.int16)
    sizes = np.array(
        [
            [len(vocabulary.values[k]) for k in t.kinds] + [0] * (MAX_ATTRIBUTES - len(t.kinds)) + [BRANDS_OF_TYPE]
            for t in vocabulary.types
        ]
    )[kind]
    # Squared: the first values of a kind are common, the last are rare.
    unit = uniform_of(seed, "attribute", source[:, None], np.arange(MAX_ATTRIBUTES + 1)) ** 2
    attributes = np.where(sizes > 0, np.floor(unit * sizes), NONE).astype(np.int8)
    is_part = uniform_of(seed, "part", source) < PART_SHARE
    popularity = uniform_of(seed, "popularity", np.arange(num_documents)).astype(np.float32)
    order = np.lexsort([-popularity, is_part, kind]).astype(np.int32)
    return Catalogue(
        source=source.astype(np.int32), type=kind, attributes=attributes, is_part=is_part, popularity=popularity,
        type_share=type_share, order=order, type_start=np.searchsorted(kind[order], np.arange(num_types + 1)),
        num_products=np.bincount(kind[~is_part], minlength=num_types),
    )  # fmt: skip


def document_id(number: int) -> str:
    return f"P{100000 + number}"


def unknown_document_id(number: int) -> str:
    """An id that no document of any catalogue has."""
    return f"P9{number:08d}"


def brand_numbers(vocabulary: ShopVocabulary, seed: int) -> np.ndarray:
    """For each type, its brands (numbers into the vocabulary's): int (T, BRANDS_OF_TYPE), all different.

    Types of one category share brands, as they do in shops.
    """
    key = stream(seed, "brand")
    categories = {name: i for i, name in enumerate(dict.fromkeys(t.category for t in vocabulary.types))}
    rows = []
    for number, product_type in enumerate(vocabulary.types):
        by_category = np.argsort(bits(key, categories[product_type.category], np.arange(len(vocabulary.brands))))
        of_type = np.argsort(bits(key, 1000 + number, np.arange(BRANDS_OF_CATEGORY)))[:BRANDS_OF_TYPE]
        rows.append(by_category[of_type])
    return np.array(rows)


def model_numbers(seed: int, source: np.ndarray) -> list[str | None]:
    """The makers' model numbers that titles carry, or None: only some do."""
    carried = uniform_of(seed, "has model", source) < MODEL_SHARE
    numbers = bits_of(seed, "model", source)
    return [
        f"{chr(65 + n % 26)}{chr(65 + n // 26 % 26)}-{1000 + n // 676 % 90_000}" if has else None
        for n, has in zip(numbers.tolist(), carried.tolist(), strict=True)
    ]


class Titles:
    """The title of each document by its number."""

    def __init__(self, vocabulary: ShopVocabulary, seed: int, catalogue: Catalogue) -> None:
        self._vocabulary, self._seed, self._catalogue = vocabulary, seed, catalogue
        self._brands = brand_numbers(vocabulary, seed)

    def of(self, numbers: np.ndarray) -> list[str]:
        catalogue, values_of = self._catalogue, self._vocabulary.values
        source = catalogue.source[numbers]
        layout = bits_of(self._seed, "layout", source)
        models = model_numbers(self._seed, source)
        rows = zip(
            catalogue.type[numbers].tolist(),
            catalogue.attributes[numbers].tolist(),
            catalogue.is_part[numbers].tolist(),
            layout.tolist(),
            models,
            strict=True,
        )
        found = []
        for kind, (*values, brand), is_part, shape, model in rows:
            product_type = self._vocabulary.types[kind]
            texts = {k: values_of[k][v].title for k, v in zip(product_type.kinds, values, strict=False)}
            brand_name = self._vocabulary.brands[self._brands[kind, brand]]
            if is_part:
                found.append(_part_title(product_type, texts, brand_name, model))
            else:
                found.append(_product_title(product_type, texts, brand_name, model, shape))
        return found


def _part_title(product_type: ProductType, texts: dict[str, str], brand: str, model: str | None) -> str:
    """A spare part's title holds the product's words, which misleads whoever counts words."""
    text = " ".join(
        [brand, "Replacement", product_type.part, "for", *list(texts.values())[:1], product_type.name.title]
    )
    return text + (f" ({model})" if model else "")


def _product_title(product_type: ProductType, texts: dict[str, str], brand: str, model: str | None, shape: int) -> str:
    """A title the way shops write them: brand, what sets the product apart, its name, then sizes and packs."""
    measures = [texts[k] for k in texts if k in MEASURES]
    packs = [texts[k] for k in texts if k in PACKS]
    plain = [texts[k] for k in texts if k not in MEASURES and k not in PACKS]
    leading, trailing = (plain, []) if shape & 1 else (plain[:1], plain[1:])
    measures_first, model_first = shape & 4, shape & 2
    lead = [brand, *([model] if model and model_first else []), *(measures if measures_first else []), *leading]
    title = " ".join([*lead, product_type.name.title])
    title += "".join(f", {text}" for text in ([] if measures_first else measures))
    if trailing:
        title += f" {'in' if shape & 8 else 'with'} {' '.join(trailing)}"
    title += "".join(f" ({text})" for text in packs)
    return title + (f" {model}" if model and not model_first else "")


def _sources(seed: int, numbers: np.ndarray, share: float) -> np.ndarray:
    """Each document's own number, or for a `share` of them the number of an earlier document with the same title."""
    shares, which = stream(seed, "shared title"), stream(seed, "shared with")
    source = numbers
    while True:
        shared = (uniform(shares, source) < share) & (source > 0)
        if not shared.any():
            return source
        source = np.where(shared, np.floor(uniform(which, source) * source).astype(np.int64), source)
