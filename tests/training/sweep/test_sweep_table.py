"""Points over their seeds, best first; what can be told apart, and what cannot."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.training.sweep.sweep_table import Point, Trial, cells, measures, notes, rank_points
from tests.recipes import recipe_with


def point(step: float, seeds: int = 1) -> Point:
    recipes = [recipe_with(name="r", step=step, seed=seed + 1) for seed in range(seeds)]
    return Point(fields={"step": step}, recipes=recipes, options=("--recipe", "r", "--set", f"step={step}"))


def trials(*values: float | None, measure: str = "dev_ndcg@10") -> list[Trial]:
    return [
        Trial(seed=seed, digest=f"d{value}-{seed}", seconds=2.0, **_outcome(value, measure))
        for seed, value in enumerate(values, 1)
    ]


def _outcome(value: float | None, measure: str) -> dict:
    if value is None:
        return {"failed": "Its gradients are not finite.", "diverged": True}
    return {"measures": {measure: value}}


def as_table(rows, measure="dev_ndcg@10", **labels) -> dict:
    from dataclasses import asdict

    output = [asdict(row) for row in rows]
    return {"measure": measure, "watched": "judgments", "rungs": [], "rows": output, "labels": labels}


def test_mean_and_spread_are_over_the_seeds():
    [row] = rank_points([(point(0.1, 3), trials(0.5, 0.6, 0.7))], "dev_ndcg@10")
    assert row.mean == pytest.approx(0.6)
    assert row.spread == pytest.approx(0.1)  # √((0.1² + 0 + 0.1²) / (3 - 1))


def test_one_seed_has_no_spread():
    rows = rank_points([(point(0.1), trials(0.5)), (point(0.2), trials(0.6))], "dev_ndcg@10")
    assert [(row.fields["step"], row.spread, row.told_apart) for row in rows] == [(0.2, None, None), (0.1, None, None)]


@pytest.mark.parametrize(("measure", "best"), [("dev_ndcg@10", 0.2), ("dev_loss", 0.1)])
def test_a_higher_ndcg_and_a_lower_loss_are_better(measure, best):
    points = [(point(0.1), trials(0.5, measure=measure)), (point(0.2), trials(0.6, measure=measure))]
    assert rank_points(points, measure)[0].fields["step"] == best


@pytest.mark.parametrize(("lead", "apart"), [(0.17, True), (0.16, False)])
def test_a_lead_is_told_apart_beyond_two_standard_errors(lead, apart):
    # Each point: values x ± 0.1 of two seeds, spread √2 · 0.1 = 0.1414; error √(0.02/2 + 0.02/2) = 0.1414.
    # With a third and fourth alike: spread √(4 · 0.01 / 3) = 0.11547, error √(2 · 0.013333 / 4) = 0.08165; 2x: 0.1633.
    first, second = (trials(*(x - 0.1, x + 0.1) * 2) for x in (0.5 + lead, 0.5))
    rows = rank_points([(point(0.1, 4), first), (point(0.2, 4), second)], "dev_ndcg@10")
    assert rows[0].told_apart is None
    assert rows[1].told_apart is apart


def test_a_point_with_a_diverged_seed_comes_after_all_without_and_one_without_any_value_last():
    points = [
        (point(0.3, 2), trials(None, None)),
        (point(0.2, 2), trials(0.9, None)),
        (point(0.1, 2), trials(0.5, 0.5)),
    ]
    rows = rank_points(points, "dev_ndcg@10")
    assert [row.fields["step"] for row in rows] == [0.1, 0.2, 0.3]
    assert rows[1].mean == 0.9
    assert (rows[2].mean, rows[2].spread) == (None, None)


def test_a_point_that_was_left_behind_comes_after_those_that_went_on_and_is_not_compared_with_them():
    far, near = ([replace(trial, rung=rung) for trial in trials(0.5, 0.6)] for rung in (1, 0))
    better = [replace(trial, rung=0) for trial in trials(0.8, 0.9)]
    rows = rank_points([(point(0.1, 2), near), (point(0.2, 2), far), (point(0.3, 2), better)], "dev_ndcg@10")
    assert [(row.fields["step"], row.rung, row.told_apart) for row in rows] == [
        (0.2, 1, None),
        (0.3, 0, None),
        (0.1, 0, None),
    ]


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.sampled_from(list(measures())),
    st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=4), min_size=1, max_size=6),
    st.randoms(),
)
def test_every_point_has_a_row_in_the_order_of_its_mean_whatever_the_order_of_points(measure, values, shuffled):
    points = [(point(0.1 * (at + 1)), trials(*of_point, measure=measure)) for at, of_point in enumerate(values)]
    rows = rank_points(points, measure)
    means = [row.mean for row in rows]
    assert sorted(means, reverse=measures()[measure]) == means
    assert sorted(row.fields["step"] for row in rows) == [p.fields["step"] for p, _ in points]
    assert all(row.mean == pytest.approx(math.fsum(v) / len(v)) for row in rows for v in [_values(row, measure)])
    shuffled.shuffle(points)
    assert [row.mean for row in rank_points(points, measure)] == means


def _values(row, measure: str) -> list[float]:
    return [trial.measures[measure] for trial in row.trials]


def test_cells_name_the_point_its_figures_and_how_many_seeds_came_through():
    rows = rank_points([(point(0.1, 2), trials(0.5, 0.6)), (point(0.2, 2), trials(0.58, None))], "dev_ndcg@10")
    header, shown = cells(as_table(rows))
    assert header == ["", "step", "dev_ndcg@10", "seeds", "s"]
    assert shown == [["1", "0.1", "0.5500 ± 0.0707", "2", "2"], ["2", "0.2", "0.5800", "1 of 2", "2"]]


def test_a_point_that_is_as_good_as_the_best_is_marked():
    rows = rank_points([(point(0.1, 2), trials(0.5, 0.6)), (point(0.2, 2), trials(0.5, 0.58))], "dev_ndcg@10")
    table = as_table(rows)
    assert cells(table)[1][1][0] == "2 ≈"
    assert any("below two standard errors" in note for note in notes(table))


def test_notes_say_what_not_to_believe():
    single = " ".join(notes(as_table(rank_points([(point(0.1), trials(0.5))], "dev_ndcg@10"), simulated=True)))
    assert "`seeds = [1, 2, 3]`" in single
    assert "no test result" in single
    assert "simulated log" in single
    several = " ".join(notes(as_table(rank_points([(point(0.1, 2), trials(0.5, None))], "dev_ndcg@10"))))
    assert "step=0.1 diverged with seed 2: Its gradients are not finite." in several
    assert "`seeds = " not in several


@pytest.mark.parametrize(("best", "words"), [(0.1, "the smallest that was tried"), (0.3, "the largest"), (0.2, "")])
def test_a_best_value_at_the_edge_of_what_was_tried_is_told(best, words):
    points = [(point(step), trials(0.9 if step == best else 0.5)) for step in (0.1, 0.2, 0.3)]
    output = " ".join(notes(as_table(rank_points(points, "dev_ndcg@10"))))
    assert words in output
    assert ("that was tried" in output) == bool(words)
