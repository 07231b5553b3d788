"""Text -> words: rules 1 and 2 of the text contract (see `schemas.trigrams` for rules 3 and 4).

Whoever serves a model, in any language, must cut a text into the same words. The definition is Python's
`unicodedata` and `str.lower`; the Unicode version in use is recorded with every model.
"""

import re
import unicodedata

UNICODE_VERSION = unicodedata.unidata_version

# Scripts written without spaces between words, as code point ranges:
# Han, Hiragana, Katakana, Thai, Lao, Khmer, Myanmar.
UNSPACED_RANGES = (
    (0x0E01, 0x0E3A), (0x0E40, 0x0E5B), (0x0E80, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x19E0, 0x19FF),
    (0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x3029), (0x3038, 0x303B), (0x3041, 0x30FF), (0x31F0, 0x31FF),
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F), (0xF900, 0xFAFF),
    (0x1B000, 0x1B16F), (0x20000, 0x323AF),
)  # fmt: skip
_UNSPACED_RUN = re.compile("([" + "".join(f"{chr(a)}-{chr(b)}" for a, b in UNSPACED_RANGES) + "]+)")


def normalise(text: str) -> str:
    """The normalised form of a text: NFKC, lower case, NFKC again, runs of white space as one space.

    Digits stay and nothing is stemmed. Two queries with the same form are the same query.
    """
    if text.isascii():  # NFKC is the identity on ASCII
        return " ".join(text.lower().split())
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower())
    return " ".join(folded.split())


def words(text: str) -> list[str]:
    """The words of a text in reading order; a text without any has no embedding.

    White space separates words. A run of an unspaced script is cut into overlapping pairs of characters, as Lucene's
    CJKBigramFilter does; a lone character stays alone.
    """
    return split_normalised(normalise(text))


def split_normalised(normalised: str) -> list[str]:
    """`words` of a text that `normalise` made."""
    if normalised.isascii():
        return normalised.split()
    found: list[str] = []
    for spaced in normalised.split():
        for piece in _UNSPACED_RUN.split(spaced):
            if not piece:
                continue
            if len(piece) > 1 and _UNSPACED_RUN.fullmatch(piece):
                found.extend(piece[i : i + 2] for i in range(len(piece) - 1))
            else:
                found.append(piece)
    return found
