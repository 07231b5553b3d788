"""Drift on series made by hand: what is usual stays quiet, what is not says so, and each rule can be worked out."""

from dataclasses import replace
from datetime import date, timedelta
from math import exp, log, sqrt

import pytest

from clicktower.flows.config.guard_rules import FIGURES, DriftRules
from clicktower.flows.guards.drift import Observation, alarms, points, write
from clicktower.flows.guards.usual_figures import earlier, population_stability, watch

START = date(2026, 8, 3)  # a Monday
RULES = DriftRules()


def observed(day: int, lines: float | None = 1_000, **others) -> Observation:
    when = (START + timedelta(days=day)).isoformat()
    values = ({} if lines is None else {"lines": lines}) | others
    return Observation(key=when, when=when, dated=True, values=values, asked=dict.fromkeys(values, "same"))


def daily(*values: float) -> list[Observation]:
    return [observed(day, value) for day, value in enumerate(values)]


def told(series: list[Observation], rules: DriftRules = RULES) -> list[str]:
    """The alarms of the last day of a series."""
    return [row.alarm for row in alarms(watch(series[-1], series[:-1], rules))]


def alarming_days(series: list[Observation], rules: DriftRules = RULES) -> list[int]:
    return [day for day in range(len(series)) if told(series[: day + 1], rules)]


def test_a_steady_series_never_alarms():
    assert alarming_days(daily(*[1_000 + 30 * (day % 4) for day in range(60)])) == []


def test_a_weekly_pattern_never_alarms_once_each_weekday_was_seen_though_sundays_are_a_third():
    week = [1_000, 1_100, 1_050, 1_000, 900, 500, 330]
    days = alarming_days(daily(*(week * 8)))
    assert set(days) <= {5, 6}, "only the very first weekend is like nothing before it"


def test_half_the_lines_on_a_monday_alarm_though_sundays_have_fewer():
    week = [1_000, 1_100, 1_050, 1_000, 900, 500, 330]
    series = daily(*(week * 5), 500)
    assert told(series) == [
        "lines of the log: 500 where 1,000 is usual (0.50 times, limits 0.67 and 1.5), from 4 Mondays before"
    ]


def test_with_few_same_weekdays_all_days_count_and_what_is_near_what_they_have_shown_does_not_alarm():
    past = [1_000, 1_000, 500, 1_000, 1_000, 1_000]
    assert told(daily(*past, 520)) == []
    assert told(daily(*past, 409)) == [], "the square root of 1.5 is 1.22, and 500 / 1.22 is 408"
    assert told(daily(*past, 407)) == [
        "lines of the log: 407 where 1,000 is usual (0.41 times, limits 0.67 and 1.5), from 6 days before"
    ]


def test_a_noisy_series_may_vary_as_it_does():
    """Each day 3 times, or a third of, the same weekday a week before: a spread of 1.48 ln 3 / sqrt(2), thrice that."""
    noisy = [3_000 if week % 2 else 1_000 for week in range(4) for _ in range(7)]
    usual = 2_000  # the median of two weeks of 1,000 and two of 3,000
    least = usual * exp(-3 * 1.4826 * log(3) / sqrt(2))
    assert told(daily(*noisy, round(least) + 1)) == []
    assert told(daily(*noisy, round(least) - 1)) != []
    assert told(daily(*([1_000] * 28), 390)) != []


def test_a_slow_drift_that_no_day_shows_is_told_from_weeks_apart():
    falling = daily(*[round(10_000 * 0.98**day) for day in range(50)])
    days = alarming_days(falling)
    assert days, "two percent a day is a fall by 43% in four weeks"
    assert all(" a slow drift, " in told(falling[: day + 1])[0] for day in days)
    assert min(days) >= 28, "there is no week four weeks before it earlier"
    assert alarming_days(daily(*[round(10_000 * 0.995**day) for day in range(60)])) == []


def test_a_slow_drift_never_stops_a_run():
    falling = daily(*[round(10_000 * 0.98**day) for day in range(50)])
    row = watch(falling[-1], falling[:-1], DriftRules(stop=("lines",)))[0]
    assert row.alarm
    assert not row.stops


@pytest.mark.parametrize("count", [0, 1, 2])
def test_the_first_days_have_nothing_to_be_compared_with(count):
    series = daily(*[1_000] * count, 10)
    row = watch(series[-1], series[:-1], RULES)[0]
    assert (row.alarm, row.usual) == ("", "—")
    assert row.basis == ["no earlier day", "only 1 earlier day", "only 2 earlier days"][count]


def test_missing_days_are_no_zeros():
    series = [o for day, o in enumerate(daily(*[1_000] * 40)) if day % 3]
    assert told(series) == []
    long_ago = [observed(day) for day in range(10)] + [observed(90, 10)]
    assert watch(long_ago[-1], long_ago[:-1], RULES)[0].basis == "no earlier day"


def test_an_empty_day_alarms_and_so_does_something_after_nothing():
    assert told(daily(1_000, 1_000, 1_000, 1_000, 0)) == [
        "lines of the log: 0 where 1,000 is usual, from 4 days before"
    ]
    assert told(daily(0, 0, 0, 0, 7)) == ["lines of the log: 7 where 0 is usual, from 4 days before"]
    assert told(daily(0, 0, 0, 0)) == []


def test_shares_alarm_by_points_and_quality_by_its_fall_only():
    past = [observed(day, None, bots=0.10, quality=0.800) for day in range(5)]
    assert told([*past, observed(5, None, bots=0.149, quality=0.781)]) == []
    assert told([*past, observed(5, None, bots=0.151, quality=0.9)]) == [
        "share of lines of bots: 15.10% where 10.00% is usual (+5.1 points, limit 5), from 5 days before"
    ]
    assert told([*past, observed(5, None, bots=0.1, quality=0.779)]) == [
        "NDCG@10 of the new model: 0.779 where 0.800 is usual (-0.021, limit -0.02), from 5 days before"
    ]


def test_what_was_measured_under_other_settings_is_not_compared():
    past = [observed(day, pairs=100) for day in range(10)]
    other = replace(observed(10, pairs=500), asked={"lines": "same", "pairs": "another k"})
    assert told([*past, other]) == []
    assert [row.basis for row in watch(other, past, RULES)] == ["10 days", "no earlier day"]


def test_a_window_that_grows_is_compared_with_builds_over_about_as_many_days():
    def of(days: int) -> Observation:
        return replace(observed(days, None, pairs=100.0 * days), num_days=days)

    assert [watch(of(day), [of(d) for d in range(1, day)], RULES)[0].basis for day in (5, 20)] == [
        "only 1 earlier day",
        "4 days",  # of 16 to 19
    ]


def test_a_limit_of_ones_own_and_a_stop_and_an_accepted_date():
    series = daily(1_000, 1_000, 1_000, 1_000, 1_300)
    assert told(series) == []
    rules = DriftRules(limits={"lines": 1.2}, stop=("lines",))
    assert [row.stops for row in watch(series[-1], series[:-1], rules)] == [True]
    accepted = replace(rules, accept=(series[-1].key,))
    row = watch(series[-1], series[:-1], accepted)[0]
    assert (bool(row.alarm), row.stops) == (True, False), "it is still told"


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"stop": ("volume",)}, "stop names volume"),
        ({"stop": ("live_quality",)}, "stop names live_quality"),
        ({"limits": {"lines": 0.5}}, "limits.lines must be above 1"),
        ({"limits": {"bots": 0}}, "limits.bots must be above 0"),
        ({"limits": {"typo": 1}}, "limits names typo"),
        ({"days": 3}, "days"),
        ({"same_weekdays": 5}, "same_weekdays"),
    ],
)
def test_rules_that_mean_nothing_are_refused(fields, found):
    with pytest.raises(ValueError, match=found):
        DriftRules(**fields)


def test_the_stability_index_is_the_sum_over_the_deciles_worked_by_hand():
    expected = [i / 1_000 for i in range(1_000)]
    assert population_stability(expected, expected) == pytest.approx(0)
    upper = [value for value in expected if value >= 0.5]  # five empty bins, five of twice the mass
    by_hand = 5 * (0.005 - 0.1) * log(0.005 / 0.1) + 5 * (0.2 - 0.1) * log(0.2 / 0.1)
    assert population_stability(expected, upper) == pytest.approx(by_hand, rel=0.02)


def test_scores_that_move_alarm_and_few_queries_are_not_judged():
    def of(day: int, shift: float, count: int = 400) -> Observation:
        scores = points([shift + i / count for i in range(count)])
        return replace(observed(day, None), scores=scores, num_scores=count, asked={"scores": "same"})

    past = [of(day, 0.001 * (day % 3)) for day in range(10)]
    assert told([*past, of(10, 0.01)]) == []
    assert "distributed otherwise than in the 10 days before, PSI" in told([*past, of(10, 0.4)])[0]
    few = watch(of(10, 0.4, 99), past, RULES)[0]
    assert (few.alarm, few.basis) == ("", "fewer than 100 queries")


def test_points_of_equal_mass_are_the_quantiles():
    assert points(range(1_000)) == [10 * i + 5 for i in range(100)]
    assert points([0.5]) == [0.5] * 100
    assert points([]) == []


def test_observations_come_back_as_they_were_and_a_damaged_one_is_left_out(tmp_path):
    store, series = str(tmp_path), daily(1, 2, 3)
    for observation in reversed(series):
        write(store, observation)
    write(store, replace(series[0], key="ingest-abc", dated=False))
    assert earlier(store, series[2], days=9) == series[:2]
    assert earlier(store, series[2], days=1) == series[1:2]
    (tmp_path / "observed" / f"{series[0].key}.json").write_text("{")
    assert earlier(store, series[2], days=9) == series[1:2]
    assert earlier(str(tmp_path / "nothing"), series[2], days=9) == []


def test_a_run_that_ended_early_leaves_what_an_earlier_one_of_its_date_saw(tmp_path):
    whole = replace(observed(0, 10, pairs=5.0), num_days=3, scores=(0.5,), num_scores=1)
    write(str(tmp_path), whole)
    write(str(tmp_path), observed(0, 20))
    assert earlier(str(tmp_path), observed(1), days=9) == [replace(whole, values={"lines": 20, "pairs": 5.0})]


def test_a_log_without_a_date_is_compared_with_the_last_runs():
    runs = [
        replace(observed(0, lines), key=f"ingest-{n}", when=f"2026-09-01T0{n}:00:00", dated=False)
        for n, lines in enumerate([1_000, 1_000, 1_000, 400])
    ]
    assert "from 3 runs before" in told(runs)[0]


def test_every_figure_has_words():
    assert all(figure.words and figure.limit > 0 for figure in FIGURES.values())
