"""Drift: whether a run's figures are usual compared with earlier runs, by simple rules.

A few numbers of every run are kept: only counts, shares, means and quantiles of cosines, no text and no ids.

    STORE/observed/2026-09-01.json          of a dated log: the newest run of that date counts
    STORE/observed/ingest-DIGEST.json       of a log without a date: one for each log
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pkgutil import resolve_name
from statistics import median
from typing import Any

from pydantic import TypeAdapter

from clicktower.beam_jobs.ingest.erased_people import follow
from clicktower.flows.config.guard_rules import FIGURES, Figure, Kind
from clicktower.flows.config.pipeline_config import PipelineConfig, is_dated
from clicktower.schemas import storage
from clicktower.schemas.errors import require_major
from clicktower.schemas.ledger import Ledger, merge_ledgers
from clicktower.schemas.manifest import canonical_json, from_bytes
from clicktower.schemas.stage import open_result

SCHEMA_VERSION = "1.0"
FOLDER = "observed"
NUM_POINTS = 100  # of a sketch of a distribution: points of equal mass
# The ledger's fates of bots.
BOTS = ("bot_user_agent", "bot_behaviour", "bot_crowd", "bot_unsure")

MIN_SCORES = 100  # with fewer queries sampling alone looks like drift


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
    if {*storage.list_files(storage.join(config.store, FOLDER))} - {f"{today.key}.json"}:
        compare = resolve_name("clicktower.flows.guards.usual_figures:compare_with_earlier")
        rows: list[WatchedFigure] = compare(config.store, today, config.drift)
    else:
        rows = [unknown(name, today, 0) for name in names_of(today)]
    write(config.store, today)
    return rows


def names_of(today: Observation) -> list[str]:
    """The figures of an observation."""
    return [*(name for name in FIGURES if name in today.values), *["scores"] * bool(today.scores)]


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

    def see(settings: str, **figures: float) -> None:
        values.update(figures)
        settings_of.update(dict.fromkeys(figures, settings))

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
        ledger, counts = Ledger(**shards["ledger"]), shards["counts"]
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
        key=key_of(config, date, day), when=date if dated else ingested.created, dated=dated, values=values,
        asked=settings_of,
        num_days=num_days, scores=tuple(points(scores)), num_scores=len(scores),
    )  # fmt: skip


def key_of(config: PipelineConfig, date: str, day: Mapping[str, Any]) -> str:
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


def write(store: str, today: Observation) -> None:
    """Write an observation. Further values of an earlier run with the same key stay: a run may have ended early."""
    if recorded := read(store, today.key):
        today = replace(
            today,
            values={**recorded.values, **today.values},
            asked={**recorded.asked, **today.asked},
            num_days=today.num_days if "pairs" in today.values else recorded.num_days,
            scores=today.scores or recorded.scores,
            num_scores=today.num_scores or recorded.num_scores,
        )
    content = json.dumps({"schema_version": SCHEMA_VERSION, **asdict(today)}, indent=1, allow_nan=False).encode()
    storage.write_atomic(storage.join(store, FOLDER, f"{today.key}.json"), content)


def read(store: str, key: str) -> Observation | None:
    uri = storage.join(store, FOLDER, f"{key}.json")
    try:
        value = from_bytes(storage.read_bytes(uri))
        require_major(uri, value.pop("schema_version"), SCHEMA_VERSION)
        value |= {"scores": tuple(value["scores"])}
        return TypeAdapter(Observation).validate_python(value)  # a later version may have more fields
    except (ValueError, KeyError, TypeError, FileNotFoundError):
        return None


def unknown(name: str, today: Observation, count: int) -> WatchedFigure:
    """A figure whose usual value so few earlier observations do not give."""
    unit = unit_of(today).removesuffix("s" if count < 2 else "")
    basis = f"only {count} earlier {unit}" if count else f"no earlier {unit}"
    if name == "scores" and today.num_scores < MIN_SCORES:
        basis = f"fewer than {MIN_SCORES} queries"
    return WatchedFigure(figure=name, words=FIGURES[name].words, value=shown(name, today), basis=basis)


def unit_of(today: Observation) -> str:
    return "days" if today.dated else "runs"


_FORMATS: Mapping[Kind, str] = {"times": ",.0f", "points": ".2%", "drop": ".3f", "distribution": ".2f"}


def shown(name: str, today: Observation) -> str:
    """A figure of an observation as a person reads it."""
    return f"median {median(today.scores):.3f}" if name == "scores" else as_read(FIGURES[name], today.values[name])


def as_read(figure: Figure, value: float) -> str:
    return f"{value:{_FORMATS[figure.kind]}}"
