"""Judgments by people: the best of several systems as a sheet for assessors, and filled-in sheets as qrels.

So the paper's test set was made, and TREC's: what no system found is not judged, and counts as not relevant. No file is
ever replaced.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from statistics import median_low
from typing import Any, Literal, NamedTuple

import numpy as np

from schemas import storage
from schemas.documents import read_documents
from schemas.errors import StageError, UsageError
from schemas.judgments import CLICK_DERIVED, Qrels, Run, are_click_derived, read_qrels, read_queries, read_run
from schemas.text_contract import keyed_digest
from training.ranking.measure import best_first

Merge = Literal["median", "refuse"]
MERGES: dict[Merge, str] = {
    "median": "the median; of an even number of grades the lower of the two in the middle",
    "refuse": "none: where assessors differ, nothing is written",
}


def write_pool(
    runs: Sequence[str],
    *,
    queries: str,
    documents: str,
    sheet: str,
    depth: int = 10,
    num_queries: int | None = None,
    judged: Sequence[str] = (),
    seed: int = 0,
) -> dict[str, Any]:
    """The JSON object of a sheet that was written to `sheet`. Raises UsageError and StageError."""
    sheet_bytes((), sheet)  # a name that cannot be written is refused before anything is read
    catalogue = read_documents(documents)
    items, counts = pooled(
        {uri: read_run(uri) for uri in runs},
        read_queries(queries),
        dict(zip(catalogue.ids, catalogue.titles, strict=True)),
        depth=depth,
        judged=_judged_by_people(judged),
        num_queries=num_queries,
        seed=seed,
    )
    return _written({sheet: sheet_bytes(items, sheet)}, counts, {"depth": depth})


def read_pool(
    sheets: Sequence[str],
    *,
    qrels: str,
    queries: str | None = None,
    merge: Merge = "median",
    allow_partial: bool = False,
) -> dict[str, Any]:
    """The JSON object of judgments that were written to `qrels`, their queries to `queries` if that is given.

    Raises UsageError and StageError.
    """
    if len(set(sheets)) < len(sheets):
        raise UsageError(
            asked="the sheets of several assessors were to be read",
            found="one is given twice",
            follows="it would agree with itself",
            do="give each once",
        )
    filled = [read_sheet(uri) for uri in sheets]
    found, counts = judged_by(filled, merge=merge, allow_partial=allow_partial)
    lines = [f"{query_id} 0 {d} {grade}\n" for query_id, grades in found.items() for d, grade in grades.items()]
    files = {qrels: "".join(lines).encode()}
    if queries:
        texts = {query_id: text for sheet in filled for query_id, text in sheet.queries.items()}
        files[queries] = "".join(f"{query_id}\t{texts[query_id]}\n" for query_id in found).encode()
    return _written(files, counts, {"agreement": agreements(filled), "merge": MERGES[merge]})


def _judged_by_people(uris: Sequence[str]) -> Qrels:
    together: Qrels = {}
    for uri in uris:
        found = read_qrels(uri)
        if are_click_derived(found):
            raise StageError(
                asked=f"what is judged in {uri} was to be left out of the sheet",
                found="its judgments are derived from clicks",
                follows="no person has judged these documents",
                do="give qrels of people",
            )
        for query_id, grades in found.items():
            together.setdefault(query_id, {}).update(grades)
    return together


def _written(files: Mapping[str, bytes], counts: Mapping[str, int], metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON object of files that are written, the first its path. Raises UsageError for one with other bytes."""
    there = {uri: storage.read_bytes(uri) for uri in files if storage.exists(uri)}
    for uri, content in there.items():
        if content != files[uri]:
            raise _taken(uri)
    for uri, content in files.items():
        if uri not in there and not storage.write_new(uri, content):
            raise _taken(uri)
    return {
        "stage": "pool",
        "digest": hashlib.sha256(b"".join(files.values())).hexdigest()[:24],
        "path": next(iter(files)),
        "reused": len(there) == len(files),
        "counts": dict(counts),
        "metrics": dict(metrics),
    }


def _taken(uri: str) -> UsageError:
    return UsageError(
        asked=f"{uri} was to be written",
        found="there is such a file, and it holds something else",
        follows="perhaps hours of an assessor's work would be lost",
        do="give another name, or move the file away",
    )


# Runs -> what to judge: each pair of query and document once, in an order that reveals nothing of the runs.


def pooled(
    runs: Mapping[str, Run],
    queries: Mapping[str, str],
    titles: Mapping[str, str],
    *,
    depth: int = 10,
    judged: Mapping[str, Collection[str]] | None = None,
    num_queries: int | None = None,
    seed: int = 0,
) -> tuple[list[Item], dict[str, int]]:
    """The `depth` best documents of each run and query, without those `judged` already; and counts: of the results of
    all runs, how many repeat another run's, and how many pairs were judged before.

    Queries come in the order of a keyed hash, so that the first of them are a sample, and `num_queries` draws so many
    of those that have something left to judge; the documents of a query too, so that no place reveals a system or a
    rank. Judgments of people must not look like those of clicks: where the ids of queries say `click-derived-`, those
    of the items do not. Raises StageError for queries and documents that are not in the files, and where nothing is
    left to judge.
    """
    asked = f"the best {depth:,} documents of {len(runs):,} runs were to be judged"
    best: dict[str, list[str]] = {}
    for name, run in runs.items():
        _require_known(asked, name, "queries", run, queries)
        of_run = {query_id: list(best_first(results))[:depth] for query_id, results in run.items()}
        _require_known(asked, name, "documents", chain.from_iterable(of_run.values()), titles)
        for query_id, document_ids in of_run.items():
            best.setdefault(query_id, []).extend(document_ids)
    derived = sum(query_id.startswith(CLICK_DERIVED) for query_id in best)
    if 0 < derived < len(best):
        raise StageError(
            asked=asked,
            found=f"of their {len(best):,} queries {derived:,} are those of click-derived judgments",
            follows="a query could be judged under two ids",
            do="pool them apart from the others",
        )
    items: list[Item] = []
    counts = dict.fromkeys(("queries", "pairs", "runs", "results", "found_by_several", "judged_before"), 0)
    counts["runs"] = len(runs)
    for query_id in sorted(best, key=lambda query_id: _draw(seed, query_id)):
        if counts["queries"] == num_queries:
            break
        new_id = query_id.removeprefix(CLICK_DERIVED)
        distinct = sorted(set(best[query_id]), key=lambda document_id: _draw(seed, query_id, document_id))
        left = [document_id for document_id in distinct if document_id not in (judged or {}).get(new_id, ())]
        items += [Item(query_id=new_id, query=queries[query_id], document_id=d, title=titles[d]) for d in left]
        counts["queries"] += bool(left)
        counts["pairs"] += len(left)
        counts["results"] += len(best[query_id])
        counts["found_by_several"] += len(best[query_id]) - len(distinct)
        counts["judged_before"] += len(distinct) - len(left)
    if not items:
        raise StageError(
            asked=asked,
            found=f"all {counts['judged_before']:,} pairs of a query and a document among them are judged already",
            do="raise --depth, or add runs",
        )
    return items, counts


def _draw(seed: int, *ids: str) -> bytes:
    """What an item is ordered by: nothing that a rank or a system could be seen in."""
    return keyed_digest("\0".join(ids), seed, b"pool", 16)


def _require_known(asked: str, run: str, what: str, ids: Iterable[str], known: Collection[str]) -> None:
    unknown = sorted({identity for identity in ids if identity not in known})
    if unknown:
        raise StageError(
            asked=asked,
            found=f"{len(unknown):,} {what} of {run} are not in the {what} file ({', '.join(unknown[:3])})",
            follows="an assessor could not be shown what to judge",
            do=f"give the {what} that the run was made with",
        )


# Filled-in sheets -> one grade of each pair, and how far assessors agree.


def judged_by(
    sheets: Sequence[Sheet], *, merge: Merge = "median", allow_partial: bool = False
) -> tuple[Qrels, dict[str, int]]:
    """What the assessors of these sheets say together, and how much of what was asked for is judged.

    Raises StageError where nothing is graded, where something is not and `allow_partial` does not say that this is
    meant, and as `merged` does.
    """
    asked_pairs = {pair for sheet in sheets for pair in sheet.rows}
    # Sheets of as many rows are taken for copies of one, so that assessors may share its rows out.
    num_lost = max(0, sum({sheet.num_written for sheet in sheets}) - len(asked_pairs))
    qrels = merged(sheets, merge)
    num_judged = sum(map(len, qrels.values()))
    num_ungraded = len(asked_pairs) - num_judged
    if not num_judged or (num_ungraded + num_lost and not allow_partial):
        ungraded = (
            (sheet.name, [row for (query_id, d), row in sheet.rows.items() if d not in qrels.get(query_id, {})])
            for sheet in sheets
        )
        where = [f"{named_rows(rows)} of {name} without a grade" for name, rows in ungraded if rows]
        where += [f"{num_lost:,} rows that were written are gone"] if num_lost else []
        raise StageError(
            asked=f"{len(asked_pairs) + num_lost:,} pairs of a query and a document were to be judged",
            found=f"{num_judged:,} are: {'; '.join(where)}",
            follows="what is not judged counts as not relevant wherever these judgments are used",
            do="fill in the rest" + (", or say --allow-partial to take what is judged" if num_judged else ""),
        )
    grades = Counter(grade for of_query in qrels.values() for grade in of_query.values())
    given = Counter(pair for sheet in sheets for pair in sheet.grades)
    return qrels, {
        "sheets": len(sheets),
        "queries": len(qrels),
        "judgments": num_judged,
        **{f"grade_{grade}": grades[grade] for grade in range(len(GRADES))},
        "judged_by_several": sum(number > 1 for number in given.values()),
        "rows_without_grade": num_ungraded,
        "rows_missing": num_lost,
    }


def merged(sheets: Sequence[Sheet], merge: Merge = "median") -> Qrels:
    """One grade of each graded pair, by query and document id ascending (MERGES says how).

    Raises StageError where assessors differ and `merge` is "refuse".
    """
    differing = [
        f"row {one.rows[pair]:,} of {one.name}: {grade}, row {other.rows[pair]:,} of {other.name}: {other.grades[pair]}"
        for one, other in combinations(sheets, 2)
        for pair, grade in one.grades.items()
        if other.grades.get(pair, grade) != grade
    ]
    if differing and merge == "refuse":
        raise StageError(
            asked="one grade of each pair was to be written, and assessors that differ to be refused",
            found=f"they differ {len(differing):,} times: {'; '.join(differing[:3])}",
            do="let them settle it in one of the sheets, or use --merge median",
        )
    qrels: Qrels = {}
    for pair in sorted({pair for sheet in sheets for pair in sheet.grades}):
        given = [sheet.grades[pair] for sheet in sheets if pair in sheet.grades]
        qrels.setdefault(pair[0], {})[pair[1]] = median_low(given)
    return qrels


def agreements(sheets: Sequence[Sheet]) -> list[dict[str, Any]]:
    """How far every two sheets agree that have graded pairs in common.

    `kappa`: Cohen's (1960), agreement beyond what their shares of grades give by chance, 1 at best; `weighted_kappa`:
    Cohen's (1968), a difference of two steps counted four times one of one step. None where chance already explains all
    (both gave one and the same grade everywhere).
    """
    found = []
    grades = np.arange(len(GRADES))
    steps = grades[:, None] - grades
    for one, other in combinations(sheets, 2):
        common = [pair for pair in one.grades if pair in other.grades]
        if not common:
            continue
        a, b = (np.array([sheet.grades[pair] for pair in common]) for sheet in (one, other))
        found.append(
            {
                "one": one.name,
                "other": other.name,
                "num_pairs": len(common),
                "num_same": int((a == b).sum()),
                "kappa": cohens_kappa(a, b, (steps != 0).astype(float)),
                "weighted_kappa": cohens_kappa(a, b, steps.astype(float) ** 2),
            }
        )
    return found


def cohens_kappa(a: np.ndarray, b: np.ndarray, weight_of_difference: np.ndarray) -> float | None:
    """1 - (observed disagreement / disagreement by chance) of two assessors' grades; None where the latter is 0.

    `weight_of_difference`: float64 [grades, grades], how much each combination of two grades counts.
    """
    num_grades = len(weight_of_difference)
    together = np.bincount(a * num_grades + b, minlength=num_grades**2).reshape(num_grades, num_grades) / len(a)
    by_chance = (weight_of_difference * np.outer(together.sum(axis=1), together.sum(axis=0))).sum()
    return float(1 - (weight_of_difference * together).sum() / by_chance) if by_chance > 0 else None


# The sheet that assessors fill in: a row for each pair of a query and a document, and an empty cell for its grade.
#
# .csv or .tsv by its name, in UTF-8 with a byte order mark and all cells quoted, so that spreadsheets open it as it is.


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
