"""Ids and texts as they were meant, whatever a program on the way wrote around them.

Ids that passed through floating point come out as `10.0` or `1.2E7`; text that was copied from a page brings characters
that nobody sees. Two spellings of one person would count as two behind k, and an id that the log and the catalogue
spell differently joins nothing. So every reader of ids calls this module.
"""

import re
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from clicktower.schemas.text_contract import UNSEEN_RANGES

# What programs write where there is no value: Hive and MySQL, SQL clients, Python, pandas, R, JavaScript. None of them
# is an id, a rank or a time.
MARKS_OF_NOTHING = (
    "", "\\N", "NULL", "Null", "null", "(null)", "None", "none", "NaN", "nan", "NaT", "NA", "N/A", "<NA>", "undefined",
)  # fmt: skip

# Classes of characters, for Arrow's RE2. Unicode's White_Space, the separators U+001C to U+001F, which Python counts as
# white space too, and the Braille pattern without dots, which looks like a space.
_BLANKS = "[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\u2800]+"
_UNSEEN = "[" + "".join(rf"\x{{{first:X}}}-\x{{{last:X}}}" for first, last in UNSEEN_RANGES) + "]+"

_MAY_BE_FLOAT = r"^-?[0-9]+(?:\.|[eE]\+)"  # one search in a column instead of two
_POINT_ZERO = r"^(-?(?:0|[1-9][0-9]*))\.0*$"
# Powers of ten as Java (`1.2345678E7`), Python and C (`1e+16`) print them. A bare `12E5` is more often a part number.
_PRINTED_POWER = r"^-?[0-9](?:\.[0-9]+[eE]\+?|[eE]\+)[0-9]{1,2}$"
_ANY_POWER = r"^-?[0-9]+(?:\.[0-9]*)?[eE]\+?[0-9]{1,2}$"


_MAY_BE_NOISE = r"[^!-~]|^-?[0-9]+[.eE]"  # in the id of a person


def visible(texts: pa.Array) -> pa.Array:
    """The visible form of texts: without characters that nobody sees, each run of white space as one space, trimmed.

    `texts`: string, may hold nulls.
    """
    if not pc.any(pc.match_substring_regex(texts, r"[^!-~]")).as_py():
        return texts
    spaced = pc.replace_substring_regex(texts, _BLANKS, " ")
    return pc.utf8_trim(pc.replace_substring_regex(pc.replace_substring_regex(spaced, _UNSEEN, ""), " +", " "), " ")


def ids(texts: pa.Array) -> pa.Array:
    """Ids of documents and queries: trimmed, and whole numbers where a float was printed (`10.0`, `1.2E7`).

    `texts`: string, may hold nulls. An empty id stays empty.
    """
    trimmed = pc.utf8_trim_whitespace(texts)
    if not pc.any(pc.match_substring_regex(trimmed, _MAY_BE_FLOAT)).as_py():
        return trimmed
    return _whole(pc.replace_substring_regex(trimmed, _POINT_ZERO, r"\1"), _PRINTED_POWER)


def person_ids(texts: pa.Array) -> pa.Array:
    """Ids of people in the one form that is hashed: visible, composed (NFC), floats as whole numbers, `1e1` included.

    `texts`: string, may hold nulls. Case is kept, since ids in base64 differ in it. What only looks or counts like
    white space (the blank Braille pattern, NEL, the separators U+001C to U+001F) is noise in an id.
    """
    if not pc.any(pc.match_substring_regex(texts, _MAY_BE_NOISE)).as_py():
        return texts
    if not pc.all(pc.string_is_ascii(texts)).as_py():
        texts = pc.utf8_normalize(texts, "NFC")
    texts = pc.replace_substring_regex(texts, "[\x1c-\x1f\x85\u2800]+", "")
    return _whole(pc.replace_substring_regex(visible(texts), _POINT_ZERO, r"\1"), _ANY_POWER)


def id_of(text: str) -> str:
    """`ids` of one text."""
    return ids(pa.array([text], pa.string()))[0].as_py() if _MAY_CHANGE.search(text) else text


_MAY_CHANGE = re.compile(r"^\s|\s$|^-?[0-9]+(\.[0-9]*([eE]\+?[0-9]{1,2})?|[eE]\+[0-9]{1,2})$")


def _whole(texts: pa.Array, powers: str) -> pa.Array:
    """The texts with those that match `powers` written out, if they are whole numbers."""
    matches = pc.match_substring_regex(texts, powers)
    if not pc.any(matches).as_py():
        return texts
    written = []
    for text in texts.filter(matches.fill_null(False)).to_pylist():
        number = Decimal(text)
        written.append(f"{number:.0f}" if number == number.to_integral_value() else text)
    return pc.replace_with_mask(texts, matches.fill_null(False), pa.array(written, pa.string()))
