"""The sheet that assessors fill in: a row for each pair of a query and a document, and an empty cell for its grade.

.csv or .tsv by its name, in UTF-8 with a byte order mark and all cells quoted, so that spreadsheets open it as it is.
"""

import csv
import hashlib
import io
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from schemas import storage
from schemas.errors import StageError, UsageError

# Text in the cells of a spreadsheet: that it stays text, and that what comes back is what was written.
#
# A cell that begins with = + - @ is a formula to a spreadsheet, which may fetch and run things; `3/4` becomes a date,
# `007` a 7, `12E4` a number. Such cells get an apostrophe in front. What a spreadsheet changes nevertheless, and
# columns that were sorted apart, show in a row's check: letters that only its own cells give.


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


GRADES = ("bad", "fair", "good", "excellent")  # what each grade from 0 on is called
COLUMNS = ("query_id", "query", "document_id", "title", "grade", "check")
DELIMITERS = {".csv": ",", ".tsv": "\t"}
_GRADE_HEADER = (
    "grade: 0 Bad (not what was asked for); 1 Fair (near it, of some use); 2 Good (what was asked for);"
    " 3 Excellent (exactly what was asked for)"
)


class Item(NamedTuple):
    """One document to judge for one query."""

    query_id: str
    query: str
    document_id: str
    title: str


def sheet_bytes(items: Sequence[Item], name: str) -> bytes:
    """The sheet of these items. Raises UsageError where `name` ends neither with .csv nor with .tsv."""
    delimiter = next((sign for ending, sign in DELIMITERS.items() if name.lower().endswith(ending)), None)
    if delimiter is None:
        raise UsageError(
            asked=f"a sheet for assessors was to be written to {name}",
            found="the ending of its name is unknown",
            do="use .csv or .tsv",
        )
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerow([*COLUMNS[:4], _GRADE_HEADER, f"check of {len(items)} rows"])
    for item in items:
        writer.writerow([*map(guarded, item), "", check(*item)])
    return b"\xef\xbb\xbf" + text.getvalue().encode("utf-8", "replace")


# A filled-in sheet, as whatever spreadsheet saved it: grades by query and document, or what is wrong in which row.


Pair = tuple[str, str]  # query id, document id

_GRADE = re.compile(rf"([0-{len(GRADES) - 1}])([.,]0+)?")  # programs write 2.0 where other cells are empty
_SHOWN = 5  # rows named in an error


@dataclass(frozen=True, kw_only=True, slots=True)
class Sheet:
    """What one sheet says. `rows`: where each pair stands, counted as a spreadsheet does (the header is row 1)."""

    name: str
    grades: dict[Pair, int]
    rows: dict[Pair, int]
    queries: dict[str, str]
    num_written: int  # rows that the sheet had when it was made


def read_sheet(uri: str) -> Sheet:
    """A sheet that `pool` wrote and a person filled in.

    Commas, semicolons or tabs; UTF-8 or UTF-16; a byte order mark or none; any order of rows and columns. Raises
    UsageError (no such file) and StageError: another kind of file, a row whose cells do not belong together, a grade
    that is none, two grades of one pair.
    """
    header, body = _table(uri)
    at = _columns(uri, header)
    grades: dict[Pair, int] = {}
    rows: dict[Pair, int] = {}
    queries: dict[str, str] = {}
    strange, invalid, double = [], [], []
    for number, row in enumerate(body, start=2):
        cells = {name: row[place].strip() if place < len(row) else "" for name, place in at.items()}
        if not any(cells.values()):
            continue
        query_id, query, document_id, title = (unguarded(cells[name]) for name in COLUMNS[:4])
        if cells["check"] != check(query_id, query, document_id, title):
            strange.append(number)
            continue
        pair = query_id, document_id
        queries[query_id] = query
        rows.setdefault(pair, number)
        if not cells["grade"]:
            continue
        grade = _grade(cells["grade"])
        if grade is None:
            invalid.append(number)
        elif grades.setdefault(pair, grade) != grade:
            double.append((rows[pair], number))
    _refuse(uri, strange, invalid, double)
    if not rows:
        raise _bad_sheet(uri, "it holds no row", do="give the sheet that was filled in")
    written = re.search(r"\d+", header[at["check"]])
    num_written = int(written[0]) if written else 0
    return Sheet(name=uri, grades=grades, rows=rows, queries=queries, num_written=num_written)


def _grade(cell: str) -> int | None:
    if found := _GRADE.fullmatch(cell):
        return int(found[1])
    return GRADES.index(cell.lower()) if cell.lower() in GRADES else None


def _table(uri: str) -> tuple[list[str], list[list[str]]]:
    """The header and all rows below it."""
    text = _text(uri)
    first_line = text.partition("\n")[0]
    try:
        for delimiter in (*DELIMITERS.values(), ";"):
            if {*COLUMNS[:4]} <= {name.strip() for name in next(csv.reader([first_line], delimiter=delimiter), [])}:
                header, *body = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
                return header, body
    except csv.Error as error:
        raise _bad_sheet(uri, f"its quotes do not match ({error})", do="save it again as CSV") from None
    raise _bad_sheet(
        uri,
        f"its first row does not name the columns {', '.join(COLUMNS)}",
        do="keep the first row as it was written, and save the sheet as CSV",
    )


def _text(uri: str) -> str:
    try:
        content = storage.read_bytes(uri)
    except FileNotFoundError:
        raise UsageError(
            asked=f"the sheet {uri} was to be read", found="there is no such file", do="check the path"
        ) from None
    if content.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")):
        raise _bad_sheet(uri, "it is in a spreadsheet's own form (.xlsx, .ods, .xls)", do="save it as CSV UTF-8")
    is_wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))  # "Unicode text" of some spreadsheets
    try:
        return content.decode("utf-16" if is_wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise _bad_sheet(uri, f"byte {error.start:,} is not UTF-8", do="save it as CSV UTF-8") from None


def _columns(uri: str, header: Sequence[str]) -> dict[str, int]:
    """Where each column is, by the first word of its header: who fills in a sheet may move columns and add some."""
    names = [re.split(r"\W", name.strip(), maxsplit=1)[0] for name in header]
    for name in COLUMNS:
        if names.count(name) != 1:
            found = f"{names.count(name)} columns begin with the word {name}"
            raise _bad_sheet(uri, found, do="keep the first row as it was written")
    return {name: names.index(name) for name in COLUMNS}


def _refuse(uri: str, strange: list[int], invalid: list[int], double: list[tuple[int, int]]) -> None:
    if strange:
        raise _bad_sheet(
            uri,
            f"the query, document and title of {named_rows(strange)} are not those that were written together",
            follows="a grade could be counted for another document: perhaps a column was sorted without the others, or"
            " a spreadsheet made a number or a date of an id",
            do="put these cells back as they were; `pool` with the same runs and seed writes the same sheet again",
        )
    if invalid:
        words = ", ".join(f"{grade} or {word.capitalize()}" for grade, word in enumerate(GRADES))
        raise _bad_sheet(uri, f"{named_rows(invalid)}: the grade is none", do=f"write {words}")
    if double:
        pairs = ", ".join(f"{one} and {other}" for one, other in double[:_SHOWN])
        raise _bad_sheet(
            uri,
            f"{len(double):,} pairs of a query and a document stand there twice with two grades: rows {pairs}",
            follows="which one was meant is not known",
            do="leave one of them",
        )


def named_rows(rows: Sequence[int]) -> str:
    """The first of these rows, and how many more there are."""
    shown = ", ".join(f"{row:,}" for row in rows[:_SHOWN])
    more = f" and {len(rows) - _SHOWN:,} more" if len(rows) > _SHOWN else ""
    return f"row{'s' if len(rows) > 1 else ''} {shown}{more}"


def _bad_sheet(uri: str, found: str, *, do: str, follows: str = "") -> StageError:
    return StageError(asked=f"the sheet {uri} was to be read as judgments", found=found, follows=follows, do=do)
