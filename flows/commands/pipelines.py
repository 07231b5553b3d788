"""clicktower run, backfill, demo: all stages in one go."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from flows.show import console, present


def run(config: str, *, date: str | None = None, json: bool = False) -> None:
    """Run the whole pipeline that a TOML file describes: log -> day -> shards -> model
    -> evaluation -> release.

    The repository's pipeline.toml is a commented example with every field. A
    minimal one:

        store = "store"
        [log]
        files = ["logs/*.ndjson.gz"]           # UBI search and event lines
        [documents]
        file = "documents.tsv"                 # id<TAB>title
        [judgments]
        queries = "queries.tsv"                # id<TAB>text
        qrels = "qrels.txt"                    # TREC: query 0 document grade
        [publish]
        to = "release"

    Run it with

        clicktower run pipeline.toml

    Run it again and every stage answers "reused"; change a setting and only
    what depends on it runs.

    Parameters
    ----------
    config
        The TOML file. Relative paths in it are relative to its folder.
    date
        Fills {date} in log.files (2026-09-01); by default yesterday.
    json
        Print the results of all stages as one JSON object; progress goes to stderr.
    """
    from flows.run_by_hand import run_locally

    results = run_locally(config, date)
    console.emit(present.as_one("run", results), json, present.run_results)


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
    from flows import backfill
    from flows.backfill import as_one, date_line, dates, require_date_in_log, run_on_server, summary
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
    done = backfill.backfill(
        days, lambda *date: how(config, *date), every=every, ingest_only=ingest_only, ended=date_line
    )
    console.emit(as_one(done), json, summary)
    return int(any(one.state == "failed" for one in done))


_DEMONSTRATION = """# Written by `clicktower demo`. Everything here comes from a simulated log.
title = "Demonstration on a simulated log"
store = "store"
report = "report.html"

[log]
files = ["data/log/*.ndjson.gz"]

[documents]
file = "data/documents.tsv"

[judgments]
queries = "data/judgments/queries.dev.tsv"
qrels = "data/judgments/qrels.dev.txt"

[build]
k = 5

[train]
recipe = "lstm-96"

[train.set]
epochs = 5

[publish]
to = "release"
"""


def demo(*, work: str = "clicktower-demo", searches: int = 30_000, seed: int = 0, json: bool = False) -> None:
    """Simulate a log and run everything, up to a searchable release and a report,
    in minutes.

    Beam, the trainer and LanceDB really run, on this machine; only the log is
    simulated, and everything made from it says so. A second run reuses what is there.

        clicktower demo --work clicktower-demo

    Parameters
    ----------
    work
        Folder for the simulated data, the store, the release and the report.
    searches
        Size of the simulated log.
    seed
        The seed of the simulated shop.
    json
        Print the results of all stages as one JSON object; progress goes to stderr.
    """
    from flows.run_by_hand import run_locally
    from flows.submit import run_stage_command

    folder = Path(work)
    folder.mkdir(parents=True, exist_ok=True)
    simulated = run_stage_command(["simulate", str(folder / "data"), "--searches", str(searches), "--seed", str(seed)])
    present.stage_result(simulated)
    config = folder / "pipeline.toml"
    config.write_text(_DEMONSTRATION, encoding="utf-8")
    results = {"simulate": simulated, **run_locally(str(config))}
    console.emit(present.as_one("demo", results), json, present.run_results)
