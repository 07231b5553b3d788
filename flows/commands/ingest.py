"""clicktower ingest"""

from typing import Annotated

from cyclopts import Parameter

from flows.config.toml_file import with_fields
from flows.show import console, present


def ingest(
    logs: Annotated[list[str], Parameter(negative=())],
    *,
    into: str,
    date: str | None = None,
    format: str = "ubi",
    mapping: str | None = None,
    person_key: str | None = None,
    renew_key: bool = False,
    replace_day: bool = False,
    set: list[str] | None = None,
    beam_options: list[str] | None = None,
    json: bool = False,
) -> None:
    """Read a search log into a private daily aggregate.

    Drops exact repeats, bots and empty queries, joins searches and events, and
    counts people by keyed hashes. Every input line has one fate in the ledger.
    Unreadable lines are listed as file, offset and reason.

        clicktower ingest logs/2026-09-01/*.ndjson.gz --date 2026-09-01 --into store
        clicktower ingest aol/*.txt.gz --format delimited --mapping aol.toml --into store
        clicktower ingest logs/ --into store -- --direct_running_mode=multi_processing --direct_num_workers=2

    Parameters
    ----------
    logs
        Files, patterns, folders or URIs (s3://, gs://) of the log, plain or compressed with gzip or zstd.
    into
        The store: a folder or URI that holds the output of all stages.
    date
        The day of the log (2026-09-01). Ingest a late file alone, with the same date: it makes a new version of that
        day. A file that has grown replaces what it was before.
    format
        The format of the log: ubi (OpenSearch User Behavior Insights 1.0-1.3, JSON lines), orcas (TSV of query id,
        query, document, url), or delimited, jsonl, parquet, whose columns a mapping names.
    mapping
        TOML file that says what the columns are (docs/data.md has examples). For ubi: which actions are clicks.
    person_key
        File with the key that people are hashed by; by default one is made in the store's private folder.
    renew_key
        If the store's key has expired, make a new one. This begins a new window, which cannot be combined with the
        old one.
    replace_day
        Make the date from these files alone; whatever it was made from before is superseded.
    set
        field=value for any field of the ingest settings; may be repeated.
    beam_options
        Options of the Beam runner; write them after a bare `--`.
    json
        Print the result as one JSON object; progress goes to stderr.
    """
    from dataclasses import asdict
    from json import dumps

    from beam_jobs.engine.engine_options import with_engines
    from beam_jobs.ingest.ingest_stage import IngestConfig
    from beam_jobs.ingest.ingest_stage import ingest as run
    from beam_jobs.sources.mapping import read_mapping
    from flows.config.settings import Settings
    from flows.show.present import day_of

    fields = [*(set or []), f"format={format}"]
    fields += [f"mapping={dumps(asdict(read_mapping(mapping)))}"] if mapping else []
    fields += [f"person_key={person_key}"] if person_key else []
    fields += [f"date={date}"] if date else []
    fields += ["renew_key=true"] if renew_key else []
    fields += ["replace_day=true"] if replace_day else []
    config = with_fields(IngestConfig(), fields)
    with console.progress_bar("ingest") as progress:
        result = run(
            logs,
            store=into,
            config=config,
            beam_options=with_engines(beam_options or (), Settings().engines),
            progress=progress,
        )
    console.emit(result.to_json() | day_of(into, result), json, present.stage_with_details)
