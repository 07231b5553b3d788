"""clicktower ingest"""

from typing import Annotated

from cyclopts import Parameter

from flows import console, present
from flows.set_fields import with_fields


def ingest(
    logs: Annotated[list[str], Parameter(negative=())],
    *,
    into: str,
    format: str = "ubi",
    person_key: str | None = None,
    adult_list: str | None = None,
    set: list[str] | None = None,
    beam_options: list[str] | None = None,
    json: bool = False,
) -> None:
    """Read a search log into a private daily aggregate.

    Drops exact repeats, bots, adult, spam and empty queries, joins searches and
    events, and counts people by keyed hashes. Every input line has one fate in
    the ledger. Unreadable lines are listed as file, offset and reason.

        clicktower ingest logs/2026-09-01/*.ndjson.gz --into store
        clicktower ingest logs/ --into store -- --direct_running_mode=multi_processing --direct_num_workers=2

    Parameters
    ----------
    logs
        Files, patterns or folders of the log, plain or .gz. URIs (s3://, gs://) work too.
    into
        The store: a folder or URI that holds the output of all stages.
    format
        The form of the log: ubi (OpenSearch User Behavior Insights, JSON lines).
    person_key
        File with the key that people are hashed by; by default one is made in the store's private folder.
    adult_list
        Your own list of adult words, one a line, instead of the one that ships.
    set
        field=value for any field of the ingest settings; may be repeated.
    beam_options
        Options of the Beam runner; write them after a bare `--`.
    json
        Print the result as one JSON object; progress goes to stderr.
    """
    from beam_jobs.ingest import IngestConfig
    from beam_jobs.ingest import ingest as run

    fields = [*(set or []), f"format={format}"]
    fields += [f"person_key={person_key}"] if person_key else []
    fields += [f"adult_list={adult_list}"] if adult_list else []
    config = with_fields(IngestConfig(), fields)
    with console.progress_bar("ingest") as progress:
        result = run(logs, store=into, config=config, beam_options=tuple(beam_options or ()), progress=progress)
    console.emit(result.to_json(), json, present.stage_with_details)
