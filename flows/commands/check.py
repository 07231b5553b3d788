"""clicktower check"""

from typing import Annotated

from cyclopts import Parameter

from flows import console, present_check


def check(
    logs: Annotated[list[str], Parameter(negative=())],
    *,
    format: str | None = None,
    mapping: str | None = None,
    documents: str | None = None,
    k: int = 5,
    sample_lines: int = 500_000,
    json: bool = False,
) -> int:
    """Say what a log holds and what looks wrong with it, from a sample, before it is
    ingested.

    Nothing is written, and no line, query, client id or user agent is shown. Exit
    code 1 says that ingest would fail, and why.

        clicktower check logs/*.ndjson.gz
        clicktower check clicks.csv --format delimited --mapping clicks.toml --documents documents.tsv

    Parameters
    ----------
    logs
        Files, patterns, folders or URIs (s3://, gs://) of the log, plain or packed with gzip or zstd.
    format
        The form of the log, as in `ingest`; by default it is guessed.
    mapping
        TOML file that says what the columns are; where one is needed and none is given, one is proposed.
    documents
        The documents file: says how many clicks are on a document with a title.
    k
        How many distinct people must have issued a query.
    sample_lines
        About how many lines to look at; a log with fewer is read whole.
    json
        Print the result as one JSON object; progress goes to stderr.
    """
    import time

    from beam_jobs.build.build_config import BuildConfig
    from beam_jobs.checking.check_log import check_log
    from beam_jobs.sources.mapping import read_mapping
    from schemas.errors import UsageError

    BuildConfig(k=k)  # says what is wrong with it
    if sample_lines < 1:
        raise UsageError(
            asked=f"a sample of {sample_lines} lines was asked for", found="that is none", do="ask for 1 or more"
        )
    begun = time.perf_counter()
    with console.progress_bar("check") as progress:
        checked = check_log(
            logs,
            log_format=format,
            mapping=read_mapping(mapping) if mapping else None,
            documents=documents,
            k=k,
            sample_lines=sample_lines,
            progress=progress,
        )
    result = present_check.as_result(checked, logs, mapping, documents, time.perf_counter() - begun)
    console.emit(result, json, present_check.show)
    return 0 if checked.can_be_ingested else 1
