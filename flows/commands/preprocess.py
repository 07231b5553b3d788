"""clicktower ingest, build: from a log to shards."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from clicktower.flows.commands.options import Documents, Into, Json, Set, log_files
from clicktower.flows.config.toml_file import read_toml, with_options
from clicktower.flows.show import console, present
from clicktower.schemas.stage import StageResult

if TYPE_CHECKING:
    from clicktower.beam_jobs.ingest.days import Window


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StageFlags:
    """What every stage on Beam takes.

    Args:
        beam_options: Options of the Beam runner; write them after a bare `--`.
    """

    into: Into
    set: Set = None
    beam_options: list[str] | None = None
    json: Json = False

    def engine_options(self) -> tuple[str, ...]:
        if not self.beam_options:
            return ()
        from clicktower.beam_jobs.engine.engines import with_engines
        from clicktower.flows.config.settings import Settings

        return with_engines(self.beam_options, Settings().engines)

    def run(self, name: str, stage: Callable[..., StageResult], *inputs: Any, **settings: Any) -> StageResult:
        """The result of a stage, while a bar shows how far it is."""
        with console.progress_bar(name) as progress:
            options = self.engine_options()
            return stage(*inputs, store=self.into, beam_options=options, progress=progress, **settings)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class WindowFlags:
    """The dates of a store that are read.

    Args:
        first: First date of the window (2026-09-01); by default the store's first.
        until: Last date of the window; by default the store's newest.
        last: The number of dates up to the last one, instead of a first one.
        allow_missing_days: Continue although the store has nothing for some dates of the window: for so many, or any
            number without one. The manifest names them.
    """

    first: Annotated[str | None, Parameter(name="--from")] = None
    until: Annotated[str | None, Parameter(name="--to")] = None
    last: int | None = None
    allow_missing_days: bool | int = False

    def window(self) -> "Window":
        from clicktower.beam_jobs.ingest.days import Window

        return Window(first=self.first, until=self.until, last=self.last, allow_missing=self.allow_missing_days)


ALL_DATES = WindowFlags()


def ingest(
    logs: Annotated[list[str], Parameter(negative=())],
    *,
    date: str | None = None,
    format: str | None = None,
    mapping: str | None = None,
    person_key: str | None = None,
    renew_key: bool = False,
    replace_day: bool = False,
    flags: StageFlags,
) -> None:
    """Read a search log into a private daily aggregate.

    Drops exact repeats, bots and empty queries, joins searches and events, and
    counts people by keyed hashes. Every input line has one fate in the ledger.
    Unreadable lines are listed as file, offset and reason.

        clicktower ingest logs/2026-09-01/*.ndjson.gz --date 2026-09-01 --into store
        clicktower ingest aol/*.txt.gz --format delimited --mapping aol.toml --into store
        clicktower ingest logs/ --into store -- --direct_running_mode=multi_processing --direct_num_workers=2

    Args:
        logs: Files, patterns, folders or URIs (s3://, gs://) of the log, plain or compressed with gzip or zstd; `-` for
            standard input.
        date: The day of the log (2026-09-01). Ingest a late file alone, with the same date: it makes a new version of
            that day. A file that has grown replaces what it was before.
        format: The format of the log: ubi (OpenSearch User Behavior Insights 1.0-1.3, JSON lines; the default), orcas
            (TSV of query id, query, document, url), or delimited, jsonl, parquet, whose columns a mapping names.
        mapping: TOML file that says what the columns are (docs/data.md has examples). For ubi: which actions are
            clicks.
        person_key: File with the key that people are hashed by; by default one is made in the store's private folder.
        renew_key: If the store's key has expired, make a new one. This begins a new window, which cannot be combined
            with the old one. `--set key_overlap=30` instead: keys renew themselves in time for windows of 30 days, and
            expired ones are removed.
        replace_day: Make the date from these files alone; whatever it was made from before is superseded.
    """
    from clicktower.beam_jobs.ingest import ingest_stage
    from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig
    from clicktower.beam_jobs.ingest.person_key import key_state
    from clicktower.beam_jobs.sources.mapping import Mapping
    from clicktower.flows.show.present import day_of

    options = {
        "format": format,
        "mapping": asdict(read_toml(mapping, Mapping, what="mapping", see="docs/data.md")) if mapping else None,
        "person_key": person_key or None,
        "date": date or None,
        "renew_key": renew_key or None,
        "replace_day": replace_day or None,
    }
    config = with_options(IngestConfig(), options, flags.set)
    with log_files(logs) as files:
        result = flags.run("ingest", ingest_stage.ingest_log, files, config=config)
    details = day_of(flags.into, result)
    if not config.person_key:
        details["person_key"] = key_state(flags.into, renews=bool(config.renew_key or config.key_overlap))
    console.emit(result.to_json() | details, flags.json, present.stage_with_details)


def build(
    *,
    days: Annotated[list[str], Parameter(consume_multiple=True)],
    documents: Documents,
    dates: WindowFlags = ALL_DATES,
    k: int | None = None,
    pool: Literal["documents", "clicked"] | None = None,
    judged_queries: str | None = None,
    adult_list: str | None = None,
    flags: StageFlags,
) -> None:
    """Turn daily aggregates and documents into training shards, behind the privacy
    gate.

    A query leaves the private aggregate only if at least k distinct people
    issued it. Clicked titles become pairs, each with n random unclicked titles;
    a keyed share of the queries is held out.

        clicktower build --days store --documents documents.tsv --k 5 --into store
        clicktower build --days store --last 30 --documents documents.tsv --into store

    Args:
        days: A store, or folders that `ingest` printed. For a store: the newest version of every date, and everything
            ingested without a date; with --from, --to or --last only the dates of that window.
        k: How many distinct people must have issued a query, by default 5. 1 is for a team that trains on its own log
            in private.
        pool: What unclicked titles are drawn from: all documents, by default, or only those that training pairs
            clicked.
        judged_queries: Queries (`id<TAB>text`) that are kept out of training, because the model is evaluated on them.
        adult_list: Your own list of adult words, one per line, instead of the built-in one.
    """
    from clicktower.beam_jobs.build import build_stage
    from clicktower.beam_jobs.build.build_stage import BuildConfig

    config = with_options(BuildConfig(), {"k": k, "pool": pool, "adult_list": adult_list or None}, flags.set)
    more = {"window": dates.window(), "judged_queries": judged_queries}
    result = flags.run("build", build_stage.build_shards, days, documents, config=config, **more)
    console.emit(result.to_json(), flags.json, present.stage_with_details)
