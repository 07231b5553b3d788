"""Text in the cells of a spreadsheet: that it stays text, and that what comes back is what was written.

A cell that begins with = + - @ is a formula to a spreadsheet, which may fetch and run things; `3/4` becomes a date,
`007` a 7, `12E4` a number. Such cells get an apostrophe in front. What a spreadsheet changes nevertheless, and columns
that were sorted apart, show in a row's check: letters that only its own cells give.
"""

import hashlib
import re
import unicodedata

_GUARD = "'"
_FORMULA = "=+-@\t\r\uff1d\uff0b\uff0d\uff20"  # the last four: the same in full width, which some spreadsheets take too
# Digits with what numbers, dates, times and sums of money are written with; a month and a number; a truth value.
_NUMBER = re.compile(
    r"[\W\d_]*\d[\W\d_]*(e[\W\d_]*)?([ap]m?)?"
    r"|(?=.*\d)[\W\d]*(jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?|oct(ober)?"
    r"|nov(ember)?|dec(ember)?)[\W\d]*"
    r"|true|false",
    re.IGNORECASE,
)
_LETTERS = "bcdfghjklmnpqrstvwxz"  # no vowels, so that no check is a word
_CHECK_LETTERS = 12


def guarded(text: str) -> str:
    """A text in one line, with an apostrophe in front where a spreadsheet would take it for something else."""
    line = " ".join(text.split())
    is_safe = not line.startswith((_GUARD, *_FORMULA)) and not _NUMBER.fullmatch(line)
    return line if is_safe else _GUARD + line


def unguarded(cell: str) -> str:
    """The text that a cell was written for."""
    return cell.strip().removeprefix(_GUARD)


def check(query_id: str, query: str, document_id: str, title: str) -> str:
    """Twelve letters that follow from both ids, and from the letters and digits of both texts."""
    parts = (query_id, _bare(query), document_id, _bare(title))
    content = "\0".join(parts).encode("utf-8", "surrogatepass")
    number = int.from_bytes(hashlib.blake2b(content, digest_size=16, person=b"sheet").digest(), "big")
    letters = []
    for _ in range(_CHECK_LETTERS):
        number, letter = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[letter])
    return "".join(letters)


def _bare(text: str) -> str:
    """Without what a spreadsheet may change and no reader sees: spaces, quotes, capitals, forms of one letter."""
    return "".join(char for char in unicodedata.normalize("NFKC", text).casefold() if char.isalnum())
