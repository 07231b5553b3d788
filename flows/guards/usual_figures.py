"""The usual value of a figure, from the observations of earlier runs (drift), by simple rules.

A figure raises an alarm if it is both far from the usual value (a stated limit) and unusual for how much it varies
(robust spread). The usual value is the median of the same weekdays among the last `days` days if there are
`same_weekdays` of them, since a shop is quiet every Sunday. Otherwise it is the median of all of them, and a value near
their range raises no alarm. A slow drift, which no single day shows, is detected by comparing the week's median with
that of the week `days` earlier. Logs without a date have no weekdays: the last `days` runs count.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import date as calendar_date
from datetime import timedelta
from statistics import median
from typing import Any

import numpy as np

from clicktower.flows.config.guard_rules import FIGURES, DriftRules, Figure
from clicktower.flows.config.pipeline_config import PipelineConfig
from clicktower.flows.guards.drift import (
    FOLDER,
    MIN_SCORES,
    NUM_POINTS,
    Observation,
    WatchedFigure,
    as_read,
    key_of,
    names_of,
    read,
    shown,
    unit_of,
    unknown,
)
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError

SPREAD = 3.0  # the minimum distance of an alarm, in robust standard deviations
MAD_TO_SIGMA = 1.4826
SHORTEST = 3  # with fewer earlier values nothing is compared
SHORTEST_WEEK = 4  # the minimum of days for the median of a week
MEDIANS_APART = math.sqrt(math.pi / 7)  # the difference by chance of two weeks' medians, if a day varies by 1
DAYS_ALIKE = 0.2  # of the number of days in a build: other builds are not compared
_WEEKDAYS = ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays")


def require_usual(
    config: PipelineConfig, date: str, results: Mapping[str, Any], unusual: Sequence[WatchedFigure]
) -> None:
    """Raise StageError if an alarm on the newest stage's figures is configured to stop the run."""
    stopping = [row for row in unusual if row.stops]
    if not stopping:
        return
    names, key = ", ".join(row.figure for row in stopping), key_of(config, date, results["ingest"])
    error = StageError(
        f"The figures of {key} are unusual: {'; '.join(row.alarm for row in stopping)}. The run stops, since"
        f" [drift] stop names {names}; what is live stays live.",
        f'Look at that log; if it is right, set accept = ["{key}"] in [drift] and run again: finished stages are'
        " reused.",
    )
    error.exit_code = config.drift.exit_code or error.exit_code
    raise error


def compare_with_earlier(store: str, today: Observation, rules: DriftRules) -> list[WatchedFigure]:
    """Every figure of today beside its usual value, from the observations in a store."""
    return watch(today, earlier(store, today, days=rules.days + 7), rules)  # one week more, for a slow drift


def watch(today: Observation, history: Sequence[Observation], rules: DriftRules) -> list[WatchedFigure]:
    """Every figure of today beside its usual value; `history`: earlier observations, oldest first."""
    return [(_distribution if name == "scores" else _number)(name, today, history, rules) for name in names_of(today)]


def earlier(store: str, today: Observation, *, days: int) -> list[Observation]:
    """The earlier observations, oldest first; for a dated log those of at most `days` days before.

    A damaged file is ignored: it decides nothing that is published.
    """
    since = (date_of(today) - timedelta(days=days)).isoformat() if today.dated else ""
    names = [name.removesuffix(".json") for name in storage.list_files(storage.join(store, FOLDER))]
    observations = [read(store, name) for name in names if name != today.key and name >= since]
    comparable = [o for o in observations if o and o.dated == today.dated and o.when < today.when]
    return sorted(comparable, key=lambda o: o.when)


def date_of(observation: Observation) -> calendar_date:
    return calendar_date.fromisoformat(observation.when[:10])


def _number(name: str, today: Observation, history: Sequence[Observation], rules: DriftRules) -> WatchedFigure:
    figure, value, limit = FIGURES[name], today.values[name], _limit(name, rules)
    alike = [o for o in history if name in o.values and _comparable(name, o, today)]
    recent = _recent(alike, today, rules)
    weekdays = [o for o in recent if today.dated and date_of(o).weekday() == date_of(today).weekday()]
    by_weekday = len(weekdays) >= rules.same_weekdays
    taken = [o.values[name] for o in (weekdays if by_weekday else recent)]
    if len(taken) < SHORTEST:
        return unknown(name, today, len(taken))
    usual = median(taken)
    basis = f"{len(taken)} {_WEEKDAYS[date_of(today).weekday()] if by_weekday else unit_of(today)}"
    is_seen = not by_weekday and _is_within(figure, value, taken, limit)
    spread = _spread_of_weeks(name, recent) if by_weekday else _mad([_scaled(figure, v) for v in taken])
    jump, slow = "", ""
    if not is_seen and _is_far(figure, value, usual, limit, spread):
        jump = f"{figure.words}: {_sentence(figure, value, usual, limit)}, from {basis} before"
    else:
        slow = _detect_slow_drift(name, today, alike, rules, spread)
    return WatchedFigure(
        figure=name, words=figure.words, value=shown(name, today), usual=as_read(figure, usual), basis=basis,
        alarm=jump or slow, stops=bool(jump) and _may_stop(name, today, rules),
    )  # fmt: skip


def _is_far(figure: Figure, value: float, usual: float, limit: float, spread: float) -> bool:
    """Whether a value is beyond the limit, and beyond the variation of earlier values."""
    if figure.kind == "times":
        if not (value > 0 and usual > 0):
            return (value > 0) != (usual > 0)
        return abs(math.log(value / usual)) > max(math.log(limit), SPREAD * spread)
    far = usual - value if figure.kind == "drop" else abs(value - usual)
    return far > max(limit, SPREAD * spread)


def _is_within(figure: Figure, value: float, taken: Sequence[float], limit: float) -> bool:
    """Whether a value is within the range of earlier values, or less than half a limit outside."""
    nearest = min(max(value, min(taken)), max(taken))
    return not _is_far(figure, value, nearest, math.sqrt(limit) if figure.kind == "times" else limit / 2, 0.0)


def _scaled(figure: Figure, value: float) -> float:
    """A value on the scale on which differences are measured: counts as logarithms, an empty day as one line."""
    return math.log(max(value, 1)) if figure.kind == "times" else value


def _mad(values: Sequence[float]) -> float:
    """The spread of values as a standard deviation, from the median of their distances to the median."""
    middle = median(values)
    return MAD_TO_SIGMA * median(abs(v - middle) for v in values)


def _spread_of_weeks(name: str, recent: Sequence[Observation]) -> float:
    """The spread of days without the weekly pattern: from the difference of each to the same weekday a week before."""
    of_day = {date_of(o): _scaled(FIGURES[name], o.values[name]) for o in recent}
    week = timedelta(days=7)
    apart = [abs(value - of_day[day - week]) for day, value in of_day.items() if day - week in of_day]
    return MAD_TO_SIGMA * median(apart) / math.sqrt(2) if apart else 0.0


def _detect_slow_drift(
    name: str, today: Observation, alike: Sequence[Observation], rules: DriftRules, spread: float
) -> str:
    """Detect a week that is far from the week `days` earlier although no single day is. It never stops a run."""
    if not today.dated:
        return ""
    figure, limit = FIGURES[name], _limit(name, rules)

    def week(last: int) -> list[float]:
        until = date_of(today) - timedelta(days=last)
        return [o.values[name] for o in (*alike, today) if until - timedelta(days=7) < date_of(o) <= until]

    now, before = week(0), week(rules.days)
    if min(len(now), len(before)) < SHORTEST_WEEK:
        return ""
    was, is_now = median(before), median(now)
    if not _is_far(figure, is_now, was, limit, spread * MEDIANS_APART):
        return ""
    comparison = _sentence(figure, is_now, was, limit)
    return f"{figure.words}: a slow drift, {comparison}, medians of this week and of the one {rules.days} days before"


def _distribution(name: str, today: Observation, history: Sequence[Observation], rules: DriftRules) -> WatchedFigure:
    figure, limit, middle = FIGURES[name], _limit(name, rules), shown(name, today)
    alike = [o for o in history if o.scores and o.num_scores >= MIN_SCORES and _comparable(name, o, today)]
    recent = _recent(alike, today, rules)
    if len(recent) < SHORTEST or today.num_scores < MIN_SCORES:
        return unknown(name, today, len(recent))
    pooled = sorted(point for o in recent for point in o.scores)
    index = population_stability(pooled, today.scores)
    basis = f"{len(recent)} {unit_of(today)}"
    alarm = ""
    if index > limit:
        alarm = (
            f"{figure.words}: distributed otherwise than in the {basis} before, PSI {index:.2f}, limit {limit:g}"
            f" ({middle}, was {median(pooled):.3f})"
        )
    return WatchedFigure(figure=name, words=figure.words, value=f"{middle}, PSI {index:.2f}",
                         usual=f"median {median(pooled):.3f}", basis=basis, alarm=alarm,
                         stops=bool(alarm) and _may_stop(name, today, rules))  # fmt: skip


def population_stability(expected: Sequence[float], actual: Sequence[float]) -> float:
    """The population stability index of two samples over the deciles of the first: sum of (a - e) ln(a / e).

    An empty bin counts as half a point of a sketch. 0 means alike; above 0.25 is commonly taken for another population.
    """
    cuts = np.unique(np.quantile(expected, np.linspace(0, 1, 11)[1:-1]))
    shares = [
        np.bincount(np.searchsorted(cuts, sample, side="right"), minlength=len(cuts) + 1) / len(sample)
        for sample in (expected, actual)
    ]
    e, a = (np.maximum(share, 0.5 / NUM_POINTS) for share in shares)
    return float(((a - e) * np.log(a / e)).sum())


def _comparable(name: str, earlier: Observation, today: Observation) -> bool:
    """Whether it was measured with the same settings, and in builds over about as many days."""
    apart = abs(earlier.num_days - today.num_days)
    is_alike = not FIGURES[name].of_window or apart <= DAYS_ALIKE * today.num_days
    return is_alike and earlier.asked.get(name) == today.asked.get(name)


def _recent(alike: Sequence[Observation], today: Observation, rules: DriftRules) -> list[Observation]:
    if not today.dated:
        return list(alike[-rules.days :])
    return [o for o in alike if date_of(today) - timedelta(days=rules.days) <= date_of(o) < date_of(today)]


def _limit(name: str, rules: DriftRules) -> float:
    return rules.limits.get(name, FIGURES[name].limit)


def _may_stop(name: str, today: Observation, rules: DriftRules) -> bool:
    return name in rules.stop and today.key not in rules.accept


def _sentence(figure: Figure, value: float, usual: float, limit: float) -> str:
    comparison = f"{as_read(figure, value)} where {as_read(figure, usual)} is usual"
    if figure.kind == "times":
        if not (value > 0 and usual > 0):
            return comparison
        return f"{comparison} ({value / usual:.2f} times, limits {1 / limit:.2f} and {limit:g})"
    if figure.kind == "points":
        return f"{comparison} ({100 * (value - usual):+.1f} points, limit {100 * limit:g})"
    return f"{comparison} ({value - usual:+.3f}, limit -{limit:g})"
