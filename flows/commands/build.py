"""clicktower build"""

from typing import Annotated

from cyclopts import Parameter

from flows import console, present
from flows.set_fields import with_fields


def build(
    *,
    days: Annotated[list[str], Parameter(consume_multiple=True)],
    documents: str,
    into: str,
    k: int = 5,
    judged_queries: str | None = None,
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

    Parameters
    ----------
    days
        Folders that `ingest` printed, or a store whose days are all taken.
    documents
        The documents that are searched: id<TAB>title lines, or JSON lines or Parquet with id and title.
    into
        The store: a folder or URI that holds the output of all stages.
    k
        How many distinct people must have issued a query. 1 is for a team that trains on its own log in private.
    judged_queries
        Queries (id<TAB>text) that are kept out of training, because they judge the model.
    set
        field=value for any field of the build settings; may be repeated.
    beam_options
        Options of the Beam runner; write them after a bare `--`.
    json
        Print the result as one JSON object; progress goes to stderr.
    """
    from beam_jobs.build import BuildConfig
    from beam_jobs.build import build as run

    config = with_fields(BuildConfig(), [f"k={k}", *(set or [])])
    with console.progress_bar("build") as progress:
        result = run(
            days,
            documents,
            store=into,
            config=config,
            judged_queries=judged_queries,
            beam_options=tuple(beam_options or ()),
            progress=progress,
        )
    console.emit(result.to_json(), json, present.stage_with_details)
