"""Several assessors: how far they agree, and one grade where they gave several."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np

from schemas.errors import StageError
from schemas.judgments import Qrels
from training.judging.sheet import GRADES, Pair, Sheet, named_rows

Merge = Literal["median", "refuse"]
MERGES: dict[Merge, str] = {
    "median": "the median; of an even number of grades the lower of the two in the middle",
    "refuse": "none: where assessors differ, nothing is written",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """Of two assessors, on the pairs that both graded.

    `kappa`: Cohen's (1960), agreement beyond what their shares of grades give by chance, 1 at best; `weighted_kappa`:
    Cohen's (1968), a difference of two steps counted four times one of one step. None where chance already explains all
    (both gave one and the same grade everywhere).
    """

    one: str
    other: str
    num_pairs: int
    num_same: int
    kappa: float | None
    weighted_kappa: float | None


def agreements(sheets: Sequence[Sheet]) -> list[Agreement]:
    """Of every two sheets that have graded pairs in common."""
    found = []
    for one, other in combinations(sheets, 2):
        common = [pair for pair in one.grades if pair in other.grades]
        if common:
            a, b = (np.array([sheet.grades[pair] for pair in common]) for sheet in (one, other))
            grades = np.arange(len(GRADES))
            steps = grades[:, None] - grades
            found.append(
                Agreement(
                    one=one.name,
                    other=other.name,
                    num_pairs=len(common),
                    num_same=int((a == b).sum()),
                    kappa=cohens_kappa(a, b, (steps != 0).astype(float)),
                    weighted_kappa=cohens_kappa(a, b, steps.astype(float) ** 2),
                )
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


def merged(sheets: Sequence[Sheet], merge: Merge = "median") -> Qrels:
    """One grade of each graded pair, by query and document id ascending (MERGES says how).

    Raises StageError where assessors differ and `merge` is "refuse".
    """
    if merge == "refuse":
        _refuse_differences(sheets)
    qrels: Qrels = {}
    for query_id, document_id in sorted({pair for sheet in sheets for pair in sheet.grades}):
        given = sorted(sheet.grades[pair] for sheet in sheets if (pair := (query_id, document_id)) in sheet.grades)
        qrels.setdefault(query_id, {})[document_id] = given[(len(given) - 1) // 2]
    return qrels


def _refuse_differences(sheets: Sequence[Sheet]) -> None:
    differing = [
        f"row {one.rows[pair]:,} of {one.name}: {grade}, row {other.rows[pair]:,} of {other.name}: {other.grades[pair]}"
        for one, other in combinations(sheets, 2)
        for pair, grade in one.grades.items()
        if other.grades.get(pair, grade) != grade
    ]
    if differing:
        raise StageError(
            asked="one grade of each pair was to be written, and assessors that differ to be refused",
            found=f"they differ {len(differing):,} times: {'; '.join(differing[:3])}",
            do="let them settle it in one of the sheets, or use --merge median",
        )


# Filled-in sheets -> qrels: one grade of each pair, and how much of what was asked for is judged.


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedSheets:
    """`queries`: the texts of the qrels' queries. `metrics`: how far assessors agree, and how they were merged."""

    qrels: Qrels
    queries: dict[str, str]
    counts: dict[str, int]
    metrics: dict[str, Any]


def judged_by(sheets: Sequence[Sheet], *, merge: Merge = "median", allow_partial: bool = False) -> JudgedSheets:
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
    return JudgedSheets(
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
