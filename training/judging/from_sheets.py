"""Filled-in sheets -> qrels: one grade of each pair, and how much of what was asked for is judged."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from schemas.errors import StageError
from schemas.judgments import Qrels
from training.judging.assessors import MERGES, Merge, agreements, merged
from training.judging.read_sheet import Pair, Sheet, named_rows
from training.judging.sheet import GRADES


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """`queries`: the texts of the qrels' queries. `metrics`: how far assessors agree, and how they were merged."""

    qrels: Qrels
    queries: dict[str, str]
    counts: dict[str, int]
    metrics: dict[str, Any]


def judged_by(sheets: Sequence[Sheet], *, merge: Merge = "median", allow_partial: bool = False) -> Judged:
    """What the assessors of these sheets say together.

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
        raise _partly_filled(sheets, qrels, num_judged, num_ungraded, num_lost)
    grades = Counter(grade for of_query in qrels.values() for grade in of_query.values())
    given = Counter(pair for sheet in sheets for pair in sheet.grades)
    texts = {query_id: text for sheet in sheets for query_id, text in sheet.queries.items()}
    return Judged(
        qrels=qrels,
        queries={query_id: texts[query_id] for query_id in qrels},
        counts={
            "sheets": len(sheets),
            "queries": len(qrels),
            "judgments": num_judged,
            **{f"grade_{grade}": grades[grade] for grade in range(len(GRADES))},
            "judged_by_several": sum(number > 1 for number in given.values()),
            "rows_without_grade": num_ungraded,
            "rows_missing": num_lost,
        },
        metrics={"agreement": [asdict(found) for found in agreements(sheets)], "merge": MERGES[merge]},
    )


def _partly_filled(
    sheets: Sequence[Sheet], qrels: Qrels, num_judged: int, num_ungraded: int, num_lost: int
) -> StageError:
    def is_graded(pair: Pair) -> bool:
        return pair[1] in qrels.get(pair[0], {})

    num_asked = num_judged + num_ungraded + num_lost
    empty = [(sheet.name, [row for pair, row in sheet.rows.items() if not is_graded(pair)]) for sheet in sheets]
    where = [f"{named_rows(rows)} of {name} without a grade" for name, rows in empty if rows]
    where += [f"{num_lost:,} rows that were written are gone"] if num_lost else []
    return StageError(
        asked=f"{num_asked:,} pairs of a query and a document were to be judged",
        found=f"{num_judged:,} are: {'; '.join(where)}",
        follows="what is not judged counts as not relevant wherever these judgments are used",
        do="fill in the rest" + (", or say --allow-partial to take what is there" if num_judged else ""),
    )
