"""Languages of queries, detected from many of them together by py3langid, on this machine. The library is optional.

A query of a few words hardly tells its language, and product names (`ryobi 2x4`) none: taken one by one, py3langid puts
the queries of an English shop into a dozen languages. So no votes are counted. The shares are those that make all its
answers together most likely, found by expectation maximisation (Saerens, Latinne and Decaestecker, "Adjusting the
outputs of a classifier to new a priori probabilities", Neural Computation 14(1), 2002): what English explains well
enough needs no second language. `benchmarks/languages.py` measures how right this is.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from schemas.words import UNSPACED_RANGES

MIN_QUERIES = 100  # different ones; of fewer, chance and a few loan words make languages
MIN_SHARE = 0.05  # what is below may be of the library's making
# Of the queries that a language is given, the part that the library must give it one by one. In texts of one language
# it is a third and more; names of Americans are made out English by a sixth of them.
MIN_BY_ITSELF = 0.25
MAX_ERROR = 0.1  # of a share: 95 in 100 are nearer to the truth, and of the nearest relatives 90

_MAX_QUERIES = 2_000  # a draw of them tells a share within 0.02
_MAX_LETTERS = 200
_HARDLY = 1e-9
_CLOSE_ENOUGH = 1e-5
_MAX_ROUNDS = 500
_NO_LANGUAGE = "zxx"  # as ISO 639-2 has it: part numbers, letters at random
# Varieties that the library tells from the language whose name people give them.
_PART_OF = {"wuu": "zh", "yue": "zh", "arz": "ar", "ary": "ar", "nn": "no", "uzs": "uz", "hbo": "he", "grc": "el"}
_LANGUAGE_NAMES = {
    "af": "Afrikaans", "ar": "Arabic", "az": "Azerbaijani", "be": "Belarusian", "bg": "Bulgarian", "bn": "Bengali",
    "bs": "Bosnian", "ca": "Catalan", "cs": "Czech", "cy": "Welsh", "da": "Danish", "de": "German", "el": "Greek",
    "en": "English", "es": "Spanish", "et": "Estonian", "eu": "Basque", "fa": "Persian", "fi": "Finnish",
    "fr": "French", "ga": "Irish", "gl": "Galician", "gu": "Gujarati", "he": "Hebrew", "hi": "Hindi", "hr": "Croatian",
    "hu": "Hungarian", "hy": "Armenian", "id": "Indonesian", "is": "Icelandic", "it": "Italian", "ja": "Japanese",
    "ka": "Georgian", "kk": "Kazakh", "km": "Khmer", "kn": "Kannada", "ko": "Korean", "lo": "Lao", "lt": "Lithuanian",
    "lv": "Latvian", "mk": "Macedonian", "ml": "Malayalam", "mn": "Mongolian", "mr": "Marathi", "ms": "Malay",
    "my": "Burmese", "ne": "Nepali", "nl": "Dutch", "no": "Norwegian", "pa": "Punjabi", "pl": "Polish",
    "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "si": "Sinhala", "sk": "Slovak", "sl": "Slovenian",
    "sq": "Albanian", "sr": "Serbian", "sv": "Swedish", "sw": "Swahili", "ta": "Tamil", "te": "Telugu", "th": "Thai",
    "tl": "Tagalog", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu", "uz": "Uzbek", "vi": "Vietnamese",
    "zh": "Chinese", "zu": "Zulu",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class Languages:
    """`shares`: of the different queries with letters, by ISO 639 code, the largest first; `unsure` is the rest.

    Where nothing can be told, `why_not` says why, and all is unsure.
    """

    shares: dict[str, float]
    unsure: float
    queries: int  # that were looked at
    why_not: str | None = None


def find_languages(queries: Sequence[str], *, seed: int = 0) -> Languages:
    """The languages of different, normalised queries, from a draw of 2,000 of them. Takes about a second."""
    lettered = sorted(query for query in queries if any(map(str.isalpha, query)))
    if len(lettered) < MIN_QUERIES:
        return _untold(f"{len(lettered)} different queries with letters are too few, it takes {MIN_QUERIES}")
    drawn = np.random.default_rng(seed).permutation(len(lettered))[:_MAX_QUERIES]
    try:
        codes, probabilities = identify([lettered[at] for at in drawn])
    except ImportError:
        return _untold("py3langid is not installed (pip install 'clicktower[check]')")
    return tell(codes, probabilities)


def name_of(code: str) -> str:
    """The English name of a language; of a rare one its code."""
    return _LANGUAGE_NAMES.get(code, f"language {code}")


def tell(codes: Sequence[str], probabilities: np.ndarray) -> Languages:
    """The languages that there is evidence for. `probabilities`: float64 [queries, codes], rows sum to 1."""
    best = np.bincount(probabilities.argmax(axis=1), minlength=len(codes)) / len(probabilities)
    shares: defaultdict[str, float] = defaultdict(float)
    by_itself: defaultdict[str, float] = defaultdict(float)
    for code, share, alone in zip(codes, most_likely_shares(probabilities).tolist(), best.tolist(), strict=True):
        # Only now: two columns added up before would be twice as likely as their neighbours from the start.
        shares[_PART_OF.get(code, code)] += share
        by_itself[_PART_OF.get(code, code)] += alone
    told = {
        code: share
        for code, share in sorted(shares.items(), key=lambda pair: -pair[1])
        if share >= MIN_SHARE and by_itself[code] >= MIN_BY_ITSELF * share and code != _NO_LANGUAGE
    }
    return Languages(shares=told, unsure=max(0.0, 1.0 - sum(told.values())), queries=len(probabilities))


def most_likely_shares(probabilities: np.ndarray) -> np.ndarray:
    """The shares of the columns, float64 [columns], sum 1, under which all rows together are most likely."""
    shares = np.full(probabilities.shape[1], 1 / probabilities.shape[1])
    for _ in range(_MAX_ROUNDS):
        weighted = probabilities * shares
        before, shares = shares, (weighted / weighted.sum(axis=1, keepdims=True)).mean(axis=0)
        if np.abs(shares - before).max() < _CLOSE_ENOUGH:
            break
    return shares


def identify(queries: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """(codes, how likely each is for each query by itself). Raises ImportError where py3langid is not installed."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    codes = list(identifier.labels)
    answers = [dict(identifier.rank(query[:_MAX_LETTERS])) for query in queries]
    probabilities = np.array([[answer[code] for code in codes] for answer in answers], np.float64)
    probabilities += _HARDLY  # a zero would keep a language out for good
    return codes, probabilities / probabilities.sum(axis=1, keepdims=True)


def _untold(why_not: str) -> Languages:
    return Languages(shares={}, unsure=1.0, queries=0, why_not=why_not)


# The writing systems of queries, by the names that Unicode gives to their letters.


NO_LETTERS = "no letters"
_UNSPACED = re.compile("[" + "".join(f"{chr(a)}-{chr(b)}" for a, b in UNSPACED_RANGES) + "]")
_SYSTEM_NAMES = {
    "CJK": "Han",
    "KANGXI": "Han",
    "IDEOGRAPHIC": "Han",
    "KATAKANA-HIRAGANA": "Katakana",
    "FULLWIDTH": "Latin",
}


def writing_systems(queries: Iterable[str], weights: Iterable[int]) -> tuple[Counter[str], int]:
    """(weight by the writing system that most letters of a query are of, weight with any unspaced script)."""
    found: Counter[str] = Counter()
    unspaced = 0
    for query, weight in zip(queries, weights, strict=True):
        found[_of(query)] += weight
        if not query.isascii() and _UNSPACED.search(query):
            unspaced += weight
    return found, unspaced


def _of(query: str) -> str:
    if query.isascii():
        return "Latin" if any(map(str.isalpha, query)) else NO_LETTERS
    letters = Counter(_of_letter(letter) for letter in query if letter.isalpha())
    return letters.most_common(1)[0][0] if letters else NO_LETTERS


@lru_cache(maxsize=1 << 16)
def _of_letter(letter: str) -> str:
    first = unicodedata.name(letter, "unnamed").split(" ", 1)[0]
    return _SYSTEM_NAMES.get(first, first.capitalize())
