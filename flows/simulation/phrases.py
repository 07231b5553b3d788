"""How people put what they want into words: synonyms, plurals, units, word order, misspellings, odd case and spaces."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from flows.simulation.simulated_catalogue import (
    MAX_ATTRIBUTES,
    MODEL_SHARE,
    NONE,
    Catalogue,
    ShopVocabulary,
    Term,
    model_numbers,
)
from flows.simulation.simulation_config import pick, uniform, uniform_of

FORMS = (0.46, 0.22, 0.12, 0.09, 0.07, 0.04)  # an intent has six forms of words; most people use the first ones
BY_TITLE_WORD, PLURAL, POPULAR_MISSPELLING, FILLER = 0.42, 0.22, 0.13, 0.05
FILLERS = ("cheap {}", "best {}", "{} for sale", "{} for home", "buy {}", "{} near me", "{} reviews")
_NEIGHBOURS = {
    a: row[max(0, i - 1) : i] + row[i + 1 : i + 2]
    for row in ("qwertyuiop", "asdfghjkl", "zxcvbnm")
    for i, a in enumerate(row)
}
_FEWEST_LETTERS = 5  # people seldom misspell shorter words


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


class Phrasebook:
    """The queries of one simulation: (intent, form) -> text, kept for the most recent ones."""

    def __init__(self, vocabulary: ShopVocabulary, seed: int, brands: Sequence[Sequence[int]]) -> None:
        self._vocabulary, self._seed, self._brands = vocabulary, seed, brands
        self.phrase = lru_cache(maxsize=50_000)(self._phrase)
        self._popular_misspelling = lru_cache(maxsize=20_000)(lambda word: misspell(word, Dice(seed, "popular", word)))

    def _phrase(
        self, number: int, kind: int, wanted: tuple[int, ...], source: int, by_model: bool, form: int
    ) -> tuple[str, bool]:
        """What form `form` of an intent says, and whether it names the product as its title does, spelled rightly."""
        dice = Dice(self._seed, "phrase", number, form)
        product_type = self._vocabulary.types[kind]
        *values, brand = wanted
        brand_name = self._vocabulary.brands[self._brands[kind][brand]].lower()
        if by_model:
            return self._by_model(source, brand_name, product_type.name.title.lower(), dice), True
        by_title = not product_type.name.asked or dice.chance(BY_TITLE_WORD)
        name = product_type.name.title.lower() if by_title else _often_first(product_type.name.asked, dice)
        if dice.chance(PLURAL):
            name = plural(name)
        said = [
            _say(self._vocabulary.values[k][v], dice)
            for k, v in zip(product_type.kinds, values, strict=False)
            if v != ANY
        ]
        if brand != ANY:
            said.insert(0, brand_name)
        text = _in_order(name, said, dice)
        if dice.chance(FILLER):
            text = dice.choice(FILLERS).format(text)
        if dice.chance(POPULAR_MISSPELLING):
            longest = max(text.split(), key=lambda word: (word.isalpha(), len(word)))
            wrong = self._popular_misspelling(longest)
            by_title &= wrong == longest or longest not in name
            text = text.replace(longest, wrong, 1)
        return text, by_title

    def _by_model(self, source: int, brand: str, name: str, dice: Dice) -> str:
        model = (model_numbers(self._seed, np.array([source]))[0] or "").lower()
        if dice.chance(0.3):
            model = model.replace("-", "")
        return (model, f"{brand} {model}", f"{name} {model}")[dice.roll(3)]


def private_text(vocabulary: ShopVocabulary, seed: int, person: int) -> str:
    """What only this person types: a name with a telephone number, an order, an address. No two people share one."""
    dice, lists = Dice(seed, "private", person), vocabulary.lists
    name = f"{dice.choice(lists['given_names'])} {dice.choice(lists['family_names'])}"
    unique = f"{person:08d}"
    errand = dice.choice(lists["private_errands"])
    return (
        f"{name} {100 + dice.roll(900)} {unique[:4]} {unique[4:]} {errand}",
        f"order {unique[:3]}-{unique[3:]}-{100 + dice.roll(900)}",
        f"{name} {1 + int(unique)} {dice.choice(('elm', 'station', 'church', 'mill'))} street",
    )[dice.roll(3)]


def adult_text(vocabulary: ShopVocabulary, dice: Dice) -> str:
    return f"{dice.choice(vocabulary.lists['adult_words'])} {dice.choice(vocabulary.lists['adult_rests'])}"


def spam_text(vocabulary: ShopVocabulary, dice: Dice) -> str:
    host, rest = dice.choice(vocabulary.lists["spam_hosts"]), dice.choice(vocabulary.lists["spam_rests"])
    return (f"www.{host}.example {rest}", f"http://{host}.example/{dice.roll(1000)} {rest}")[dice.roll(2)]


def empty_text(dice: Dice) -> str:
    return ("", " ", "   ", "\t")[dice.roll(4)]


def misspell(word: str, dice: Dice) -> str:
    """A word with one slip: two letters swapped, one dropped, doubled, or the key beside it. Short words stay."""
    if len(word) < _FEWEST_LETTERS or not (word.isascii() and word.isalpha()):
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
    return " ".join(misspell(word, dice) if i == at else word for i, word in enumerate(words))


def odd_case(text: str, dice: Dice) -> str:
    return (text.upper, text.title, text.capitalize, text.swapcase)[dice.roll(4)]()


def odd_spaces(text: str, dice: Dice) -> str:
    return (text.replace(" ", "  ") + " ", f"  {text}", f"{text}\t", text.replace(" ", "\u00a0", 1) + " ")[dice.roll(4)]


def plural(name: str) -> str:
    if name.endswith("s"):
        return name
    if name.endswith(("ch", "sh", "x")):
        return name + "es"
    return name[:-1] + "ies" if name.endswith("y") and name[-2:-1] not in "aeiou" else name + "s"


def _often_first(asked: Sequence[str], dice: Dice) -> str:
    return asked[min(dice.roll(len(asked)), dice.roll(len(asked)))]


def _say(term: Term, dice: Dice) -> str:
    if not term.asked or dice.chance(0.5):
        return term.title.lower().replace(".", "" if dice.chance(0.5) else ".")
    return _often_first(term.asked, dice)


def _in_order(name: str, said: list[str], dice: Dice) -> str:
    place = dice.roll(20)
    if place < 12:
        return " ".join([*said, name])
    if place < 17:
        return " ".join([name, *said])
    return " ".join([*said[:1], name, *said[1:]])


ANY = -1  # an attribute that the intent leaves open
MENTIONED = (0.36, 0.26, 0.16, 0.10, 0.12)  # of the attributes in the type's order, and of the brand
BY_MODEL = 0.03  # of the intents whose product carries a model number in its title, relative to all that could


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

    def __len__(self) -> int:
        return len(self.number)

    def take(self, rows: np.ndarray) -> "Intents":
        return Intents(
            number=self.number[rows],
            type=self.type[rows],
            attributes=self.attributes[rows],
            source=self.source[rows],
            by_model=self.by_model[rows],
        )


def draw_popular(key: np.uint64, counters: np.ndarray, num_intents: int, head: float) -> np.ndarray:
    """An intent number for each counter, by popularity: the inverse of the Zipf-Mandelbrot distribution's sum."""
    unit = uniform(key, counters)
    rank = head * ((num_intents + head) / head) ** unit - head
    return np.minimum(rank.astype(np.int64), num_intents - 1)


def draw_intents(vocabulary: ShopVocabulary, seed: int, catalogue: Catalogue, numbers: np.ndarray) -> Intents:
    """The intents of these numbers."""
    sold = np.where(catalogue.num_products > 0, catalogue.type_share, 0)
    kind = pick(sold, uniform_of(seed, "intent type", numbers))
    unit = uniform_of(seed, "intent product", numbers) ** 1.5  # popular products first
    document = catalogue.order[catalogue.type_start[kind] + (unit * catalogue.num_products[kind]).astype(np.int64)]
    attributes = catalogue.attributes[document]
    matters = uniform_of(seed, "matters", numbers[:, None], np.arange(MAX_ATTRIBUTES + 1)) < MENTIONED
    source = catalogue.source[document]
    has_model = uniform_of(seed, "has model", source) < MODEL_SHARE
    by_model = has_model & (uniform_of(seed, "by model", numbers) < BY_MODEL / MODEL_SHARE)
    wanted = np.where(matters & (attributes != NONE), attributes, ANY)
    wanted[by_model] = attributes[by_model]
    return Intents(
        number=numbers, type=kind.astype(np.int16), attributes=wanted.astype(np.int8), source=source, by_model=by_model
    )


def match_shares(intents: Intents, catalogue: Catalogue, documents: np.ndarray) -> np.ndarray:
    """The share of an intent's attributes that a document has, 1 where it has none: float32 (N, C).

    documents: int (N, C), the candidates of each intent; attributes are compared by kind number, so the share means
    something only where the types are equal.
    """
    hits = np.zeros(documents.shape, np.float32)
    for slot in range(MAX_ATTRIBUTES + 1):
        wanted = intents.attributes[:, slot, None]
        hits += (wanted != ANY) & (catalogue.attributes[documents, slot] == wanted)
    count = (intents.attributes != ANY).sum(axis=1)[:, None]
    return np.where(count > 0, hits / np.maximum(count, 1), 1).astype(np.float32)


def grades(vocabulary: ShopVocabulary, intents: Intents, catalogue: Catalogue, documents: np.ndarray) -> np.ndarray:
    """The true grade (0-3) of each candidate: int8 (N, C); documents: int (N, C).

    3: the right product with everything asked for. 2: at least half of it. 1: the right product with less, a part for
    it, or a near miss (a loveseat for a sofa). 0: anything else. Who asks by model number wants that product.
    """
    near = np.array([t.near for t in vocabulary.types], np.int16)
    kind = catalogue.type[documents]
    is_type = kind == intents.type[:, None]
    share = match_shares(intents, catalogue, documents)
    grade = np.where(share >= 1, 3, np.where(share >= 0.5, 2, 1)).astype(np.int8)
    by_model = intents.by_model[:, None]
    is_source = catalogue.source[documents] == intents.source[:, None]
    grade = np.where(by_model, np.where(is_source, 3, np.where(share >= 0.5, 1, 0)), grade)
    grade = np.where(catalogue.is_part[documents], np.minimum(grade, 1), grade)
    is_near = (kind == near[intents.type][:, None]) & ~by_model & ~catalogue.is_part[documents]
    return np.where(is_type, grade, np.where(is_near, 1, 0)).astype(np.int8)
