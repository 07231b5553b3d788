"""The simulated shop: its products, what people want, how they phrase it, and how well products fit.

Document i and intent i are functions of (seed, i), so no title is ever stored. Memory holds a few bytes per document:
its type, attributes, brand, and the documents of each type.
"""

import hashlib
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources

import numpy as np

from clicktower.flows.simulation.simulation_config import bits, pick, uniform

MAX_ATTRIBUTES = 4  # of a product, besides its brand


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """A thing with its one name in titles and the names that people use for it."""

    title: str
    synonyms: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ProductType:
    """A kind of product."""

    name: Term
    category: str
    kinds: tuple[str, ...]  # of attributes
    part: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ShopVocabulary:
    types: tuple[ProductType, ...]
    values: dict[str, tuple[Term, ...]]  # kind of attribute -> its values
    brands: tuple[str, ...]
    lists: dict[str, tuple[str, ...]]  # given_names, adult_words and the like


@cache
def shop_vocabulary() -> ShopVocabulary:
    """The words of vocabulary.toml, which explains its form."""
    content = tomllib.loads(
        (resources.files("clicktower.flows.simulation") / "vocabulary.toml").read_text(encoding="utf-8")
    )
    values = {kind: tuple(_term(line) for line in lines) for kind, lines in content.pop("values").items()}
    types: list[ProductType] = []
    for category, lines in content.pop("types").items():
        for line in lines:
            name, synonyms, kinds, part = (field.strip() for field in line.split("|"))
            types.append(
                ProductType(
                    name=_term(f"{name} | {synonyms}"), category=category, kinds=tuple(kinds.split()), part=part
                )
            )
    first, last = content.pop("syllables_first"), content.pop("syllables_last")
    brands = tuple((a + b).capitalize() for b in last for a in first)
    return ShopVocabulary(
        types=tuple(types), values=values, brands=brands, lists={name: tuple(words) for name, words in content.items()}
    )


def near_types() -> np.ndarray:
    """For each type the number of the one that is a near miss of it, beside it in vocabulary.toml: int16 (T)."""
    return np.arange(len(shop_vocabulary().types), dtype=np.int16) ^ 1


def _term(line: str) -> Term:
    title, _, synonyms = line.partition("|")
    return Term(title=title.strip(), synonyms=tuple(word.strip() for word in synonyms.split(";") if word.strip()))


BRANDS_OF_CATEGORY, BRANDS_OF_TYPE = 40, 14
PART_SHARE, MODEL_SHARE = 0.08, 0.35
MEASURES = ("inches", "wide", "feet", "volume", "litres", "weight", "memory", "screen")  # kinds of attributes
PACKS = ("pack", "wear", "shoe", "bed")
NONE = -1  # an attribute that the product does not have


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalogue:
    """Arrays over D documents. `source` is the document whose product this is: the same title sold under two ids."""

    seed: int
    source: np.ndarray  # int32 (D)
    type: np.ndarray  # int16 (D)
    attributes: np.ndarray  # int8 (D, MAX_ATTRIBUTES + 1): the values' numbers within their kinds, the brand's last
    is_part: np.ndarray  # bool (D): a spare part of the product, not the product
    popularity: np.ndarray  # float32 (D), in [0, 1)
    type_share: np.ndarray  # float64 (T): a type's share of the catalogue and of the demand
    order: np.ndarray  # int32 (D): documents by type, products before parts, popular ones first
    type_start: np.ndarray  # int64 (T + 1): where a type begins in `order`
    num_products: np.ndarray  # int64 (T): the number of products of a type

    def __len__(self) -> int:
        return len(self.type)


def draw_catalogue(seed: int, num_documents: int, shared_titles: float) -> Catalogue:
    """The catalogue of a seed. Document i does not depend on `num_documents`."""
    vocabulary = shop_vocabulary()
    source = _sources(seed, np.arange(num_documents), shared_titles)
    num_types = len(vocabulary.types)
    popular_rank = np.argsort(bits(seed, "type popularity", np.arange(num_types)))
    type_share = 1 / (20 + np.argsort(popular_rank))
    type_share /= type_share.sum()
    kind = pick(type_share, uniform(seed, "type", source)).astype(np.int16)
    sizes = np.array(
        [
            [len(vocabulary.values[k]) for k in t.kinds] + [0] * (MAX_ATTRIBUTES - len(t.kinds)) + [BRANDS_OF_TYPE]
            for t in vocabulary.types
        ]
    )[kind]
    # Squared: the first values of a kind are common, the last are rare.
    unit = uniform(seed, "attribute", source[:, None], np.arange(MAX_ATTRIBUTES + 1)) ** 2
    attributes = np.where(sizes > 0, np.floor(unit * sizes), NONE).astype(np.int8)
    is_part = uniform(seed, "part", source) < PART_SHARE
    popularity = uniform(seed, "popularity", np.arange(num_documents)).astype(np.float32)
    order = np.lexsort([-popularity, is_part, kind]).astype(np.int32)
    return Catalogue(
        seed=seed,
        source=source.astype(np.int32),
        type=kind,
        attributes=attributes,
        is_part=is_part,
        popularity=popularity,
        type_share=type_share,
        order=order,
        type_start=np.searchsorted(kind[order], np.arange(num_types + 1)),
        num_products=np.bincount(kind[~is_part], minlength=num_types),
    )


def document_id(number: int) -> str:
    return f"P{100000 + number}"


@lru_cache(maxsize=4)
def _brand_names(seed: int) -> list[list[str]]:
    """For each type the names of its BRANDS_OF_TYPE brands. Types of one category share brands, as they do in shops."""
    vocabulary = shop_vocabulary()
    categories = {name: i for i, name in enumerate(dict.fromkeys(t.category for t in vocabulary.types))}
    rows = []
    for number, product_type in enumerate(vocabulary.types):
        by_category = np.argsort(
            bits(seed, "brand", categories[product_type.category], np.arange(len(vocabulary.brands)))
        )
        of_type = np.argsort(bits(seed, "brand", 1000 + number, np.arange(BRANDS_OF_CATEGORY)))[:BRANDS_OF_TYPE]
        rows.append([vocabulary.brands[brand] for brand in by_category[of_type]])
    return rows


def _model_numbers(seed: int, source: np.ndarray) -> list[str | None]:
    """The makers' model numbers that titles carry, or None: only some do."""
    carried = uniform(seed, "has model", source) < MODEL_SHARE
    numbers = bits(seed, "model", source)
    return [
        f"{chr(65 + n % 26)}{chr(65 + n // 26 % 26)}-{1000 + n // 676 % 90_000}" if has else None
        for n, has in zip(numbers.tolist(), carried.tolist(), strict=True)
    ]


def titles_of(catalogue: Catalogue, numbers: np.ndarray) -> list[str]:
    """The titles of the documents of these numbers."""
    vocabulary, brands = shop_vocabulary(), _brand_names(catalogue.seed)
    source = catalogue.source[numbers]
    rows = zip(
        catalogue.type[numbers].tolist(),
        catalogue.attributes[numbers].tolist(),
        catalogue.is_part[numbers].tolist(),
        bits(catalogue.seed, "layout", source).tolist(),
        _model_numbers(catalogue.seed, source),
        strict=True,
    )
    result = []
    for kind, (*values, brand), is_part, shape, model in rows:
        product_type = vocabulary.types[kind]
        texts = {k: vocabulary.values[k][v].title for k, v in zip(product_type.kinds, values, strict=False)}
        if is_part:
            result.append(_part_title(product_type, texts, brands[kind][brand], model))
        else:
            result.append(_product_title(product_type, texts, brands[kind][brand], model, shape))
    return result


def _part_title(product_type: ProductType, texts: dict[str, str], brand: str, model: str | None) -> str:
    """A spare part's title holds the product's words, which misleads systems that count words."""
    text = " ".join(
        [brand, "Replacement", product_type.part, "for", *list(texts.values())[:1], product_type.name.title]
    )
    return text + (f" ({model})" if model else "")


def _product_title(product_type: ProductType, texts: dict[str, str], brand: str, model: str | None, shape: int) -> str:
    """A title as shops write them: brand, distinguishing attributes, name, then sizes and packs."""
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
    """Each document's own number, or for a `share` of them that of an earlier document with the same title."""
    source = numbers
    while True:
        shared = (uniform(seed, "shared title", source) < share) & (source > 0)
        if not shared.any():
            return source
        source = np.where(shared, np.floor(uniform(seed, "shared with", source) * source).astype(np.int64), source)


ANY = -1  # an attribute that the intent does not specify
MENTIONED = (0.36, 0.26, 0.16, 0.10, 0.12)  # of the attributes in the type's order, and of the brand
BY_MODEL = 0.03  # share of the intents whose product has a model number in its title


Intent = tuple[int, int, tuple[int, ...], int, bool]  # a row of Intents, in the order of its fields


@dataclass(frozen=True, kw_only=True, slots=True)
class Intents:
    """Arrays over N intents. One by model number wants `source` alone.

    Intent i is a function of (seed, i): a product of the catalogue is drawn, and some of its attributes are what
    matters to whoever searches. Intents are numbered by popularity.
    """

    number: np.ndarray  # int64 (N)
    type: np.ndarray  # int16 (N)
    attributes: np.ndarray  # int8 (N, MAX_ATTRIBUTES + 1), ANY where open
    source: np.ndarray  # int32 (N): the product that was drawn
    by_model: np.ndarray  # bool (N)

    def rows(self) -> Iterator[Intent]:
        attributes = map(tuple, self.attributes.tolist())
        columns = (self.number.tolist(), self.type.tolist(), attributes, self.source.tolist(), self.by_model.tolist())
        return zip(*columns, strict=True)


def draw_popular(seed: int, counters: np.ndarray, num_intents: int, head: float) -> np.ndarray:
    """An intent number for each counter, by popularity: the inverse of the Zipf-Mandelbrot distribution's sum."""
    unit = uniform(seed, "wanted", counters)
    rank = head * ((num_intents + head) / head) ** unit - head
    return np.minimum(rank.astype(np.int64), num_intents - 1)


def draw_intents(catalogue: Catalogue, numbers: np.ndarray) -> Intents:
    """The intents with these numbers."""
    seed = catalogue.seed
    sold = np.where(catalogue.num_products > 0, catalogue.type_share, 0)
    kind = pick(sold, uniform(seed, "intent type", numbers))
    unit = uniform(seed, "intent product", numbers) ** 1.5  # popular products first
    document = catalogue.order[catalogue.type_start[kind] + (unit * catalogue.num_products[kind]).astype(np.int64)]
    attributes = catalogue.attributes[document]
    matters = uniform(seed, "matters", numbers[:, None], np.arange(MAX_ATTRIBUTES + 1)) < MENTIONED
    source = catalogue.source[document]
    has_model = uniform(seed, "has model", source) < MODEL_SHARE
    by_model = has_model & (uniform(seed, "by model", numbers) < BY_MODEL / MODEL_SHARE)
    attributes_wanted = np.where(matters & (attributes != NONE), attributes, ANY)
    attributes_wanted[by_model] = attributes[by_model]
    return Intents(
        number=numbers,
        type=kind.astype(np.int16),
        attributes=attributes_wanted.astype(np.int8),
        source=source,
        by_model=by_model,
    )


def match_shares(intents: Intents, catalogue: Catalogue, documents: np.ndarray) -> np.ndarray:
    """The share of an intent's attributes that a document has, 1 where it has none: float32 (N, C).

    documents: int (N, C), the candidates of each intent; attributes are compared by kind number, so the share is
    meaningful only for equal types.
    """
    hits = np.zeros(documents.shape, np.float32)
    for slot in range(MAX_ATTRIBUTES + 1):
        value = intents.attributes[:, slot, None]
        hits += (value != ANY) & (catalogue.attributes[documents, slot] == value)
    count = (intents.attributes != ANY).sum(axis=1)[:, None]
    return np.where(count > 0, hits / np.maximum(count, 1), 1).astype(np.float32)


def grades(intents: Intents, catalogue: Catalogue, documents: np.ndarray) -> np.ndarray:
    """The true grade (0-3) of each candidate: int8 (N, C); documents: int (N, C).

    3: the right product with all requested attributes. 2: at least half of them. 1: the right product with fewer, a
    part for it, or a near miss (a loveseat for a sofa). 0: anything else. A query by model number wants that product.
    """
    kind = catalogue.type[documents]
    is_type = kind == intents.type[:, None]
    share = match_shares(intents, catalogue, documents)
    grade = np.where(share >= 1, 3, np.where(share >= 0.5, 2, 1)).astype(np.int8)
    by_model = intents.by_model[:, None]
    is_source = catalogue.source[documents] == intents.source[:, None]
    grade = np.where(by_model, np.where(is_source, 3, np.where(share >= 0.5, 1, 0)), grade)
    grade = np.where(catalogue.is_part[documents], np.minimum(grade, 1), grade)
    is_near = (kind == near_types()[intents.type][:, None]) & ~by_model & ~catalogue.is_part[documents]
    return np.where(is_type, grade, np.where(is_near, 1, 0)).astype(np.int8)


# How people phrase their intents: synonyms, plurals, units, word order, misspellings, odd case and spaces.

FORMS = (0.46, 0.22, 0.12, 0.09, 0.07, 0.04)  # an intent has six phrasings; most people use the first ones
BY_TITLE_WORD, PLURAL, POPULAR_MISSPELLING, FILLER = 0.42, 0.22, 0.13, 0.05
FILLERS = ("cheap {}", "best {}", "{} for sale", "{} for home", "buy {}", "{} near me", "{} reviews")
_NEIGHBOURS = {
    a: row[max(0, i - 1) : i] + row[i + 1 : i + 2]
    for row in ("qwertyuiop", "asdfghjkl", "zxcvbnm")
    for i, a in enumerate(row)
}


class Dice:
    """Small random choices out of one hash of (seed, what for): the same for the same arguments, for ever."""

    def __init__(self, *what_for: object) -> None:
        text = ":".join(map(str, what_for))
        self._left = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=32).digest(), "little")

    def roll(self, sides: int) -> int:
        """0 to sides - 1."""
        self._left, face = divmod(self._left, sides)
        return face

    def chance(self, share: float) -> bool:
        return self.roll(10_000) < share * 10_000

    def choice(self, options: Sequence[str]) -> str:
        return options[self.roll(len(options))]


@lru_cache(maxsize=50_000)
def phrase(seed: int, intent: Intent, form: int) -> tuple[str, bool]:
    """The words of an intent in form `form`, and whether they name the product as its title does, correctly spelled."""
    number, kind, (*values, brand), source, by_model = intent
    dice, vocabulary = Dice(seed, "phrase", number, form), shop_vocabulary()
    product_type = vocabulary.types[kind]
    brand_name = _brand_names(seed)[kind][brand].lower()
    if by_model:
        return _by_model(seed, source, brand_name, product_type.name.title.lower(), dice), True
    by_title = not product_type.name.synonyms or dice.chance(BY_TITLE_WORD)
    name = product_type.name.title.lower() if by_title else _shuffle_names(product_type.name.synonyms, dice)
    if dice.chance(PLURAL):
        name = _plural(name)
    phrases = [
        _say(vocabulary.values[k][v], dice) for k, v in zip(product_type.kinds, values, strict=False) if v != ANY
    ]
    if brand != ANY:
        phrases.insert(0, brand_name)
    text = _in_order(name, phrases, dice)
    if dice.chance(FILLER):
        text = dice.choice(FILLERS).format(text)
    if dice.chance(POPULAR_MISSPELLING):
        longest = max(text.split(), key=lambda word: (word.isalpha(), len(word)))
        wrong = _misspell(longest, Dice(seed, "popular", longest))
        by_title &= wrong == longest or longest not in name
        text = text.replace(longest, wrong, 1)
    return text, by_title


def _by_model(seed: int, source: int, brand: str, name: str, dice: Dice) -> str:
    model = (_model_numbers(seed, np.array([source]))[0] or "").lower()
    if dice.chance(0.3):
        model = model.replace("-", "")
    return (model, f"{brand} {model}", f"{name} {model}")[dice.roll(3)]


def private_text(seed: int, person: int) -> str:
    """A text that only this person types: a name with a telephone number, an order, an address. No two people share
    one.
    """
    dice, lists = Dice(seed, "private", person), shop_vocabulary().lists
    name = f"{dice.choice(lists['given_names'])} {dice.choice(lists['family_names'])}"
    unique = f"{person:08d}"
    errand = dice.choice(lists["private_errands"])
    return (
        f"{name} {100 + dice.roll(900)} {unique[:4]} {unique[4:]} {errand}",
        f"order {unique[:3]}-{unique[3:]}-{100 + dice.roll(900)}",
        f"{name} {1 + int(unique)} {dice.choice(('elm', 'station', 'church', 'mill'))} street",
    )[dice.roll(3)]


def adult_text(dice: Dice) -> str:
    lists = shop_vocabulary().lists
    return f"{dice.choice(lists['adult_words'])} {dice.choice(lists['adult_rests'])}"


def spam_text(dice: Dice) -> str:
    lists = shop_vocabulary().lists
    host, tail = dice.choice(lists["spam_hosts"]), dice.choice(lists["spam_rests"])
    return (f"www.{host}.example {tail}", f"http://{host}.example/{dice.roll(1000)} {tail}")[dice.roll(2)]


def empty_text(dice: Dice) -> str:
    return ("", " ", "   ", "\t")[dice.roll(4)]


def _misspell(word: str, dice: Dice) -> str:
    """A word with one slip: two letters swapped, one dropped or doubled, or a neighbouring key."""
    if len(word) < 5 or not (word.isascii() and word.isalpha()):  # short words are rarely misspelled
        return word
    at = 1 + dice.roll(len(word) - 2)
    before, letter, after = word[:at], word[at], word[at + 1 :]
    match dice.roll(4):
        case 0:
            return before + after[0] + letter + after[1:]
        case 1:
            return before + after
        case 2:
            return before + letter + letter + after
        case _:
            return before + dice.choice(_NEIGHBOURS[letter.lower()]) + after


def misspell_text(text: str, dice: Dice) -> str:
    """A text with one slip in one of its words, if any is long enough."""
    words = text.split()
    at = dice.roll(len(words)) if words else 0
    return " ".join(_misspell(word, dice) if i == at else word for i, word in enumerate(words))


def odd_case(text: str, dice: Dice) -> str:
    return (text.upper, text.title, text.capitalize, text.swapcase)[dice.roll(4)]()


def odd_spaces(text: str, dice: Dice) -> str:
    return (text.replace(" ", "  ") + " ", f"  {text}", f"{text}\t", text.replace(" ", "\u00a0", 1) + " ")[dice.roll(4)]


def _plural(name: str) -> str:
    if name.endswith("s"):
        return name
    if name.endswith(("ch", "sh", "x")):
        return name + "es"
    return name[:-1] + "ies" if name.endswith("y") and name[-2:-1] not in "aeiou" else name + "s"


def _shuffle_names(names: Sequence[str], dice: Dice) -> str:
    return names[min(dice.roll(len(names)), dice.roll(len(names)))]


def _say(term: Term, dice: Dice) -> str:
    if not term.synonyms or dice.chance(0.5):
        return term.title.lower().replace(".", "" if dice.chance(0.5) else ".")
    return _shuffle_names(term.synonyms, dice)


def _in_order(name: str, words: list[str], dice: Dice) -> str:
    place = dice.roll(20)
    if place < 12:
        return " ".join([*words, name])
    if place < 17:
        return " ".join([name, *words])
    return " ".join([*words[:1], name, *words[1:]])
