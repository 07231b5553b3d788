"""Judgments and queries in JSON: those of BEIR, and lists of OpenSearch's Search Relevance Workbench (judgments)."""

import hashlib
import json
from operator import itemgetter

from clicktower.schemas.errors import StageError
from clicktower.schemas.judgments import CLICK_DERIVED, MAX_GRADE, bad_line, lines_of


def beir_query(uri: str, number: int, line: str) -> tuple[str, str]:
    """The id and the text of a query."""
    try:
        query_id, text = itemgetter("_id", "text")(json.loads(line))
        f"{query_id}{text}".encode()  # half of a surrogate pair is no text
    except (ValueError, RecursionError, KeyError, TypeError):
        query_id = text = None
    if not isinstance(query_id, str) or not isinstance(text, str):
        raise bad_line(uri, number, "a JSON object with the texts _id and text", "is no such object")
    return query_id, text


class _Number(str):
    """A number of JSON as it is written: as an id it keeps its digits."""


def workbench(uri: str) -> list[tuple[str, str, list[tuple[str, int]]]]:
    """(id, text, documents with grades) of each query of a query set or judgment list. The id is derived from the
    text.
    """
    content = "\n".join(line for _, line in lines_of(uri, "queries or judgments"))
    try:
        lists = json.loads(content, parse_int=_Number, parse_float=_Number)
        prefix = CLICK_DERIVED if str(lists["name"]).startswith(CLICK_DERIVED) else "query-"
        of_queries = lists.get("judgmentRatings")
        texts = [
            entry["query"] if of_queries else entry["queryText"] for entry in of_queries or lists["querySetQueries"]
        ]
        if any(isinstance(text, _Number) for text in texts):
            raise TypeError
        rated = [
            [(row.get("docId"), _rating(uri, row["rating"])) for row in entry["ratings"]] for entry in of_queries or ()
        ]
        query_ids = [prefix + hashlib.sha256(text.encode()).hexdigest()[:12] for text in texts]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise StageError(
            f"{uri} is neither a query set nor a judgment list of the Search Relevance Workbench.",
            "Give a JSON object with name and querySetQueries or judgmentRatings, or the lines of TREC's formats.",
        ) from None
    document_ids = [document_id for ratings in rated for document_id, _ in ratings]
    if num_bad := sum(not _is_id(document_id) for document_id in document_ids):
        raise StageError(
            f"{num_bad:,} of the {len(document_ids):,} ratings of {uri} name no document.",
            "Give each rating a docId, as text.",
        )
    return list(zip(query_ids, texts, rated or [[]] * len(texts), strict=True))


def _is_id(value: object) -> bool:
    """Whether a value of JSON is an id: text that is not blank and has no half of a surrogate pair, or a number."""
    return isinstance(value, str) and bool(value.strip()) and value.encode(errors="ignore").decode() == value


def _rating(uri: str, rating: object) -> int:
    grade = float(str(rating))
    if not grade.is_integer() or abs(grade) > MAX_GRADE:
        raise StageError(
            f"{uri} has the rating {rating}, and grades are whole numbers up to {MAX_GRADE:,}.",
            "Multiply or round the ratings.",
        )
    return int(grade)
