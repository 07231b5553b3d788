"""Judgments in TREC formats, and queries and qrels in those of BEIR (Thakur et al. 2021) and of OpenSearch.

Queries (id TAB text), qrels (query 0 document grade), runs (query Q0 document rank score tag). BEIR's queries.jsonl has
`_id` and `text`; its qrels have a header and no second column. A .json file is a query set or a judgment list of
OpenSearch's Search Relevance Workbench, where the text of a query identifies it:

    {"name": ..., "querySetQueries": [{"queryText": "angle bracket"}]}
    {"name": ..., "type": "IMPORT_JUDGMENT",
     "judgmentRatings": [{"query": "angle bracket", "ratings": [{"docId": "P1", "rating": "3"}]}]}
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pkgutil import resolve_name
from statistics import median_low
from urllib.parse import quote

from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.text_contract import id_of
from clicktower.schemas.text_file import ending, lines, read_text

Qrels = dict[str, dict[str, int]]  # query id -> document id -> grade
Run = Mapping[str, Mapping[str, float]]  # query id -> document id -> score


class ReadQrels(Qrels):
    """The qrels of a file. `several_grades`: the number of pairs with more than one grade."""

    several_grades = 0


# The prefix of query ids in click-derived judgments. It is in the ids, and not in a separate file, so that no copy or
# part of the qrels, and no run made with them, can lose it.
CLICK_DERIVED = "click-derived-"

_FORMS = "clicktower.schemas.judgment_forms"  # of .json and .jsonl, loaded where there is such a file
MAX_GRADE = 1_000_000  # a larger number is not a grade but another column
_QRELS_LINE = f"query id, 0, document id and a grade, a whole number from -{MAX_GRADE:,} to {MAX_GRADE:,}"
_BEIR_HEADER = ["query-id", "corpus-id", "score"]
_GRADE = re.compile(r"-?[0-9]{1,9}", re.ASCII)
_FIELD = re.compile(r"[^ \t\r\f\v]+")  # of a line: other white space, such as a no-break space, may be in an id


def are_click_derived(query_ids: Iterable[str]) -> bool:
    """Whether any of these queries has click-derived judgments."""
    return any(query_id.startswith(CLICK_DERIVED) for query_id in query_ids)


def read_queries(uri: str) -> dict[str, str]:
    """Query texts by id, in file order. Raises UsageError or StageError (a malformed line, a repeated id)."""
    if ending(uri) == ".json":
        return {query_id: text for query_id, text, _ in resolve_name(f"{_FORMS}:workbench")(uri)}
    read = resolve_name(f"{_FORMS}:beir_query") if ending(uri) == ".jsonl" else _query
    rows = [(number, *read(uri, number, line)) for number, line in lines_of(uri, "queries")]
    queries: dict[str, str] = {}
    for (number, _, text), query_id in zip(rows, _ids(written for _, written, _ in rows), strict=True):
        if not query_id:
            raise bad_line(uri, number, "a query id", "has a blank one")
        if query_id in queries:
            raise bad_line(uri, number, "each query id once", f"repeats the id {query_id}")
        queries[query_id] = text
    return queries


def _ids(written: Iterable[str]) -> list[str]:
    return [id_of(text) for text in written]


def _query(uri: str, number: int, line: str) -> tuple[str, str]:
    query_id, tab, text = line.partition("\t")
    if not tab or not query_id:
        raise bad_line(uri, number, "a query id, a tab and the query", "has no tab")
    return query_id, text


def read_qrels(uri: str) -> ReadQrels:
    """Grades by query and document, all from people or all from clicks.

    Several judges may have graded a pair: of different grades the lower median counts, in any order, and such pairs are
    counted. Raises UsageError, or StageError for a malformed line, or both kinds together.
    """
    qrels = ReadQrels()
    if ending(uri) == ".json":
        rated = resolve_name(f"{_FORMS}:workbench")(uri)
        qrels.update((query_id, {}) for query_id, _, _ in rated)  # one without ratings too
        judgments = [(query_id, *rating) for query_id, _, ratings in rated for rating in ratings]
    else:
        judgments = list(_judgments(uri))
    if not judgments:
        raise StageError(f"The file {uri} holds no judgment.", "Give qrels, or a judgment list.")
    query_ids = _ids(query_id for query_id, _, _ in judgments)
    document_ids = _ids(document_id for _, document_id, _ in judgments)
    several: dict[tuple[str, str], list[int]] = {}
    for query_id, document_id, (_, _, grade) in zip(query_ids, document_ids, judgments, strict=True):
        of_query = qrels.setdefault(query_id, {})
        if document_id in of_query:
            several.setdefault((query_id, document_id), [of_query[document_id]]).append(grade)
        of_query.setdefault(document_id, grade)
    for (query_id, document_id), grades_of_pair in several.items():
        qrels[query_id][document_id] = median_low(grades_of_pair)
    qrels.several_grades = sum(len(set(grades_of_pair)) > 1 for grades_of_pair in several.values())
    _require_one_kind(uri, qrels)
    return qrels


def _judgments(uri: str) -> Iterable[tuple[str, str, int]]:
    """(query id, document id, grade) of each line."""
    is_beir = False
    for at, (number, line) in enumerate(lines_of(uri, "qrels")):
        parts = _FIELD.findall(line)
        if not at and parts == _BEIR_HEADER:
            is_beir = True
            continue
        if is_beir and len(parts) == 3:
            parts.insert(1, "0")
        if len(parts) != 4:
            raise bad_line(uri, number, _QRELS_LINE, f"has {len(parts)} fields")
        query_id, _, document_id, grade = parts
        if not _GRADE.fullmatch(grade) or abs(int(grade)) > MAX_GRADE:
            raise bad_line(uri, number, _QRELS_LINE, "has no grade as its last field")
        yield query_id, document_id, int(grade)


def run_lines(run: Run, tag: str) -> Iterable[str]:
    """A run in TREC's form, best first, ties by descending document id as trec_eval breaks them.

    Its fields end at white space, so that within an id is written as URLs write it (%20).
    """
    for query_id, scores in run.items():
        ranked = sorted(scores.items(), key=lambda item: (item[1], item[0]), reverse=True)
        for rank, (document_id, score) in enumerate(ranked, start=1):
            yield f"{trec_field(query_id)} Q0 {trec_field(document_id)} {rank} {score!r} {trec_field(tag)}\n"


_NO_FIELD = re.compile(r"[\s\x00-\x1f\x7f-\x9f]")


def trec_field(name: str) -> str:
    """An id as a field of a line in TREC's formats: one with white space or control characters, which end a field or
    the line, is percent-encoded as in a URL.
    """
    return quote(name, safe="") if _NO_FIELD.search(name) else name


def read_run(uri: str) -> dict[str, dict[str, float]]:
    """Scores by query and document; as in trec_eval, only the scores determine the order, and ranks are ignored.

    Raises UsageError, or StageError for a malformed line, a score that is not finite, or a document twice for one
    query.
    """
    rows: list[tuple[int, str, str, float]] = []
    for number, line in lines_of(uri, "scores"):
        parts = _FIELD.findall(line)
        try:
            query_id, _, document_id, _, score, _ = parts
            value = float(score)
        except ValueError:
            form = "query id, Q0, document id, rank, score and tag"
            raise bad_line(uri, number, form, f"has {len(parts)} fields, or a score that is no number") from None
        if not math.isfinite(value):
            raise bad_line(uri, number, "a finite score", f"has the score {value}")
        rows.append((number, query_id, document_id, value))
    query_ids = _ids(query_id for _, query_id, _, _ in rows)
    document_ids = _ids(document_id for _, _, document_id, _ in rows)
    run: dict[str, dict[str, float]] = {}
    for (number, _, _, value), query_id, document_id in zip(rows, query_ids, document_ids, strict=True):
        results = run.setdefault(query_id, {})
        if document_id in results:
            again = f"gives {query_id} the document {document_id} again"
            raise bad_line(uri, number, "a document once for each query", again)
        results[document_id] = value
    return run


def _require_one_kind(uri: str, qrels: Qrels) -> None:
    derived = sum(query_id.startswith(CLICK_DERIVED) for query_id in qrels)
    if 0 < derived < len(qrels):
        raise StageError(
            f"The judgments of {derived:,} of the {len(qrels):,} queries of {uri} are derived from clicks, those of the"
            " others are not: one figure over both would mean neither.",
            f"Keep those of queries {CLICK_DERIVED}... in a file of their own, and measure with each file.",
        )


def lines_of(uri: str, subject: str) -> list[tuple[int, str]]:
    try:
        found = lines(read_text(uri))
    except FileNotFoundError:
        raise UsageError(f"There is no such file: {uri}.", f"Check the path of the {subject}.") from None
    if not found:
        raise StageError(f"The file {uri} is empty.", f"Give a file of {subject} with at least one line.")
    return found


def bad_line(uri: str, number: int, form: str, problem: str) -> StageError:
    return StageError(f"Line {number:,} of {uri} {problem}.", f"Let each line hold {form}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """Paths or URIs: documents (id, title), queries (id, text) and TREC qrels; a list of adult terms in place of the
    built-in one.
    """

    documents: str
    queries: str
    qrels: str
    adult_list: str | None = None

    @property
    def named_files(self) -> dict[str, str]:
        """Those that are given, by what they are."""
        return {name: uri for name, uri in asdict(self).items() if uri}
