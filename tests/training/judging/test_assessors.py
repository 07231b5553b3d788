import numpy as np
import pytest

from schemas.errors import StageError
from training.evaluation.judged_pool import Sheet, agreements, cohens_kappa, judged_by, merged


def sheet(name: str, grades: dict[str, int | None], num_written: int | None = None) -> Sheet:
    """A sheet of one query with these grades; None: an empty cell."""
    return Sheet(
        name=name,
        grades={("q", d): grade for d, grade in grades.items() if grade is not None},
        rows={("q", d): row for row, d in enumerate(grades, start=2)},
        queries={"q": "hose"},
        num_written=len(grades) if num_written is None else num_written,
    )


ANNA = sheet("anna.csv", {"a": 0, "b": 0, "c": 1, "d": 3, "e": 3})
BEN = sheet("ben.csv", {"a": 0, "b": 1, "c": 1, "d": 3, "e": 1})


def test_hand_worked_kappa():
    # Five pairs: (0,0) (0,1) (1,1) (3,3) (3,1). The same: 3 of 5.
    # By chance the same: 0: 2/5 * 1/5, 1: 1/5 * 3/5, 3: 2/5 * 1/5 = (2 + 3 + 2) / 25 = 0.28
    # kappa = (0.6 - 0.28) / (1 - 0.28) = 0.444444
    # Squared steps: observed (0 + 1 + 0 + 0 + 4) / 5 = 1. By chance, Anna's 0 0 1 3 3 against Ben's 0 1 1 3 1:
    #   each 0: 0 + 1 + 1 + 9 + 1 = 12, the 1: 1 + 0 + 0 + 4 + 0 = 5, each 3: 9 + 4 + 4 + 0 + 4 = 21
    #   (12 + 12 + 5 + 21 + 21) / 25 = 2.84; weighted kappa = 1 - 1 / 2.84 = 0.647887
    (found,) = agreements([ANNA, BEN])
    assert found == {
        "one": "anna.csv", "other": "ben.csv", "num_pairs": 5, "num_same": 3,
        "kappa": pytest.approx(0.444444, abs=1e-6), "weighted_kappa": pytest.approx(0.647887, abs=1e-6),
    }  # fmt: skip


def test_kappa_is_1_where_all_agree_0_by_chance_and_nothing_where_chance_explains_all():
    unequal = 1.0 - np.eye(4)
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 4, (2, 20_000))
    assert cohens_kappa(a, a, unequal) == 1.0
    assert cohens_kappa(a, b, unequal) == pytest.approx(0, abs=0.02)  # standard error about 0.004
    assert cohens_kappa(np.array([2, 2]), np.array([2, 2]), unequal) is None


def test_agreement_is_of_every_two_that_judged_something_in_common():
    carla = sheet("carla.csv", {"a": 1, "x": 2})
    dora = sheet("dora.csv", {"y": 2})
    found = agreements([ANNA, BEN, carla, dora])
    assert [(one["one"], one["other"], one["num_pairs"]) for one in found] == [
        ("anna.csv", "ben.csv", 5), ("anna.csv", "carla.csv", 1), ("ben.csv", "carla.csv", 1)
    ]  # fmt: skip


def test_the_median_is_taken_the_lower_one_of_an_even_number():
    carla = sheet("carla.csv", {"b": 3, "e": 2, "x": 2})
    # b: 0, 1, 3 -> 1; e: 1, 2, 3 -> 2; of two the lower: d: 3, 3 -> 3; alone: x -> 2
    assert merged([ANNA, BEN, carla]) == {"q": {"a": 0, "b": 1, "c": 1, "d": 3, "e": 2, "x": 2}}
    assert merged([ANNA, BEN])["q"]["e"] == 1
    assert merged([BEN, ANNA]) == merged([ANNA, BEN])


def test_differences_can_be_refused_by_row():
    with pytest.raises(StageError, match=r"(?s)2 times: row 3 of anna.csv: 0, row 3 of ben.csv: 1"):
        merged([ANNA, BEN], "refuse")
    assert merged([ANNA, ANNA], "refuse") == merged([ANNA])


def test_what_is_judged_is_counted():
    assert judged_by([ANNA, BEN])[1] == {
        "sheets": 2, "queries": 1, "judgments": 5, "grade_0": 2, "grade_1": 2, "grade_2": 0, "grade_3": 1,
        "judged_by_several": 5, "rows_without_grade": 0, "rows_missing": 0,
    }  # fmt: skip


def test_a_sheet_that_is_not_filled_in_is_refused_unless_that_is_meant():
    part = sheet("part.csv", {"a": 1, "b": None, "c": None})
    with pytest.raises(StageError, match=r"(?s)3 pairs .*1 are: rows 3, 4 of part.csv without a grade"):
        judged_by([part])
    qrels, counts = judged_by([part], allow_partial=True)
    assert qrels == {"q": {"a": 1}}
    assert counts["rows_without_grade"] == 2
    with pytest.raises(StageError, match="0 are"):
        judged_by([sheet("empty.csv", {"a": None})], allow_partial=True)


def test_assessors_may_share_the_rows_of_a_sheet_and_lost_rows_are_noticed():
    halves = [sheet("one.csv", {"a": 1, "b": None}), sheet("two.csv", {"a": None, "b": 2})]
    assert judged_by(halves)[0] == {"q": {"a": 1, "b": 2}}
    cut = [sheet("one.csv", {"a": 1}, num_written=2), sheet("two.csv", {"b": 2}, num_written=2)]
    assert judged_by(cut)[1]["rows_missing"] == 0
    with pytest.raises(StageError, match=r"(?s)2 pairs .* 1 rows that were written are gone"):
        judged_by(cut[:1])
    assert judged_by(cut[:1], allow_partial=True)[1]["rows_missing"] == 1
