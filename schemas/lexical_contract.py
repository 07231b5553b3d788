"""Text -> terms, the words as a lexical search counts them: a public contract beside the trigram contract.

    text contract: normalise -> words of Unicode (UAX #29) -> without 's and elided articles -> Snowball's stems

"Pipe brackets," has the terms `pipe` and `bracket`. The words are those of Lucene's StandardTokenizer, of Elasticsearch
and of OpenSearch: punctuation separates words, but an apostrophe or a full stop within a word (o'neil, u.s.a) and a
decimal separator (3.5) stay. Scripts written without spaces are cut into overlapping pairs, as Lucene's CJKBigramFilter
does, in every language. There are no stop words: a frequent word has hardly any weight.

What a language changes stands in two places: the stemmer, from PyStemmer, and what Lucene takes off before it, the
English possessive (sky's) and the articles of French, Italian, Catalan and Irish (l'eau). Where Lucene cuts otherwise,
tests/schemas/test_terms_beside_lucene.py says why. A text can have words (text_contract) and no term, such as "&".
"""

from dataclasses import dataclass
from functools import cached_property
from threading import local

import numpy as np
import pyarrow as pa
import regex
import Stemmer

from clicktower.schemas.section import DEFAULT_LANGUAGE, Language
from clicktower.schemas.text_contract import (
    CONTRACT_VERSION,
    UNSPACED_RANGES,
    cut_pieces,
    normalise,
    normalise_column,
    spaced_pieces,
)

LEXICAL_VERSION = "1.0"  # another where the text contract's `normalise` is another
STEMMER_VERSION = Stemmer.version()

# Lucene's lists (FrenchAnalyzer, ItalianAnalyzer, CatalanAnalyzer, IrishAnalyzer).
ARTICLES = {
    "french": "l m t qu n s j d c jusqu quoiqu lorsqu puisqu",
    "italian": "c l all dall dell nell sull coll pell gl agl dagl degl negl sugl un m t s v d",
    "catalan": "d l m n s t",
    "irish": "d m b",
}

_UNSPACED_RANGES = "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSPACED_RANGES)
_UNSPACED = rf"(?!\p{{M}})[[[{_UNSPACED_RANGES}]&&[\p{{L}}\p{{M}}\p{{N}}\p{{Han}}]]\p{{WB=Katakana}}]+"
# The rules WB4 to WB13b of UAX #29 by their names. Marks and format characters belong to what they follow.
_EXTENDED = r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*+"
_HEBREW = r"\p{WB=Hebrew_Letter}"
_LETTER = rf"(?:\p{{WB=ALetter}}{_EXTENDED}|{_HEBREW}{_EXTENDED}(?:'{_EXTENDED}|\"{_EXTENDED}(?={_HEBREW}))?)"
_LETTERS = rf"{_LETTER}+(?:[\p{{WB=MidLetter}}\p{{WB=MidNumLet}}']{_EXTENDED}{_LETTER}+)*"
_DIGITS = rf"\p{{WB=Numeric}}{_EXTENDED}"
_NUMBER = rf"(?:{_DIGITS})+(?:[\p{{WB=MidNum}}\p{{WB=MidNumLet}}']{_EXTENDED}(?:{_DIGITS})+)*"
_JOINER = rf"(?:\p{{WB=ExtendNumLet}}{_EXTENDED})*"
# Scripts of South-East Asia that the text contract does not cut.
_OTHER_UNSPACED = rf"(?:\p{{LB=Complex_Context}}{_EXTENDED})+"
_PLAIN = str.maketrans("’⁄", "'/")  # an apostrophe as typed; ½ as 1/2
_WORD = regex.compile(
    rf"(?V1)({_UNSPACED})|{_JOINER}(?:{_LETTERS}|{_NUMBER})(?:{_JOINER}(?:{_LETTERS}|{_NUMBER}))*{_JOINER}"
    rf"|{_OTHER_UNSPACED}"
)


@dataclass(frozen=True)
class Analyser:
    """The terms of texts in a language. Safe for many threads."""

    language: Language = DEFAULT_LANGUAGE

    def terms(self, text: str) -> list[str]:
        """The terms of a text in reading order, repeated ones as often as they occur."""
        return [term for piece in normalise(text).split() for term in self._cut(piece)]

    def terms_of_column(self, texts: pa.Array | pa.ChunkedArray) -> tuple[np.ndarray, pa.DictionaryArray]:
        """The terms of texts, concatenated: (offsets, terms), as `text_contract.words_of_column`.

        `texts`: string, without nulls.
        """
        offsets, pieces = spaced_pieces(normalise_column(texts))
        return cut_pieces(offsets, pieces, {i: self._cut(p) for i, p in enumerate(pieces.dictionary.to_pylist())})

    @property
    def contract(self) -> dict[str, str]:
        """What a reader of saved terms must have, to look them up."""
        stemmer = {} if self.language == "none" else {"stemmer": STEMMER_VERSION}
        return {"version": LEXICAL_VERSION, "text": CONTRACT_VERSION, "language": self.language, **stemmer}

    def _cut(self, piece: str) -> list[str]:
        """The terms of a piece of normalised text without white space."""
        words: list[str] = []
        piece = piece.translate(_PLAIN)
        for match in _WORD.finditer(piece):
            run = match[1]
            if run is None or len(run) == 1:
                words.append(match[0])
            else:
                words += (run[at : at + 2] for at in range(len(run) - 1))
        if self.language == "none" or not words:
            return words
        if "'" in piece and self._affix:
            words = [self._affix.sub("", word) for word in words]
        return _stemmer(self.language).stemWords(words)

    @cached_property
    def _affix(self) -> regex.Pattern[str] | None:
        """What the stemmer takes for no part of a word."""
        if self.language == "english":
            return regex.compile("'s$")
        articles = ARTICLES.get(self.language)
        return regex.compile(f"^(?:{'|'.join(articles.split())})'(?=.)") if articles else None


_of_thread = local()  # a stemmer has a state, so each thread has its own


def _stemmer(language: Language) -> Stemmer.Stemmer:
    stemmers = _of_thread.__dict__
    if language not in stemmers:
        stemmers[language] = Stemmer.Stemmer(language)
    return stemmers[language]
