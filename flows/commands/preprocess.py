"""clicktower simulate, ingest, erase, build, build-labelled, judgments: from a log to shards and judgments."""

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from getpass import getpass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from clicktower.flows.commands.options import Documents, Into, Json, Set
from clicktower.flows.commands.standard_input import log_files
from clicktower.flows.config.toml_file import read_toml, with_options
from clicktower.flows.show import console, present
from clicktower.flows.show.console import errors, output, plain
from clicktower.schemas import storage
from clicktower.schemas.errors import UsageError
from clicktower.schemas.stage import StageResult
from clicktower.schemas.text_file import decoded, lines

if TYPE_CHECKING:
    from clicktower.beam_jobs.ingest.days import Window
    from clicktower.beam_jobs.ingest.erase import Erasure


def simulate(
    out: str, *, searches: int | None = None, seed: int | None = None, set: Set = None, json: Json = False
) -> None:
    """Make a search log with known truth: documents, searches, clicks, bots, noise, judgments.

    Everything made from it is labelled simulated.

        clicktower simulate demo-data --searches 100000 --seed 7

    Args:
        out: A new folder for the log, the documents, the judgments and the truth (who searched, the fate of each line).
        searches: The number of searches by people and bots, by default 30,000; the log has about ten lines per search.
        seed: The same seed makes the same bytes; by default 0.
    """
    from clicktower.flows.simulation import write_simulation
    from clicktower.flows.simulation.simulation_config import SimulationConfig

    config = with_options(SimulationConfig(), {"num_searches": searches, "seed": seed}, set)
    with console.progress_bar("simulate") as progress:
        result = write_simulation.simulate(out, config=config, progress=progress)
    console.emit({"stage": "simulate", **result}, json, present.stage_with_details)


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
        from clicktower.beam_jobs.engine.engine_options import with_engines
        from clicktower.flows.config.settings import Settings

        return with_engines(self.beam_options or (), Settings().engines)

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


def read_client_ids(client_id: str | None, file: str | None) -> list[str]:
    """The ids, each once; quotes as CSV writes them around an id are no part of it. `client_id` may only be `-`, for
    stdin. Raises UsageError.
    """
    if client_id is not None and client_id != "-":
        raise UsageError(
            "A client id stands on the command line: the shell's history and the list of processes would keep it.",
            "Write `--client-id -` and give the id on stdin, or use --client-ids-file; and clear your history.",
        )
    if (client_id is None) == (file is None):
        raise UsageError(
            "The client ids to erase must come from one place.",
            "Give either `--client-id -` (stdin) or `--client-ids-file FILE`.",
        )
    try:
        if file is not None:
            content = storage.read_bytes(file)
        elif sys.stdin.isatty():
            content = getpass("client id (not shown): ").encode()
        else:
            content = sys.stdin.buffer.read()
    except FileNotFoundError:
        raise UsageError(f"There is no file of client ids {file}.", "Check the path.") from None
    given = [line.strip() for _, line in lines(decoded(content, file or "The text on stdin"))]
    is_quoted = [len(line) > 1 and line[0] == line[-1] == '"' for line in given]
    bare = [line[1:-1].replace('""', '"') if quoted else line for line, quoted in zip(given, is_quoted, strict=True)]
    ids = list(dict.fromkeys(filter(None, bare)))
    if not ids:
        raise UsageError("There is no client id to erase.", "Give one client id per line.")
    return ids


def erase(
    *,
    store: str,
    client_id: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    client_ids_file: str | None = None,
    person_key: str | None = None,
    json: Json = False,
) -> None:
    """Erase people, on their request, from the private days of a store.

    The ids are read from a file or from stdin, never from the command line,
    which other users of the machine and the shell's history can see. Queries
    that only these people typed are removed; from all others their hash is
    removed. Reports which shards and models were made before.

    The people are put on a private list first (STORE/private/erased), by which
    every later ingest drops their lines, whatever log it reads. Hashes of the
    log's lines stay, until the key of their window is deleted.

        clicktower erase --store store --client-id -
        clicktower erase --store store --client-ids-file ids.txt

    Args:
        store: The store whose days are changed.
        client_id: `-`: read client ids, as the log spells them, from stdin, one per line (not echoed on a terminal).
            Case counts; spaces, invisible characters and a `.0` at the end do not.
        client_ids_file: A file with one client id per line.
        person_key: The key file that logs were ingested with, if it was not the store's own.
    """
    from clicktower.beam_jobs.ingest import erase

    client_ids = read_client_ids(client_id, client_ids_file)
    with console.progress_bar("erase") as progress:
        erasure = erase.erase(client_ids, store=store, person_key=person_key, progress=progress)
    console.emit(erasure_json(store, erasure), json, show)


def erasure_json(store: str, erasure: "Erasure") -> dict[str, Any]:
    """The JSON object of an erasure. `reused`: there was nothing to change."""
    return {
        "stage": "erase",
        "digest": "",  # an erasure has no digest: one would identify the person
        "path": store,
        "reused": not erasure.num_ingests,
        "counts": {
            "ids": erasure.num_ids,
            "ids_found": erasure.num_found,
            "ingests_changed": erasure.num_ingests,
            "queries_removed": erasure.num_queries,
            "queries_with_one_person_less": erasure.num_sets,
            "lines_removed": erasure.num_lines,
        },
        "days": dict(erasure.dates),
        "without_key": list(erasure.keyless),
        "unfinished": list(erasure.unfinished),
        "made_before": [asdict(output_made) for output_made in erasure.made_before],
    }


def show(result: dict[str, Any]) -> None:
    """What was removed, what could not be, and what was made before."""
    counts = result["counts"]
    if result["reused"]:
        present.stage_line("erase", "nothing to remove: no day whose key is there holds these people")
    else:
        present.stage_line(
            "erase",
            f"{counts['queries_removed']:,} queries that nobody else typed are removed"
            f" ({counts['lines_removed']:,} lines), {counts['queries_with_one_person_less']:,} count fewer people,"
            f" in {counts['ingests_changed']:,} ingests",
        )
    unknown = counts["ids"] - counts["ids_found"]
    output.print(
        f"Ids found in the days: {counts['ids_found']:,} of {counts['ids']:,}."
        + (f" {unknown:,} are not, or not any more: compare their spelling with the log's." if unknown else "")
    )
    output.print(f"Listed in {plain(result['path'])}/private/erased: later ingests drop their lines.", soft_wrap=True)
    for date, version in result["days"].items():
        output.print(f"{date} is now version {version}")
    _list("Cannot be changed any more, since the key of their window is gone:", result["without_key"])
    _list("Left behind by ingests that did not finish; run them again, or remove these folders:", result["unfinished"])
    earlier_outputs = [
        f"{output_made['stage']:<9} {output_made['path']} ({output_made['created']})"
        for output_made in result["made_before"]
    ]
    _list(
        "Made before from days that an erasure has changed since; build, train and publish again, then remove:",
        earlier_outputs,
    )
    errors.print(
        "[dim]Raw logs, and copies of the store, are not touched: remove the person from them too. Keyed hashes of the"
        " log's lines stay (lines.arrow), to recognise a log that comes again; once the key of their window is deleted,"
        " they mean nothing, and the list under that key neither.[/]"
    )


def _list(title: str, lines: list[str]) -> None:
    if lines:
        output.print(f"\n{title}")
        for line in lines:
            output.print(f"  {plain(line)}", soft_wrap=True)


def build(
    *,
    days: Annotated[list[str], Parameter(consume_multiple=True)],
    documents: Documents,
    dates: WindowFlags = WindowFlags(),
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


def build_labelled(
    files: Annotated[list[str], Parameter(negative=())],
    *,
    dev: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    first: str | None = None,
    second: str | None = None,
    text: str | None = None,
    label: str | None = None,
    no_header: bool = False,
    delimiter: str | None = None,
    mapping: str | None = None,
    format: Literal["delimited", "jsonl", "parquet"] | None = None,
    label_kind: Literal["class", "value"] | None = None,
    published: Literal["snli", "quora", "quora-bimpm", "yelp"] | None = None,
    flags: StageFlags,
) -> None:
    """Turn labelled pairs (text, text, label) or labelled texts (text, label) into
    shards with the words and texts of click shards.

    No sentence is on both sides of the split: pairs link sentences, so connected
    components are held out as a whole, by a keyed hash. Every line has one fate
    in the ledger.

        clicktower build-labelled questions.tsv --first 2 --second 3 --label 1 --no-header --into store
        clicktower build-labelled train.csv --dev dev.csv --delimiter , --first premise --second hypothesis \\
            --label gold --into store
        clicktower build-labelled scored.jsonl --first a --second b --label score --label-kind value --into store
        clicktower build-labelled reviews.parquet --text review --label stars --into store
        clicktower build-labelled snli_1.0_train.jsonl --dev snli_1.0_dev.jsonl --published snli --into store

    Args:
        files: Files, patterns, folders or URIs: delimited text, JSON lines (plain or compressed with gzip or zstd) or
            Parquet.
        dev: Files to hold out, instead of a share of `files`; lines of `files` that share a sentence with them are
            dropped, unless you --set keep_shared=true, as --published quora-bimpm does.
        first: The column of a pair's first text: a name, a dotted path into JSON, or a number from 1.
        second: The column of its second text.
        text: The column of the text, where a line has one text only.
        label: The column of the label.
        no_header: The first line of delimited text is already a row; its columns are then numbers.
        delimiter: The delimiter of delimited text, if it is not a tab.
        mapping: A TOML file that says all this, instead of the flags (docs/model.md has an example).
        format: The format of the files; by default it follows from the ending of the first file's name.
        label_kind: class (the default): a name or number from a fixed set; value: a real number (--set lowest=0 --set
            highest=5 sets its bounds).
        published: The files are a published data set's original ones, instead of naming columns (docs/model.md).
    """
    from clicktower.beam_jobs.labelled import labelled_stage
    from clicktower.beam_jobs.labelled.labelled_rows import LabelledColumns, LabelledConfig, LabelledMapping, format_of
    from clicktower.beam_jobs.labelled.labelled_stage import PUBLISHED

    columns = {"first": first, "second": second, "text": text, "label": label}
    named = {name: _column(column) for name, column in columns.items() if column is not None}
    by_flags = named or no_header or delimiter
    if (mapping and by_flags) or (published and (by_flags or mapping or format or label_kind)):
        raise UsageError(
            f"The columns are named by {published or mapping}, and also by flags.", "Use one or the other."
        )
    if published:
        config = PUBLISHED[published]
    else:
        mapping_of_columns = (
            read_toml(mapping, LabelledMapping, what="mapping", see="docs/model.md")
            if mapping
            else LabelledMapping(columns=LabelledColumns(**named), header=not no_header, delimiter=delimiter or "\t")
        )
        config = LabelledConfig(mapping=mapping_of_columns, format=format or format_of(files[0]))
    options: dict[str, Any] = {"mapping.delimiter": delimiter, "mapping.header": False if no_header else None}
    options |= {"format": format, "label": label_kind} | {f"mapping.columns.{name}": named[name] for name in named}
    config = with_options(config, options, flags.set)
    result = flags.run("build-labelled", labelled_stage.build_labelled_shards, files, config=config, dev=dev or ())
    console.emit(result.to_json(), flags.json, present.stage_with_details)


def _column(name: str) -> str | int:
    return int(name) if name.isdecimal() else name


def judgments(
    *,
    days: Annotated[list[str], Parameter(consume_multiple=True)],
    dates: WindowFlags = WindowFlags(),
    k: int | None = None,
    trained_on: str | None = None,
    min_impressions: int | None = None,
    flags: StageFlags,
) -> None:
    """Derive graded judgments from the clicks of a later period, corrected for where
    documents were shown.

    Writes queries.tsv and qrels.txt, which `evaluate` takes, logged.run, the ranking
    that was shown, the propensities of ranks, and lists for OpenSearch's Search
    Relevance Workbench. They are labelled click-derived, and so is every evaluation
    with them.

        clicktower judgments --days store --from 2026-10-01 --to 2026-10-14 --trained-on store/build/DIGEST --into store

    Args:
        days: A store, or folders that `ingest` printed, as in `build`: days after those of training.
        k: How many distinct people must have issued a query; by default 5.
        trained_on: The folder of a build; days that it was made from, or that are not later, are refused.
        min_impressions: How often a document must have been shown for a query to get a grade; by default 10.
    """
    from clicktower.beam_jobs.judgments import judgments_stage
    from clicktower.beam_jobs.judgments.judge_clicks import JudgmentsConfig

    config = with_options(JudgmentsConfig(), {"k": k, "min_impressions": min_impressions}, flags.set)
    more = {"window": dates.window(), "trained_on": trained_on}
    result = flags.run("judgments", judgments_stage.derive_judgments, days, config=config, **more)
    console.emit(result.to_json(), flags.json, present.stage_with_details)
