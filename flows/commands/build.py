"""clicktower build"""

from typing import Annotated

from cyclopts import Parameter

from flows.config.toml_file import with_fields
from flows.show import console, present


def build(
    *,
    days: Annotated[list[str], Parameter(consume_multiple=True)],
    documents: str,
    into: str,
    first: Annotated[str | None, Parameter(name="--from")] = None,
    until: Annotated[str | None, Parameter(name="--to")] = None,
    last: int | None = None,
    allow_missing_days: bool = False,
    k: int = 5,
    judged_queries: str | None = None,
    adult_list: str | None = None,
    set: list[str] | None = None,
    beam_options: list[str] | None = None,
    json: bool = False,
) -> None:
    """Turn daily aggregates and documents into training shards, behind the privacy
    gate.

    A query leaves the private aggregate only if at least k distinct people
    issued it. Clicked titles become pairs, each with n random unclicked titles;
    a keyed share of the queries is held out.

        clicktower build --days store --documents documents.tsv --k 5 --into store
        clicktower build --days store --last 30 --documents documents.tsv --into store

    Parameters
    ----------
    days
        A store, or folders that `ingest` printed. For a store: the newest version of every date, and everything
        ingested without a date; with --from, --to or --last only the dates of that window.
    documents
        The documents that are searched: id<TAB>title lines, or JSON lines or Parquet with id and title.
    into
        The store: a folder or URI that holds the output of all stages.
    first
        First date of the window (2026-09-01); by default the store's first.
    until
        Last date of the window; by default the store's newest.
    last
        The number of dates up to the last one, instead of a first one.
    allow_missing_days
        Build although the store has nothing for some date of the window; the manifest then names it.
    k
        How many distinct people must have issued a query. 1 is for a team that trains on its own log in private.
    judged_queries
        Queries (id<TAB>text) that are kept out of training, because the model is evaluated on them.
    adult_list
        Your own list of adult words, one per line, instead of the built-in one.
    set
        field=value for any field of the build settings; may be repeated.
    beam_options
        Options of the Beam runner; write them after a bare `--`.
    json
        Print the result as one JSON object; progress goes to stderr.
    """
    from beam_jobs.build.build_stage import BuildConfig
    from beam_jobs.build.build_stage import build as run
    from beam_jobs.engine.engine_options import with_engines
    from beam_jobs.ingest.windows import Window
    from flows.config.settings import Settings

    window = Window(first=first, until=until, last=last, allow_missing=allow_missing_days)
    fields = [f"k={k}", *(set or [])]
    fields += [f"adult_list={adult_list}"] if adult_list else []
    config = with_fields(BuildConfig(), fields)
    with console.progress_bar("build") as progress:
        result = run(
            days,
            documents,
            store=into,
            config=config,
            judged_queries=judged_queries,
            window=window,
            beam_options=with_engines(beam_options or (), Settings().engines),
            progress=progress,
        )
    console.emit(result.to_json(), json, present.stage_with_details)
