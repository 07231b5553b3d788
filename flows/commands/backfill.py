"""clicktower backfill"""

from typing import Annotated

from cyclopts import Parameter

from flows.show import console


def backfill(
    config: str,
    *,
    first: Annotated[str, Parameter(name="--from")],
    until: Annotated[str, Parameter(name="--to")],
    every: bool = False,
    ingest_only: bool = False,
    server: bool = False,
    json: bool = False,
) -> int:
    """Run the pipeline for a range of dates, one after the other: nights that were
    missed, or the past.

    Every date is ingested; shards, model, evaluation and release are made once,
    for the last date, from the days that the store then has, since nobody would
    see the releases in between. If a date fails, the later ones are still
    ingested, but nothing is made from them.

        clicktower backfill pipeline.toml --from 2026-09-01 --to 2026-09-07
        clicktower backfill pipeline.toml --from 2026-09-01 --to 2026-09-07 --server

    Run it again to continue: a date that is there already answers "reused".

    Parameters
    ----------
    config
        The TOML file, with {date} in log.files.
    first
        First date (2026-09-01).
    until
        Last date.
    every
        Make everything up to a release for every date, as nightly runs would have done.
    ingest_only
        Only ingest the dates. Use this if nightly runs went on meanwhile: the next one takes these days too, while a
        release of an older window would replace the live one.
    server
        Run the dates as runs of the nightly deployment on the Prefect server that PREFECT_API_URL names, one after the
        other. Its worker's machine reads the TOML file at the same path.
    json
        Print the outcome of each date as one JSON object; progress goes to stderr.
    """
    from flows.backfill import as_one, date_line, dates, require_date_in_log, run_on_server, summary
    from flows.backfill import backfill as run
    from flows.config.pipeline_config import read_pipeline
    from flows.run_by_hand import run_locally
    from schemas.errors import UsageError

    if every and ingest_only:
        raise UsageError(
            asked="dates were to be run with --every and with --ingest-only",
            found="one makes all of every date, the other nothing",
            do="give one of them",
        )
    require_date_in_log(read_pipeline(config), config)
    how = run_on_server if server else run_locally
    days = dates(first, until)
    done = run(days, lambda *date: how(config, *date), every=every, ingest_only=ingest_only, ended=date_line)
    console.emit(as_one(done), json, summary)
    return int(any(one.state == "failed" for one in done))
