"""pipeline.toml -> PipelineConfig: inputs, the settings of each stage, and where the release goes."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from pkgutil import resolve_name
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from clicktower.beam_jobs.build.build_stage import BuildConfig
from clicktower.beam_jobs.ingest.days import parse_date
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig
from clicktower.beam_jobs.ingest.person_key import MAX_OVERLAP_DAYS
from clicktower.beam_jobs.sources import log_files
from clicktower.flows.config.guard_rules import DriftRules, KeepRules, PromotionRules, PublishConfig
from clicktower.flows.config.settings import Surroundings
from clicktower.flows.config.toml_file import RecipeFields, checking, is_file, read_toml, recipe_named
from clicktower.schemas import storage
from clicktower.schemas.content_filters import adult_list
from clicktower.schemas.documents import read_documents, require_documents
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.section import (
    DEFAULT_LANGUAGE,
    Count,
    Language,
    Natural,
    Seed,
    Uri,
    beside_file,
    changed,
    section,
)
from clicktower.schemas.stage import open_result
from clicktower.training.evaluation.row import EvaluateConfig
from clicktower.training.model.objective_settings import Clicks, Fixed
from clicktower.training.model.recipe import DEFAULT, Compute, Recipe, Sources, may_be_large
from clicktower.training.trainer.job import completed
from clicktower.training.trainer.launch import require_sum

# A recipe's name, or a TOML file.
RecipeName = Annotated[str, AfterValidator(lambda name, info: beside_file(name, info) if is_file(name) else name)]
LIVE = "live"
RENEWAL = {"person_key", "renew_key", "key_overlap"}  # each says how keys of people are renewed, or that they are not
StartName = Annotated[str, AfterValidator(lambda name, info: name if name == LIVE else beside_file(name, info))]
StageName = Literal["ingest", "build", "train", "evaluate", "compare", "publish"]


class LateLog(StageError):
    """The log of a date is not there yet. The same run succeeds when it is."""


@section
class LogSection:
    """The log.

    Args:
        files: Files, patterns, folders or URIs; {date} is the data date of a scheduled run.
        format: The format of the log, here or in [ingest].
        date: The day of the log (ISO 8601), if there is no {date} in `files`.
        wait_minutes: How long a run waits for a late log.
    """

    files: Annotated[tuple[Uri, ...], Field(min_length=1)]
    format: str | None = None
    date: str | None = None
    wait_minutes: Annotated[float, Field(ge=0)] = 0.0


@section
class WindowSection:
    """The dates of the store that a dated run trains on.

    Args:
        last: So many days up to the data date; without it all.
        allow_missing_days: How many dates within a window may have no day; true for any number.
    """

    last: Count | None = None
    allow_missing_days: bool | Natural = False


@section
class DocumentsSection:
    """What is searched.

    Args:
        file: `id<TAB>title` lines, or CSV, JSON lines or Parquet with id and title.
        language: The language of the titles' terms, for `evaluate`, `compare` and `publish` (docs/model.md).
    """

    file: Uri
    language: Language = DEFAULT_LANGUAGE


@section
class JudgmentsSection:
    """What the model is evaluated on; these queries are kept out of training.

    Args:
        queries: Lines of `id<TAB>text`.
        qrels: TREC format: query id, 0, document id, grade.
        frequencies: `id<TAB>how often it was asked`, for the slices head, torso and tail.
    """

    queries: Uri
    qrels: Uri
    frequencies: Uri | None = None


@section
class TrainSection(Compute, Sources):
    """What `train` takes. Where it computes is that of `compare` too.

    Args:
        recipe: A recipe's name, or a TOML file such as a sweep's best.
        start: Another training's folder, or "live", the model of the live release (if that has the same shards, what it
            started from); by default random numbers.
        set: Fields of the recipe, as of the command `train`.
    """

    recipe: RecipeName = DEFAULT
    start: StartName | None = None
    set: RecipeFields = field(default_factory=dict)


@section
class CompareSection:
    """The rows of the paper's table on your data.

    Args:
        rows: The names of rows; by default all.
        against: The row that all others are tested against.
        seeds: Seeds of each tower; by default its recipe's.
        logged: A TREC run of the ranking that your search engine showed.
        frequencies: `id<TAB>how often it was asked`, for the slices head, torso and tail.
        set: Fields of every tower's recipe.
    """

    rows: Annotated[tuple[str, ...], Field(min_length=1)] = ()
    against: str = "bm25"
    seeds: Annotated[tuple[Seed, ...], Field(min_length=1)] = ()
    logged: Uri | None = None
    frequencies: Uri | None = None
    set: RecipeFields = field(default_factory=dict)


@section
class PublishSection:
    """Where the release goes.

    Args:
        to: A folder or URI.
        set: Fields of the command `publish`.
    """

    to: Uri = Field("release", validate_default=True)
    set: PublishConfig = field(default_factory=PublishConfig)


@section
class MetricsSection:
    """Where the figures of a run go.

    Args:
        textfile: A file for Prometheus's node_exporter, written at the end of each run (flows.metrics).
    """

    textfile: Uri


@section
class LimitsSection:
    """How often a deployed run retries a stage, and how long a stage may take in any run.

    Args:
        retries: Of a stage that a signal ended, or that lost its engine or its disk; nothing else.
        retry_seconds: The wait before each retry.
        timeout_minutes: By stage, {"train": 600}; other stages have no limit.
    """

    retries: Natural = 2
    retry_seconds: Annotated[float, Field(ge=0)] = 60.0
    timeout_minutes: Mapping[StageName, Annotated[float, Field(gt=0)]] = field(default_factory=dict)


def _shared(tables: Any) -> Any:
    """A file's tables, and in [ingest] what others say for it: the log's format, and keys of people that overlap for
    the window, unless [ingest] says how they are renewed. For a window that is too long, or none, nothing renews them.

    Raises UsageError where the same is said twice and differs.
    """

    def table(name: str, tables: Any = tables) -> Mapping[str, Any]:
        value = tables.get(name) if isinstance(tables, Mapping) else None
        return value if isinstance(value, Mapping) else {}

    ingest = dict(table("ingest"))
    for name, fields in (("evaluate", table("evaluate")), ("publish.set", table("set", table("publish")))):
        if "language" in fields:
            raise UsageError(
                f"[{name}]: the language is that of the documents.",
                f'Set language = "{fields["language"]}" in [documents] instead.',
            )
    if (form := table("log").get("format")) is not None and ingest.setdefault("format", form) != form:
        raise UsageError(
            "The field format is set to different values, in [log] and in [ingest].", "Leave out one of the two."
        )
    last = str(table("window").get("last", ""))
    if last.isdigit() and 0 < int(last) <= MAX_OVERLAP_DAYS and not RENEWAL & ingest.keys():
        ingest["key_overlap"] = last
    return {**tables, "ingest": ingest} if ingest != table("ingest") else tables


@section
class PipelineConfig:
    """One run, as a pipeline.toml describes it.

    Relative paths are relative to the TOML file's folder. `{date}` in `log.files` is the data date of a scheduled run,
    and `log.date` a fixed one; with either the log is dated: every run ingests one date, and `build` unites the days of
    the store, or the `window.last` of them up to that date.

    Args:
        log: The log.
        documents: What is searched.
        judgments: What the model is evaluated on.
        store: The folder or URI that holds the output of all stages.
        report: The page about the run.
        title: The title of that page.
        mlflow: A folder or a tracking server that gets each model's settings, curves, NDCG and report.
        window: The dates of a dated run.
        ingest: Fields of the command `ingest`.
        build: Fields of the command `build`.
        train: How the model is trained.
        evaluate: Fields of the command `evaluate`.
        compare: The comparison; without it the model is only compared with BM25 and a random order.
        promotion: What a candidate must show before it goes live.
        drift: Which unusual figures warn or stop.
        publish: Where the release goes.
        limits: Retries and timeouts.
        beam_options: Options of the Beam runner.
        keep: What stays in the store after a run; without it nothing is removed.
        metrics: Where figures about the run go.
    """

    log: LogSection
    documents: DocumentsSection
    judgments: JudgmentsSection
    store: Uri = Field("store", validate_default=True)
    report: Uri = Field("report.html", validate_default=True)
    title: str = "clicktower run"
    mlflow: Uri | None = None
    window: WindowSection = field(default_factory=WindowSection)
    ingest: IngestConfig = field(default_factory=IngestConfig)
    build: BuildConfig = field(default_factory=BuildConfig)
    train: TrainSection = field(default_factory=TrainSection)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    compare: CompareSection | None = None
    promotion: PromotionRules = field(default_factory=PromotionRules)
    drift: DriftRules = field(default_factory=DriftRules)
    publish: PublishSection = Field(default_factory=dict, validate_default=True)
    limits: LimitsSection = field(default_factory=LimitsSection)
    keep: KeepRules | None = None
    metrics: MetricsSection | None = None
    beam_options: tuple[str, ...] = ()
    share = model_validator(mode="before")(_shared)


def read_pipeline(path: str, assignments: Sequence[str] = ()) -> PipelineConfig:
    """The run that a TOML file describes, with absolute paths; `assignments`: fields that replace the file's, as
    `section.field=value`.

    Raises UsageError: no such file, not TOML, an unknown or missing field, a value of the wrong type, or one that a
    stage would refuse.
    """
    see = "`clicktower run --help` and the commented pipeline.toml of the repository"
    config = read_toml(path, PipelineConfig, subject="pipeline", see=see, assignments=assignments)
    if is_dated(config) or config.window != WindowSection():
        resolve_name("clicktower.flows.config.optional_sections:check_dates")(config, path)
    _check_settings(config, path)
    return config


def _check_settings(config: PipelineConfig, path: str) -> None:
    """Raise UsageError before any stage starts if a stage would refuse its settings."""
    with checking(f"{path}, [train.set]: "):
        recipe = changed(recipe_named(config.train.recipe)[0], config.train.set)
    with checking(f"{path}, [train]: "):
        _check_training(config.train, recipe, config.build)
    with checking(f"{path}, [drift]: "):
        for date in config.drift.accept:
            parse_date(date)
    measures = config.evaluate.rules.measures
    with checking(f"{path}, [promotion]: "):
        if config.promotion.measure not in measures:
            raise UsageError(
                f"nothing measures {config.promotion.measure}.", f"Set measure to one of {', '.join(measures)}."
            )
    if config.compare:
        with checking(f"{path}, [compare]: "):
            resolve_name("clicktower.flows.config.optional_sections:check_comparison")(config.compare)


def _check_training(section: TrainSection, recipe: Recipe, build: BuildConfig) -> None:
    """Raise UsageError for a recipe that does not fit the shards, the workers or the memory of this machine."""
    if not isinstance(recipe.objective, Clicks):
        raise UsageError(
            f"{recipe.name} learns by the objective {recipe.objective.kind}, and a pipeline trains on clicks.",
            "Take a recipe of clicks; `clicktower train` takes the others.",
        )
    wanted = recipe.clicks.num_negatives
    if isinstance(recipe.clicks.negatives, Fixed) and wanted > build.num_negatives:
        raise UsageError(
            f"{recipe.name} reads {wanted} fixed negatives of each pair, and [build] makes {build.num_negatives}.",
            f"Set num_negatives = {wanted} in [build], or fewer in [train.set].",
        )
    require_sum(recipe, section)
    if may_be_large(recipe, build.table_rows) and not Surroundings().ray_address:
        from clicktower.training.model.parameters import layout_of, require_memory  # torch takes seconds to load

        number = section.workers if section.workers != "auto" else 1
        require_memory(layout_of(recipe, build.table_rows), number)


def is_dated(config: PipelineConfig) -> bool:
    """Whether a run's log is of one date."""
    return config.log.date is not None or _is_of_dates(config)


def dated(files: tuple[str, ...], date: str) -> tuple[str, ...]:
    """The log files of a data date (ISO 8601): `{date}` filled in."""
    return tuple(name.replace("{date}", date) for name in files)


def require_log(config: PipelineConfig, date: str) -> None:
    """Raise LateLog for a date whose log is not there yet. A log without dates cannot be late (`check_inputs`)."""
    if (missing := _missing_logs(config, date)) and _is_of_dates(config):
        raise LateLog(
            f"The log of {date} is not there: nothing is at {', '.join(missing)}.",
            "Run it again when it is there (clicktower backfill PIPELINE.toml --missing reads all logs that came late);"
            " [log] wait_minutes lets a run wait. If it lies elsewhere, mend [log] files.",
        )


def _missing_logs(config: PipelineConfig, date: str) -> list[str]:
    tables: log_files.Tables = {}
    return [name for name in dated(config.log.files, date) if not log_files.expand(name, tables).tables]


def _is_of_dates(config: PipelineConfig) -> bool:
    return any("{date}" in name for name in config.log.files)


def check_inputs(config: PipelineConfig, date: str) -> None:
    """Raise UsageError naming all missing inputs, except a log that may come late, and for any that a stage would
    refuse, so that a typing error costs seconds and not a night.
    """
    missing = [] if _is_of_dates(config) else _missing_logs(config, date)
    missing += [name for name in _named_inputs(config) if not storage.exists(name)]
    if missing:
        raise UsageError(
            f"Nothing is at {', '.join(missing)}: the run would fail after work that could not be used.",
            "Check the paths in the TOML file; they are relative to its folder.",
        )
    if files := [name for name in (config.store, config.publish.to) if storage.size_bytes(name) is not None]:
        raise UsageError(f"A file is at {', '.join(files)}, where a folder belongs.", "Choose another folder.")
    with checking():
        _check_contents(config)


def _check_contents(config: PipelineConfig) -> None:
    """Raise StageError for an input that a later stage would refuse."""
    section = config.train
    require_documents(config.documents.file)
    if config.publish.set.columns:
        read_documents(config.documents.file, config.publish.set.columns)
    adult_list(config.build.adult_list)
    base, word_vectors = recipe_named(section.recipe)
    recipe = completed(changed(base, section.set), section.word_vectors or word_vectors, section.teacher)
    if section.teacher:
        from clicktower.training.model.teacher import require_teacher, teacher_source

        require_teacher(teacher_source(section.teacher, recipe))
    if section.start and section.start != LIVE:
        open_result(section.start, "train")


def _named_inputs(config: PipelineConfig) -> Sequence[str]:
    """Every file and folder that must be there before a run, besides the log."""
    compare, train = config.compare, config.train
    names = [config.documents.file, config.judgments.queries, config.judgments.qrels, config.judgments.frequencies]
    names += [compare.logged, compare.frequencies] if compare else []
    names += [train.word_vectors, train.teacher, train.start if train.start != LIVE else None]
    names += [config.ingest.person_key, config.build.adult_list]
    return [name for name in names if name]
