"""pipeline.toml -> PipelineConfig: what a run reads, how each stage is set, where the release goes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from beam_jobs.build.build_config import BuildConfig
from beam_jobs.ingest.ingest_config import IngestConfig
from beam_jobs.ingest.windows import parse_date
from flows.config import toml_file
from flows.config.guard_rules import DriftRules, PromotionRules
from flows.config.recipe_file import recipe_named
from flows.releases.publish_config import PublishConfig
from schemas import storage
from schemas.errors import UsageError
from training.recipes.recipe import Recipe, flat

_STRICT = ConfigDict(extra="forbid")
STAGES = ("ingest", "build", "train", "evaluate", "compare", "publish")


@dataclass(frozen=True, kw_only=True)
class LogSection:
    files: tuple[str, ...]
    format: str = "ubi"
    date: str | None = None
    __pydantic_config__ = _STRICT


@dataclass(frozen=True, kw_only=True)
class WindowSection:
    last: int | None = None
    allow_missing_days: bool = False
    __pydantic_config__ = _STRICT


@dataclass(frozen=True, kw_only=True)
class DocumentsSection:
    file: str
    __pydantic_config__ = _STRICT


@dataclass(frozen=True, kw_only=True)
class JudgmentsSection:
    queries: str
    qrels: str
    frequencies: str | None = None  # how often each query was asked, to tell head, torso and tail
    __pydantic_config__ = _STRICT


@dataclass(frozen=True, kw_only=True)
class TrainSection:
    recipe: str = "lstm-96"
    word_vectors: str | None = None  # a file that words start from
    workers: int = 1
    threads: int | None = None
    set: Mapping[str, Any] = field(default_factory=dict)
    __pydantic_config__ = _STRICT


@dataclass(frozen=True, kw_only=True)
class CompareSection:
    """`rows`: by name, all of the table where it is empty. `set`: fields of every tower's recipe."""

    rows: tuple[str, ...] = ()
    against: str = "bm25"
    seeds: tuple[int, ...] = ()
    logged: str | None = None
    frequencies: str | None = None
    set: Mapping[str, Any] = field(default_factory=dict)
    __pydantic_config__ = _STRICT


@dataclass(frozen=True, kw_only=True)
class PublishSection:
    to: str = "release"
    set: Mapping[str, Any] = field(default_factory=dict)
    __pydantic_config__ = _STRICT


@dataclass(frozen=True, kw_only=True)
class LimitsSection:
    """Of a deployed run, but for the timeouts: how often a stage is tried again whose surroundings failed, and when.

    `timeout_minutes`: by stage, {"train": 600}; a stage without one may take as long as it likes.
    """

    retries: int = 2
    retry_seconds: float = 60.0
    timeout_minutes: Mapping[str, float] = field(default_factory=dict)
    __pydantic_config__ = _STRICT

    def __post_init__(self) -> None:
        if self.retries < 0 or self.retry_seconds < 0:
            raise ValueError("retries and retry_seconds must be 0 or more")
        if unknown := sorted(set(self.timeout_minutes) - set(STAGES)):
            raise ValueError(f"timeout_minutes names {', '.join(unknown)}; the stages are {', '.join(STAGES)}")
        if min(self.timeout_minutes.values(), default=1) <= 0:
            raise ValueError("timeout_minutes must be above 0")


@dataclass(frozen=True, kw_only=True)
class PipelineConfig:
    """One run. `ingest`, `build` and `evaluate` hold fields of those stages' configs, by name. Without `compare` the
    model is only set beside BM25 and a random order.

    Relative paths are relative to the TOML file's folder. `{date}` in `log.files` is the data date of a scheduled run,
    and `log.date` a fixed one; with either the log is dated: every run ingests one date, and `build` unites the days of
    the store, or the `window.last` of them up to that date.
    """

    log: LogSection
    documents: DocumentsSection
    judgments: JudgmentsSection
    store: str = "store"
    report: str = "report.html"
    title: str = "clicktower run"
    window: WindowSection = field(default_factory=WindowSection)
    ingest: Mapping[str, Any] = field(default_factory=dict)
    build: Mapping[str, Any] = field(default_factory=dict)
    train: TrainSection = field(default_factory=TrainSection)
    evaluate: Mapping[str, Any] = field(default_factory=dict)
    compare: CompareSection | None = None
    promotion: PromotionRules = field(default_factory=PromotionRules)
    drift: DriftRules = field(default_factory=DriftRules)
    publish: PublishSection = field(default_factory=PublishSection)
    limits: LimitsSection = field(default_factory=LimitsSection)
    beam_options: tuple[str, ...] = ()
    __pydantic_config__ = _STRICT


def read_pipeline(path: str) -> PipelineConfig:
    """The run that a TOML file describes, its paths made absolute.

    Raises UsageError: no such file, not TOML, an unknown or missing field, a value of the wrong type.
    """
    asked = f"the pipeline was to be read from {path}"
    config = toml_file.read_toml(path, PipelineConfig, what="pipeline", command="run")
    _check_settings(config, path)
    if config.log.date is not None:
        parse_date(config.log.date, asked)
    if config.window != WindowSection() and not is_dated(config):
        raise UsageError(
            asked=asked,
            found="it has a window, and its log has no date",
            do='write {date} into log.files, or set log.date = "2026-09-01"',
        )
    return _absolute(config, _beside(path))


def _check_settings(config: PipelineConfig, path: str) -> None:
    """Nothing. Raises UsageError where a stage would refuse what is set for it, before any is started."""
    recipe = config.train.recipe
    named, _ = recipe_named(_beside(path)(recipe) if recipe.endswith(".toml") else recipe)
    toml_file.check_fields(path, "ingest", {"format": config.log.format, **config.ingest}, IngestConfig())
    toml_file.check_fields(path, "build", config.build, BuildConfig())
    toml_file.check_fields(path, "train.set", config.train.set, named)
    toml_file.check_fields(path, "publish.set", config.publish.set, PublishConfig())
    if config.compare:  # each row has a recipe of its own, which may not take every value
        toml_file.check_names(path, "compare.set", flat(config.compare.set, Recipe), Recipe)
    if config.evaluate:
        from training.evaluate.evaluate_stage import EvaluateConfig  # which takes a second to import

        toml_file.check_fields(path, "evaluate", config.evaluate, EvaluateConfig())


def _beside(path: str) -> Callable[[str], str]:
    """Paths that the file at `path` names, as paths from the root."""
    base = Path(path).resolve().parent
    return lambda uri: toml_file.absolute(uri, base)


def _absolute(config: PipelineConfig, absolute: Callable[[str], str]) -> PipelineConfig:
    return PipelineConfig(
        log=replace(config.log, files=tuple(map(absolute, config.log.files))),
        documents=DocumentsSection(file=absolute(config.documents.file)),
        judgments=JudgmentsSection(
            queries=absolute(config.judgments.queries),
            qrels=absolute(config.judgments.qrels),
            frequencies=config.judgments.frequencies and absolute(config.judgments.frequencies),
        ),
        store=absolute(config.store),
        report=absolute(config.report),
        title=config.title,
        window=config.window,
        ingest=config.ingest,
        build=config.build,
        train=_absolute_train(config.train, absolute),
        evaluate=config.evaluate,
        compare=_absolute_compare(config.compare, absolute),
        promotion=config.promotion,
        drift=config.drift,
        publish=PublishSection(to=absolute(config.publish.to), set=config.publish.set),
        limits=config.limits,
        beam_options=config.beam_options,
    )


def _absolute_train(section: TrainSection, absolute: Callable[[str], str]) -> TrainSection:
    recipe = absolute(section.recipe) if section.recipe.endswith(".toml") else section.recipe
    vectors = section.word_vectors and absolute(section.word_vectors)
    return replace(section, recipe=recipe, word_vectors=vectors, set=flat(section.set, Recipe))


def _absolute_compare(section: CompareSection | None, absolute: Callable[[str], str]) -> CompareSection | None:
    if section is None:
        return None
    logged, frequencies = (uri and absolute(uri) for uri in (section.logged, section.frequencies))
    return replace(section, logged=logged, frequencies=frequencies, set=flat(section.set, Recipe))


def is_dated(config: PipelineConfig) -> bool:
    """Whether a run's log is of one date."""
    return config.log.date is not None or any("{date}" in name for name in config.log.files)


def dated(files: tuple[str, ...], date: str) -> tuple[str, ...]:
    """The log files of a data date (ISO 8601): `{date}` filled in."""
    return tuple(name.replace("{date}", date) for name in files)


def check_inputs(config: PipelineConfig, date: str) -> None:
    """Look at every input before the first stage starts, so that a typing error costs seconds and not a night.

    Raises UsageError naming all that is missing.
    """
    missing = [name for name in dated(config.log.files, date) if not storage.expand(name)]
    compared = (config.compare.logged, config.compare.frequencies) if config.compare else ()
    judged = (config.judgments.queries, config.judgments.qrels, config.judgments.frequencies)
    named = (config.documents.file, *filter(None, (*judged, *compared, config.train.word_vectors)))
    missing += [name for name in named if not storage.exists(name)]
    if missing:
        raise UsageError(
            asked="the run's inputs were looked up before it starts",
            found=f"nothing is at {', '.join(missing)}",
            follows="the run would fail after work that could not be used",
            do="check the paths in the TOML file; they are relative to its folder",
        )
