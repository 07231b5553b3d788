"""Drift: whether a run's figures are usual compared with earlier runs, by simple rules.

A few numbers of every run are kept: only counts, shares, means and quantiles of cosines, no text and no ids.

    STORE/observed/2026-09-01.json          of a dated log: the newest run of that date counts
    STORE/observed/ingest-DIGEST.json       of a log without a date: one for each log

A figure raises an alarm if it is both far from the usual value (a stated limit) and unusual for how much it varies
(robust spread). The usual value is the median of the same weekdays among the last `days` days if there are
`same_weekdays` of them, since a shop is quiet every Sunday. Otherwise it is the median of all of them, and a value near
their range raises no alarm. A slow drift, which no single day shows, is detected by comparing the week's median with
that of the week `days` earlier. Logs without a date have no weekdays: the last `days` runs count.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date as calendar_date
from datetime import timedelta
from statistics import median
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from clicktower.beam_jobs.ingest.day_versions import follow
from clicktower.flows.config.guard_rules import FIGURES, DriftRules, Figure, Kind
from clicktower.flows.config.pipeline_config import PipelineConfig, is_dated
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, require_major
from clicktower.schemas.ledger import Ledger, merge_ledgers
from clicktower.schemas.manifest import canonical_json, from_bytes
from clicktower.schemas.stage import open_result

SCHEMA_VERSION = "1.0"
FOLDER = "observed"
NUM_POINTS = 100  # of a sketch of a distribution: points of equal mass
# The ledger's fates of bots.
BOTS = ("bot_user_agent", "bot_behaviour", "bot_crowd", "bot_unsure")

SPREAD = 3.0  # the minimum distance of an alarm, in robust standard deviations
MAD_TO_SIGMA = 1.4826
SHORTEST = 3  # with fewer earlier values nothing is compared
SHORTEST_WEEK = 4  # the minimum of days for the median of a week
MEDIANS_APART = math.sqrt(math.pi / 7)  # the difference by chance of two weeks' medians, if a day varies by 1
MIN_SCORES = 100  # with fewer queries sampling alone looks like drift
DAYS_ALIKE = 0.2  # of the number of days in a build: other builds are not compared
_WEEKDAYS = ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays")


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """`values`: figure -> number. `asked`: figure -> a digest of the settings it was measured under; figures with other
    settings are not compared. `scores`: the best cosine of each judged query, as points of equal mass, ascending.
    """

    key: str  # as in [drift] accept
    when: str  # ISO 8601: the date of a dated log, otherwise the time of ingest; it orders observations
    dated: bool
    values: Mapping[str, float] = field(default_factory=dict)
    asked: Mapping[str, str] = field(default_factory=dict)
    num_days: int = 1  # that the build united
    scores: Sequence[float] = ()
    num_scores: int = 0

    @property
    def date(self) -> calendar_date:
        return calendar_date.fromisoformat(self.when[:10])


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchedFigure:
    """One figure of today and its usual value. `alarm`: a sentence, or empty."""

    figure: str
    words: str
    value: str  # as a person reads it
    usual: str = "—"
    basis: str  # the source of the usual value
    alarm: str = ""
    stops: bool = False


def watch_figures(config: PipelineConfig, date: str, results: Mapping[str, Any]) -> list[WatchedFigure]:
    """Compare every figure of the finished stages with its usual value. `results`: theirs, the newest last.

    The observation is kept in the store.
    """
    today = observe(config, date, results)
    before = earlier(config.store, today, days=config.drift.days + 7)  # one week more, for a slow drift
    rows = watch(today, before, config.drift)
    write(config.store, today)
    return rows


def require_usual(config: PipelineConfig, date: str, results: Mapping[str, Any], rows: Sequence[WatchedFigure]) -> None:
    """Raise StageError if an alarm of the newest stage is configured to stop the run."""
    stopping = [row for row in alarms_of_newest(rows, results) if row.stops]
    if not stopping:
        return
    names, key = ", ".join(row.figure for row in stopping), _key(config, date, results["ingest"])
    error = StageError(
        f"The figures of {key} are unusual: {'; '.join(row.alarm for row in stopping)}. The run stops, since"
        f" [drift] stop names {names}; what is live stays live.",
        f'Look at that log; if it is right, set accept = ["{key}"] in [drift] and run again: finished stages are'
        " reused.",
    )
    error.exit_code = config.drift.exit_code or error.exit_code
    raise error


def alarms(rows: Sequence[WatchedFigure]) -> list[WatchedFigure]:
    return [row for row in rows if row.alarm]


def alarms_of_newest(rows: Sequence[WatchedFigure], results: Mapping[str, Any]) -> list[WatchedFigure]:
    """The alarms on figures that the newest stage produced."""
    return [row for row in alarms(rows) if FIGURES[row.figure].stage == list(results)[-1]]


# Figures from a run's results.


def observe(config: PipelineConfig, date: str, results: Mapping[str, Any]) -> Observation:
    """The observation of a run, from the JSON results of its finished stages by name: at least `ingest`."""
    day, shards = results["ingest"], results.get("build")
    evaluation, published = results.get("evaluate"), results.get("publish")
    values: dict[str, float] = {}
    settings_of: dict[str, str] = {}
    scores: list[float] = []
    num_days = 1

    def see(settings: str, **seen: float) -> None:
        values.update(seen)
        settings_of.update(dict.fromkeys(seen, settings))

    ingested = open_result(day["path"]).manifest
    # Late files of a date are ingested alone, and that ingest's result covers only those.
    digests = [part["ingest"] for part in day["day"]["parts"]] if "day" in day else []
    folders = [follow(storage.join(config.store, "ingest", digest)) for digest in digests] or [day["path"]]
    parts = [open_result(folder).manifest.outcome for folder in folders]
    ledger = merge_ledgers(part.ledger for part in parts if part.ledger)
    see(
        _digest({name: value for name, value in ingested.request.config.items() if name != "date"}),
        lines=ledger.total,
        searches=sum(part.counts["searches"] for part in parts),
        unreadable=ledger.of_kind("unreadable") / max(ledger.total, 1),
        bots=sum(ledger.lines.get(fate, 0) for fate in BOTS) / max(ledger.total, 1),
    )
    if shards:
        ledger, counts = Ledger.from_json(shards["ledger"]), shards["counts"]
        below_k = ledger.lines.get("query_below_k", 0)
        see(
            _digest(open_result(shards["path"]).manifest.request.config),
            below_k=below_k / max(ledger.of_kind("kept") + below_k, 1),
            pairs=counts["train_pairs"] + counts["dev_pairs"],
        )
        see("", documents=counts["documents"])
        num_days = len(shards["metrics"]["window"]["versions"]) or 1
    if evaluation:
        judged = _judged(evaluation)
        see(judged, quality=evaluation["metrics"]["systems"]["model"]["ndcg@10"]["mean"])
        settings_of["scores"] = _digest([judged, open_result(results["train"]["path"]).manifest.request.config])
        per_query = from_bytes(storage.read_bytes(storage.join(evaluation["data"], "per_query.json")))
        scores = sorted(score for score in per_query["best_score"] if score is not None)
        decision = published["metrics"].get("decision") if published else None
        figures = (decision or {}).get("figures") or {}
        if figures.get("case") == "compared":  # a promotion measured the live model
            see(_digest([judged, figures["measure"]]), live_quality=figures["live"])
    dated = is_dated(config)
    return Observation(
        key=_key(config, date, day), when=date if dated else ingested.created, dated=dated, values=values,
        asked=settings_of,
        num_days=num_days, scores=tuple(points(scores)), num_scores=len(scores),
    )  # fmt: skip


def _key(config: PipelineConfig, date: str, day: Mapping[str, Any]) -> str:
    return date if is_dated(config) else f"ingest-{day['digest']}"


def _judged(evaluation: Mapping[str, Any]) -> str:
    """The inputs of an NDCG value except the model. Click-derived judgments are expected to differ every time."""
    request = open_result(evaluation["path"]).manifest.request
    files = {} if evaluation["labels"].get("judgments") == "click-derived" else request.inputs
    return _digest([request.config, files.get("queries"), files.get("qrels")])


def _digest(value: Any) -> str:
    return hashlib.sha256(canonical_json(value)).hexdigest()[:12]


def points(ascending: Sequence[float]) -> list[float]:
    """NUM_POINTS points of equal mass that represent sorted numbers; fewer numbers are repeated."""
    count = len(ascending)
    return [round(ascending[(2 * i + 1) * count // (2 * NUM_POINTS)], 4) for i in range(NUM_POINTS)] if count else []


def write(store: str, seen: Observation) -> None:
    """Write an observation. Further values of an earlier run with the same key stay: a run may have ended early."""
    if before := _read(store, seen.key):
        seen = replace(
            seen,
            values={**before.values, **seen.values},
            asked={**before.asked, **seen.asked},
            num_days=seen.num_days if "pairs" in seen.values else before.num_days,
            scores=seen.scores or before.scores,
            num_scores=seen.num_scores or before.num_scores,
        )
    content = json.dumps({"schema_version": SCHEMA_VERSION, **asdict(seen)}, indent=1, allow_nan=False).encode()
    storage.write_atomic(storage.join(store, FOLDER, f"{seen.key}.json"), content)


def earlier(store: str, today: Observation, *, days: int) -> list[Observation]:
    """The earlier observations, oldest first; for a dated log those of at most `days` days before.

    A damaged file is ignored: it decides nothing that is published.
    """
    since = (today.date - timedelta(days=days)).isoformat() if today.dated else ""
    names = [name.removesuffix(".json") for name in storage.list_files(storage.join(store, FOLDER))]
    observations = [_read(store, name) for name in names if name != today.key and name >= since]
    comparable = [o for o in observations if o and o.dated == today.dated and o.when < today.when]
    return sorted(comparable, key=lambda o: o.when)


def _read(store: str, key: str) -> Observation | None:
    uri = storage.join(store, FOLDER, f"{key}.json")
    try:
        value = from_bytes(storage.read_bytes(uri))
        require_major(uri, value.pop("schema_version"), SCHEMA_VERSION)
        value |= {"scores": tuple(value["scores"])}
        return TypeAdapter(Observation).validate_python(value)  # a later version may have more fields
    except (ValueError, KeyError, TypeError, FileNotFoundError):
        return None


# The usual value of a figure.


def watch(today: Observation, history: Sequence[Observation], rules: DriftRules) -> list[WatchedFigure]:
    """Compare every figure of today with its usual value; `history`: earlier observations, oldest first."""
    rows = [_number(name, today, history, rules) for name in FIGURES if name in today.values]
    return rows + ([_distribution(today, history, rules)] if today.scores else [])


def _number(name: str, today: Observation, history: Sequence[Observation], rules: DriftRules) -> WatchedFigure:
    figure, value, limit = FIGURES[name], today.values[name], _limit(name, rules)
    alike = [o for o in history if name in o.values and _comparable(name, o, today)]
    recent = _recent(alike, today, rules)
    weekdays = [o for o in recent if today.dated and o.date.weekday() == today.date.weekday()]
    by_weekday = len(weekdays) >= rules.same_weekdays
    taken = [o.values[name] for o in (weekdays if by_weekday else recent)]
    shown = _shown(figure, value)
    if len(taken) < SHORTEST:
        return WatchedFigure(figure=name, words=figure.words, value=shown, basis=_too_few(len(taken), today))
    usual = median(taken)
    basis = f"{len(taken)} {_WEEKDAYS[today.date.weekday()] if by_weekday else _unit(today)}"
    is_seen = not by_weekday and _is_within(figure, value, taken, limit)
    spread = _spread_of_weeks(name, recent) if by_weekday else _mad([_scaled(figure, v) for v in taken])
    jump, slow = "", ""
    if not is_seen and _is_far(figure, value, usual, limit, spread):
        jump = f"{figure.words}: {_sentence(figure, value, usual, limit)}, from {basis} before"
    else:
        slow = _detect_slow_drift(name, today, alike, rules, spread)
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


def _detect_slow_drift(
    name: str, today: Observation, alike: Sequence[Observation], rules: DriftRules, spread: float
) -> str:
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
    comparison = _sentence(figure, is_now, was, limit)
    return f"{figure.words}: a slow drift, {comparison}, medians of this week and of the one {rules.days} days before"


def _distribution(today: Observation, history: Sequence[Observation], rules: DriftRules) -> WatchedFigure:
    figure, limit = FIGURES["scores"], _limit("scores", rules)
    alike = [o for o in history if o.scores and o.num_scores >= MIN_SCORES and _comparable("scores", o, today)]
    recent = _recent(alike, today, rules)
    middle = f"median {median(today.scores):.3f}"
    if len(recent) < SHORTEST or today.num_scores < MIN_SCORES:
        basis = f"fewer than {MIN_SCORES} queries" if today.num_scores < MIN_SCORES else _too_few(len(recent), today)
        return WatchedFigure(figure="scores", words=figure.words, value=middle, basis=basis)
    pooled = sorted(point for o in recent for point in o.scores)
    index = population_stability(pooled, today.scores)
    basis = f"{len(recent)} {_unit(today)}"
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

    An empty bin counts as half a point of a sketch. 0 means alike; above 0.25 is commonly taken for another population.
    """
    cuts = np.unique(np.quantile(expected, np.linspace(0, 1, bins + 1)[1:-1]))
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
    return [o for o in alike if today.date - timedelta(days=rules.days) <= o.date < today.date]


def _limit(name: str, rules: DriftRules) -> float:
    return rules.limits.get(name, FIGURES[name].limit)


def _may_stop(name: str, today: Observation, rules: DriftRules) -> bool:
    return name in rules.stop and today.key not in rules.accept


def _unit(today: Observation) -> str:
    return "days" if today.dated else "runs"


def _too_few(count: int, today: Observation) -> str:
    unit = _unit(today).removesuffix("s" if count < 2 else "")
    return f"only {count} earlier {unit}" if count else f"no earlier {unit}"


_FORMATS: Mapping[Kind, str] = {"times": ",.0f", "points": ".2%", "drop": ".3f", "distribution": ".2f"}


def _shown(figure: Figure, value: float) -> str:
    return f"{value:{_FORMATS[figure.kind]}}"


def _sentence(figure: Figure, value: float, usual: float, limit: float) -> str:
    comparison = f"{_shown(figure, value)} where {_shown(figure, usual)} is usual"
    if figure.kind == "times":
        if not (value > 0 and usual > 0):
            return comparison
        return f"{comparison} ({value / usual:.2f} times, limits {1 / limit:.2f} and {limit:g})"
    if figure.kind == "points":
        return f"{comparison} ({100 * (value - usual):+.1f} points, limit {100 * limit:g})"
    return f"{comparison} ({value - usual:+.3f}, limit -{limit:g})"
