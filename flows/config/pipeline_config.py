"""pipeline.toml -> PipelineConfig: inputs, the settings of each stage, and where the release goes."""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from clicktower.beam_jobs.build.build_stage import BuildConfig
from clicktower.beam_jobs.ingest.days import parse_date
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig
from clicktower.beam_jobs.sources import log_files
from clicktower.flows.config.guard_rules import DriftRules, PromotionRules
from clicktower.flows.config.toml_file import (
    RecipeFields,
    Uri,
    beside_file,
    check_fields,
    check_names,
    is_file,
    read_toml,
    recipe_named,
)
from clicktower.flows.releases.release_folder import PublishConfig
from clicktower.schemas import storage
from clicktower.schemas.errors import UsageError
from clicktower.schemas.section import Natural, section
from clicktower.training.model.named_recipes import DEFAULT
from clicktower.training.model.recipe import Recipe

# A recipe's name, or a TOML file.
RecipeName = Annotated[str, AfterValidator(lambda name, info: beside_file(name, info) if is_file(name) else name)]
LIVE = "live"
StartName = Annotated[str, AfterValidator(lambda name, info: name if name == LIVE else beside_file(name, info))]
StageName = Literal["ingest", "build", "train", "evaluate", "compare", "publish"]


@section
class LogSection:
    files: tuple[Uri, ...]
    format: str = "ubi"
    date: str | None = None


@section
class WindowSection:
    last: int | None = None
    allow_missing_days: bool = False


@section
class DocumentsSection:
    file: Uri


@section
class JudgmentsSection:
    queries: Uri
    qrels: Uri
    frequencies: Uri | None = None  # how often each query was asked, for head, torso and tail


@section
class TrainSection:
    """What `train` takes. `start`: another training's folder, or "live", the model of the live release. `workers`,
    `min_workers`, `threads` and `device` are those of `compare` too.
    """

    recipe: RecipeName = DEFAULT
    word_vectors: Uri | None = None  # the file that words start from
    start: StartName | None = None
    teacher: Uri | None = None
    workers: int | Literal["auto"] = 1
    min_workers: int | None = None
    threads: int | None = None
    device: Literal["auto", "cpu", "cuda", "cuda-eager"] = "auto"
    set: RecipeFields = field(default_factory=dict)


@section
class CompareSection:
    """`rows`: names of rows, by default all. `set`: fields of every tower's recipe."""

    rows: tuple[str, ...] = ()
    against: str = "bm25"
    seeds: tuple[int, ...] = ()
    logged: Uri | None = None
    frequencies: Uri | None = None
    set: RecipeFields = field(default_factory=dict)


@section
class PublishSection:
    to: Uri = Field("release", validate_default=True)
    set: Mapping[str, Any] = field(default_factory=dict)


@section
class LimitsSection:
    """How often a deployed run retries a stage, and how long a stage may take in any run.

    `timeout_minutes`: by stage, {"train": 600}; other stages have no limit.
    """

    retries: Natural = 2
    retry_seconds: Annotated[float, Field(ge=0)] = 60.0
    timeout_minutes: Mapping[StageName, Annotated[float, Field(gt=0)]] = field(default_factory=dict)


@section
class PipelineConfig:
    """One run. `ingest`, `build` and `evaluate` hold fields of those stages' configs, by name. Without `compare` the
    model is only compared with BM25 and a random order.

    Relative paths are relative to the TOML file's folder. `{date}` in `log.files` is the data date of a scheduled run,
    and `log.date` a fixed one; with either the log is dated: every run ingests one date, and `build` unites the days of
    the store, or the `window.last` of them up to that date.
    """

    log: LogSection
    documents: DocumentsSection
    judgments: JudgmentsSection
    store: Uri = Field("store", validate_default=True)
    report: Uri = Field("report.html", validate_default=True)
    title: str = "clicktower run"
    mlflow: Uri | None = None  # a folder or a tracking server (flows.tracking)
    window: WindowSection = field(default_factory=WindowSection)
    ingest: Mapping[str, Any] = field(default_factory=dict)
    build: Mapping[str, Any] = field(default_factory=dict)
    train: TrainSection = field(default_factory=TrainSection)
    evaluate: Mapping[str, Any] = field(default_factory=dict)
    compare: CompareSection | None = None
    promotion: PromotionRules = field(default_factory=PromotionRules)
    drift: DriftRules = field(default_factory=DriftRules)
    publish: PublishSection = Field(default_factory=dict, validate_default=True)
    limits: LimitsSection = field(default_factory=LimitsSection)
    beam_options: tuple[str, ...] = ()


def read_pipeline(path: str) -> PipelineConfig:
    """The run that a TOML file describes, with absolute paths.

    Raises UsageError: no such file, not TOML, an unknown or missing field, a value of the wrong type.
    """
    see = "`clicktower run --help` and the commented pipeline.toml of the repository"
    config = read_toml(path, PipelineConfig, what="pipeline", see=see)
    _check_settings(config, path)
    if config.log.date is not None:
        parse_date(config.log.date)
    if config.window != WindowSection() and not is_dated(config):
        raise UsageError(
            f"The pipeline in {path} has a window, and its log has no date.",
            'Write {date} into log.files, or set log.date = "2026-09-01".',
        )
    return config


def _check_settings(config: PipelineConfig, path: str) -> None:
    """Raise UsageError before any stage starts if a stage would refuse its settings."""
    check_fields(path, "ingest", {"format": config.log.format, **config.ingest}, IngestConfig())
    check_fields(path, "build", config.build, BuildConfig())
    check_fields(path, "train.set", config.train.set, recipe_named(config.train.recipe)[0])
    check_fields(path, "publish.set", config.publish.set, PublishConfig())
    if config.compare:  # each row has a recipe of its own, which may refuse some values
        check_names(path, "compare.set", config.compare.set, Recipe)
    if config.evaluate:
        from clicktower.training.evaluation.evaluate_stage import EvaluateConfig  # its import takes a second

        check_fields(path, "evaluate", config.evaluate, EvaluateConfig())


def is_dated(config: PipelineConfig) -> bool:
    """Whether a run's log is of one date."""
    return config.log.date is not None or any("{date}" in name for name in config.log.files)


def dated(files: tuple[str, ...], date: str) -> tuple[str, ...]:
    """The log files of a data date (ISO 8601): `{date}` filled in."""
    return tuple(name.replace("{date}", date) for name in files)


def check_inputs(config: PipelineConfig, date: str) -> None:
    """Raise UsageError naming all missing inputs, so that a typing error costs seconds and not a night."""
    tables: log_files.Tables = {}
    missing = [name for name in dated(config.log.files, date) if not log_files.expand(name, tables).tables]
    compared = (config.compare.logged, config.compare.frequencies) if config.compare else ()
    judged = (config.judgments.queries, config.judgments.qrels, config.judgments.frequencies)
    named = (config.documents.file, *filter(None, (*judged, *compared, config.train.word_vectors)))
    missing += [name for name in named if not storage.exists(name)]
    if missing:
        raise UsageError(
            f"Nothing is at {', '.join(missing)}: the run would fail after work that could not be used.",
            "Check the paths in the TOML file; they are relative to its folder.",
        )
