"""Drift: whether a run's figures are usual compared with earlier runs, by simple rules.

A figure raises an alarm if it is both far from the usual value (a stated limit) and unusual for how much it varies
(robust spread).

The usual value is the median of the same weekdays among the last `days` days if there are `same_weekdays` of them,
since a shop is quiet every Sunday. Otherwise it is the median of all of them, and a value near their range raises no
alarm. A slow drift, which no single day shows, is detected by comparing the week's median with that of the week `days`
earlier. Logs without a date have no weekdays: the last `days` runs count.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from typing import Any

import numpy as np
from rich.text import Text

from flows.config.guard_rules import FIGURES, DriftRules, Figure, Kind
from flows.config.pipeline_config import PipelineConfig
from flows.guards import observations
from flows.guards.observations import NUM_POINTS, Observation
from flows.show.console import errors
from schemas.errors import StageError

SPREAD = 3.0  # robust standard deviations that a value must be away
MAD_TO_SIGMA = 1.4826
SHORTEST = 3  # earlier values with fewer of which nothing is compared
SHORTEST_WEEK = 4  # days that a week must hold to have a median
MEDIANS_APART = math.sqrt(math.pi / 7)  # how much the medians of two weeks differ by chance, where a day varies by 1
MIN_SCORES = 100  # with fewer queries their sampling alone looks like drift
DAYS_ALIKE = 0.2  # of the number of days a build united: builds over more or fewer are not compared
_WEEKDAYS = ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays")


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchedFigure:
    """One figure of today and its usual value. `alarm`: a sentence, empty if there is none."""

    figure: str
    words: str
    value: str  # as a person reads it
    usual: str
    basis: str  # what usual was told from
    alarm: str = ""
    stops: bool = False

    def to_json(self) -> dict:
        return {name: getattr(self, name) for name in ("figure", "words", "value", "usual", "basis", "alarm", "stops")}


def watch(today: Observation, history: Sequence[Observation], rules: DriftRules) -> list[WatchedFigure]:
    """Compare every figure of today with its usual value; `history`: earlier observations, oldest first."""
    rows = [_number(name, today, history, rules) for name in FIGURES if name in today.values]
    return rows + ([_distribution(today, history, rules)] if today.scores else [])


def alarms(rows: Sequence[WatchedFigure]) -> list[WatchedFigure]:
    return [row for row in rows if row.alarm]


def _number(name: str, today: Observation, history: Sequence[Observation], rules: DriftRules) -> WatchedFigure:
    figure, value, limit = FIGURES[name], today.values[name], _limit(name, rules)
    alike = [o for o in history if name in o.values and _comparable(name, o, today)]
    recent = _recent(alike, today, rules)
    weekdays = [o for o in recent if today.dated and o.date.weekday() == today.date.weekday()]
    by_weekday = len(weekdays) >= rules.same_weekdays
    taken = [o.values[name] for o in (weekdays if by_weekday else recent)]
    shown = _shown(figure, value)
    if len(taken) < SHORTEST:
        return WatchedFigure(figure=name, words=figure.words, value=shown, usual="—", basis=_too_few(len(taken), today))
    usual = median(taken)
    basis = f"{len(taken)} {_WEEKDAYS[today.date.weekday()] if by_weekday else 'days' if today.dated else 'runs'}"
    seen = not by_weekday and _is_within(figure, value, taken, limit)
    spread = _spread_of_weeks(name, recent) if by_weekday else _mad([_scaled(figure, v) for v in taken])
    jump, slow = "", ""
    if not seen and _is_far(figure, value, usual, limit, spread):
        jump = f"{figure.words}: {_sentence(figure, value, usual, limit)}, from {basis} before"
    else:
        slow = _slow(name, today, alike, rules, spread)
    return WatchedFigure(figure=name, words=figure.words, value=shown, usual=_shown(figure, usual), basis=basis,
                   alarm=jump or slow, stops=bool(jump) and _may_stop(name, today, rules))  # fmt: skip


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
    of_day = {o.date: _scaled(FIGURES[name], o.values[name]) for o in recent}
    week = timedelta(days=7)
    apart = [abs(value - of_day[day - week]) for day, value in of_day.items() if day - week in of_day]
    return MAD_TO_SIGMA * median(apart) / math.sqrt(2) if apart else 0.0


def _slow(name: str, today: Observation, alike: Sequence[Observation], rules: DriftRules, spread: float) -> str:
    """Detect a week that is far from the week `days` earlier although no single day is. It never stops a run."""
    if not today.dated:
        return ""
    figure, limit = FIGURES[name], _limit(name, rules)

    def week(last: int) -> list[float]:
        until = today.date - timedelta(days=last)
        return [o.values[name] for o in (*alike, today) if until - timedelta(days=7) < o.date <= until]

    now, before = week(0), week(rules.days)
    if min(len(now), len(before)) < SHORTEST_WEEK:
        return ""
    was, is_now = median(before), median(now)
    if not _is_far(figure, is_now, was, limit, spread * MEDIANS_APART):
        return ""
    both = _sentence(figure, is_now, was, limit)
    return f"{figure.words}: a slow drift, {both}, medians of this week and of the one {rules.days} days before"


def _distribution(today: Observation, history: Sequence[Observation], rules: DriftRules) -> WatchedFigure:
    figure, limit = FIGURES["scores"], _limit("scores", rules)
    alike = [o for o in history if o.scores and o.num_scores >= MIN_SCORES and _comparable("scores", o, today)]
    recent = _recent(alike, today, rules)
    middle = f"median {median(today.scores):.3f}"
    if len(recent) < SHORTEST or today.num_scores < MIN_SCORES:
        basis = f"fewer than {MIN_SCORES} queries" if today.num_scores < MIN_SCORES else _too_few(len(recent), today)
        return WatchedFigure(figure="scores", words=figure.words, value=middle, usual="—", basis=basis)
    pooled = sorted(point for o in recent for point in o.scores)
    index = population_stability(pooled, today.scores)
    basis = f"{len(recent)} {'days' if today.dated else 'runs'}"
    alarm = ""
    if index > limit:
        alarm = (
            f"{figure.words}: distributed otherwise than in the {basis} before, PSI {index:.2f}, limit {limit:g}"
            f" ({middle}, was {median(pooled):.3f})"
        )
    return WatchedFigure(figure="scores", words=figure.words, value=f"{middle}, PSI {index:.2f}",
                   usual=f"median {median(pooled):.3f}", basis=basis, alarm=alarm,
                   stops=bool(alarm) and _may_stop("scores", today, rules))  # fmt: skip


def population_stability(expected: Sequence[float], actual: Sequence[float], *, bins: int = 10) -> float:
    """The population stability index of two samples over the deciles of the first: sum of (a - e) ln(a / e).

    An empty bin counts as half a point of a sketch. 0: alike; above 0.25 is commonly taken for another population.
    """
    cuts = np.unique(np.quantile(expected, np.linspace(0, 1, bins + 1)[1:-1]))
    shares = [
        np.bincount(np.searchsorted(cuts, sample, side="right"), minlength=len(cuts) + 1) / len(sample)
        for sample in (expected, actual)
    ]
    e, a = (np.maximum(share, 0.5 / NUM_POINTS) for share in shares)
    return float(((a - e) * np.log(a / e)).sum())


def _comparable(name: str, earlier: Observation, today: Observation) -> bool:
    """Earlier values measured under the same settings, and in builds over about as many days."""
    if earlier.asked.get(name) != today.asked.get(name):
        return False
    apart = abs(earlier.num_days - today.num_days)
    return name not in FIGURES or not FIGURES[name].of_window or apart <= DAYS_ALIKE * today.num_days


def _recent(alike: Sequence[Observation], today: Observation, rules: DriftRules) -> list[Observation]:
    if not today.dated:
        return list(alike[-rules.days :])
    return [o for o in alike if today.date - timedelta(days=rules.days) <= o.date < today.date]


def _limit(name: str, rules: DriftRules) -> float:
    return rules.limits.get(name, FIGURES[name].limit)


def _may_stop(name: str, today: Observation, rules: DriftRules) -> bool:
    return name in rules.stop and today.key not in rules.accept


def _too_few(count: int, today: Observation) -> str:
    unit = "day" if today.dated else "run"
    return f"only {count} earlier {unit}{'s' * (count != 1)}" if count else f"no earlier {unit}"


def _shown(figure: Figure, value: float) -> str:
    shown: dict[Kind, Callable[[float], str]] = {
        "times": lambda v: f"{v:,.0f}",
        "points": lambda v: f"{v:.2%}",
        "drop": lambda v: f"{v:.3f}",
        "distribution": lambda v: f"{v:.2f}",
    }
    return shown[figure.kind](value)


def _sentence(figure: Figure, value: float, usual: float, limit: float) -> str:
    both = f"{_shown(figure, value)} where {_shown(figure, usual)} is usual"
    if figure.kind == "times":
        if not (value > 0 and usual > 0):
            return f"{both}"
        return f"{both} ({value / usual:.2f} times, limits {1 / limit:.2f} and {limit:g})"
    if figure.kind == "points":
        return f"{both} ({100 * (value - usual):+.1f} points, limit {100 * limit:g})"
    return f"{both} ({value - usual:+.3f}, limit -{limit:g})"


def watched(config: PipelineConfig, date: str, results: Mapping[str, Any]) -> list[WatchedFigure]:
    """Compare every figure of the stages done so far with its usual value. `results`: theirs, the newest last.

    What was seen is kept in the store (observations). An alarm that section [drift] names under `stop` ends the run.

    Reports the alarms of the newest stage.
    """
    now = observations.observe(config, date, results)
    before = observations.earlier(config.store, now, days=config.drift.days + 7)  # a week more, for a slow drift
    rows = watch(now, before, config.drift)
    observations.write(config.store, now)
    for row in alarms_of_newest(rows, results):
        errors.print(Text(f"  drift: {row.alarm}", style="yellow"), soft_wrap=True)
    return rows


def require_usual(config: PipelineConfig, date: str, results: Mapping[str, Any], rows: Sequence[WatchedFigure]) -> None:
    """Raise StageError if an alarm of the newest stage is configured to stop the run."""
    stopping = [row for row in alarms_of_newest(rows, results) if row.stops]
    if not stopping:
        return
    names, key = ", ".join(row.figure for row in stopping), observations.key_of(config, date, results["ingest"])
    raise StageError(
        asked=f"the figures of {key} were to be as usual before the run goes on",
        found="; ".join(row.alarm for row in stopping),
        follows=f"the run stops here, since [drift] stop names {names}; what is live stays live",
        do=f'look at that log; if it is right, set accept = ["{key}"] in [drift] and run again: what is done is reused',
    )


def alarms_of_newest(rows: Sequence[WatchedFigure], results: Mapping[str, Any]) -> list[WatchedFigure]:
    """The alarms on figures that the newest stage produced."""
    return [row for row in alarms(rows) if FIGURES[row.figure].stage == list(results)[-1]]
