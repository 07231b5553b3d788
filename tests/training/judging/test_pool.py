import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import StageError
from training.evaluation.judged_pool import pooled

QUERIES = {f"q{number}": f"query {number}" for number in range(30)}
TITLES = {f"d{number}": f"title {number}" for number in range(40)}
UP = {q: {f"d{n}": float(n) for n in range(40)} for q in QUERIES}  # d39 is best
DOWN = {q: {f"d{n}": -float(n) for n in range(40)} for q in QUERIES}  # d0 is best


def pairs(pool) -> list[tuple[str, str]]:
    return [(item.query_id, item.document_id) for item in pool[0]]


def test_the_best_of_each_run_are_pooled_each_pair_once():
    # Ties in 32 bits go by descending id: of a, b, c with equal scores c and b are the best two.
    equal = {"q": {"a": 1.0, "c": 1.0, "b": 1.0 + 1e-9}}
    other = {"q": {"b": 3.0, "d": 2.0, "a": 1.0}}
    pool = pooled({"x": equal, "y": other}, {"q": "text"}, dict.fromkeys("abcd", "title"), depth=2)
    assert set(pairs(pool)) == {("q", "c"), ("q", "b"), ("q", "d")}
    assert pool[1] == {
        "queries": 1, "pairs": 3, "runs": 2, "results": 4, "found_by_several": 1, "judged_before": 0
    }  # fmt: skip
    assert {(item.query, item.title) for item in pool[0]} == {("text", "title")}


def test_queries_stay_together_and_neither_place_tells_a_system_or_a_rank():
    pool = pooled({"up": UP, "down": DOWN}, QUERIES, TITLES, depth=10)
    of_queries = [query_id for query_id, _ in pairs(pool)]
    assert of_queries == [q for q in dict.fromkeys(of_queries) for _ in range(20)]
    assert list(dict.fromkeys(of_queries)) != list(QUERIES)
    # Were places blind draws, d39 (rank 1 of "up") had a mean place of 9.5 among 0..19, with a standard error of
    # 5.77 / sqrt(30) = 1.05 over 30 queries; the same for d30, its rank 10, and for d0 of the other system.
    for document in ("d39", "d30", "d0", "d9"):
        places = [number % 20 for number, pair in enumerate(pairs(pool)) if pair[1] == document]
        assert sum(places) / len(places) == pytest.approx(9.5, abs=4 * 1.05)


def test_the_order_depends_on_the_seed_alone():
    first = pairs(pooled({"up": UP, "down": DOWN}, QUERIES, TITLES))
    assert pairs(pooled({"b": DOWN, "a": UP}, QUERIES, TITLES)) == first
    assert pairs(pooled({"up": UP, "down": DOWN}, QUERIES, TITLES, seed=1)) != first


def test_what_is_judged_is_left_out_and_the_first_queries_with_something_left_are_a_sample():
    judged = {"q0": {f"d{n}": 0 for n in range(40)}, "q1": {"d39": 3}}
    pool = pooled({"up": UP}, QUERIES, TITLES, judged=judged)
    assert "q0" not in dict(pairs(pool))
    assert ("q1", "d39") not in pairs(pool)
    assert [pool[1][name] for name in ("queries", "pairs", "judged_before")] == [29, 289, 11]
    some = pairs(pooled({"up": UP}, QUERIES, TITLES, judged=judged, num_queries=5))
    assert some == pairs(pool)[: len(some)]
    assert len(dict(some)) == 5


def test_judgments_of_people_do_not_get_the_ids_of_click_derived_ones():
    queries = {"click-derived-ab": "hose"}
    pool = pooled({"logged": {"click-derived-ab": {"d1": -1.0, "d2": -2.0}}}, queries, TITLES, judged={"ab": {"d2": 1}})
    assert pairs(pool) == [("ab", "d1")]
    with pytest.raises(StageError, match="Of their 2 queries 1 are those of click-derived"):
        pooled({"a": {"click-derived-ab": {"d1": 1.0}}, "b": {"q0": {"d1": 1.0}}}, QUERIES | queries, TITLES)


@pytest.mark.parametrize(
    ("run", "given", "found"),
    [
        ({"q0": {"d1": 1.0}, "other": {"d1": 1.0}}, {}, "1 queries of run.txt are not in the queries file.*other"),
        ({"q0": {"d1": 1.0, "gone": 2.0}}, {}, "1 documents of run.txt are not in the documents file.*gone"),
        ({"q0": {"d1": 1.0}}, {"judged": {"q0": {"d1": 3}}}, "all 1 pairs .* judged already"),
    ],
)
def test_what_cannot_be_shown_or_need_not_is_refused(run, given, found):
    with pytest.raises(StageError, match=f"(?i){found}"):
        pooled({"run.txt": run}, QUERIES, TITLES, **given)


@given(
    st.lists(st.dictionaries(st.sampled_from(list(TITLES)), st.sampled_from([0.0, 1.0, 2.0]), min_size=1), min_size=1),
    st.integers(1, 5),
)
def test_the_pool_is_the_union_of_the_best(results, depth):
    runs = {str(number): {"q0": of_run} for number, of_run in enumerate(results)}
    expected = set()
    for of_run in results:
        expected |= set(sorted(of_run, key=lambda d: (of_run[d], d), reverse=True)[:depth])
    found = [document_id for _, document_id in pairs(pooled(runs, QUERIES, TITLES, depth=depth))]
    assert sorted(found) == sorted(expected)
