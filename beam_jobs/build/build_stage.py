"""The stage build: days + documents -> shards. build_job is its Beam pipeline.

build_shards(["store"], "documents.tsv", store="store", config=BuildConfig(k=5))
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from clicktower.beam_jobs.build.click_shards import HeldOutShare, RowsPerShard, Salt, TableRows
from clicktower.beam_jobs.build.titles import plan_documents
from clicktower.beam_jobs.engine.beam_stage import run_beam_stage
from clicktower.beam_jobs.engine.engine_options import WORTH_PROCESSES_DAY_BYTES
from clicktower.beam_jobs.ingest.days import Window, day_bytes, day_files, inherited_labels, open_window
from clicktower.schemas import storage
from clicktower.schemas.content_filters import adult_list
from clicktower.schemas.errors import UsageError
from clicktower.schemas.ledger import merge_ledgers
from clicktower.schemas.manifest import Request
from clicktower.schemas.search_log import PEOPLE_CAP
from clicktower.schemas.section import Seed, Unnamed, Uri, section
from clicktower.schemas.stage import Progress, Stage, StageResult, silent
from clicktower.schemas.text_contract import DEFAULT_TABLE_ROWS

BUILD = Stage("build", version=5)  # 3 wrote the weight 1 for every pair


@section
class BuildConfig:
    """The settings that determine the rows of the shards.

    Args:
        k: The distinct people that must have issued a query before it leaves the private aggregate. 1 is for a team
            that trains on its own log in private; 0, no gate, for a log that is public and names nobody.
        pair_k: The distinct people that must have clicked a title for a query before that pair leaves it; above 1 it
            needs days ingested with `pair_people`.
        num_negatives: Unclicked documents per pair.
        dev_share: The share of queries that is held out.
        split_salt: The key of that split; permanent, or held-out queries end up in training.
        seed: The seed of the negatives.
        pool_size: The maximum number of documents that negatives are drawn from.
        pool: What negatives are drawn from: all documents, or, as in the paper, those that training pairs behind the
            gate clicked.
        table_rows: Rows of the letter-trigram table.
        pairs_per_shard: Pairs in a shard; 100,000 with four negatives take about 64 MiB.
        adult_list: A file of adult terms, one per line, in place of the built-in list.
    """

    k: Annotated[int, Field(ge=0, le=PEOPLE_CAP)] = 5
    pair_k: Annotated[int, Field(ge=1, le=PEOPLE_CAP), Unnamed(at=1)] = 1
    num_negatives: Annotated[int, Field(ge=1, le=1_000)] = 4
    dev_share: HeldOutShare = 0.05
    split_salt: Salt = "clicktower"
    seed: Seed = 0
    pool_size: Annotated[int, Field(ge=1, lt=2**31)] = 1_000_000
    pool: Annotated[Literal["documents", "clicked"], Unnamed(at="documents")] = "documents"
    table_rows: TableRows = DEFAULT_TABLE_ROWS
    pairs_per_shard: RowsPerShard = 100_000
    adult_list: Annotated[Uri | None, Unnamed()] = None


def build_request(
    days: Sequence[str],
    documents: str,
    judged_queries: str | None,
    config: BuildConfig,
    window: Mapping[str, Any] | None = None,
) -> Request:
    """The request to build from the days with these digests, which a window selected. Raises UsageError if a file is
    missing.
    """
    for uri in filter(None, (documents, judged_queries)):
        if not storage.exists(uri):
            raise UsageError(f"There is no file {uri}.", "Check the path.")
    inputs = {
        "days": sorted(days),
        "window": window,
        "adult_list": adult_list(config.adult_list).digest,
        "documents": storage.fingerprint(documents),
        "judged_queries": storage.fingerprint(judged_queries) if judged_queries else None,
    }
    return BUILD.request(config, inputs)


def build_shards(
    days: Sequence[str],
    documents: str,
    *,
    store: str,
    config: BuildConfig,
    judged_queries: str | None = None,
    window: Window | None = None,
    beam_options: Sequence[str] = (),
    progress: Progress = silent,
) -> StageResult:
    """The shards of a window, in STORE/build/DIGEST.

    `days`: ingest folders, versions of days, or stores; of a store the dates of the window, or everything.
    `judged_queries`: a file of `id TAB query` whose queries are kept out of training. Raises UsageError and StageError
    (see `open_window` and `read_documents`; also if ids do not match, the gate leaves nothing, or the pool is too
    small).
    """
    opened = open_window(days, window)
    ingests = opened.ingests
    if config.pair_k > 1:
        from clicktower.beam_jobs.ingest.pair_people import require_clickers

        require_clickers(ingests, config.pair_k)
    parts = plan_documents(documents)
    window_key = opened.request_key() if window and not window.is_all else None
    request = build_request([day.manifest.digest for day in ingests], documents, judged_queries, config, window_key)
    fields = {
        "config": config,
        "queries": tuple(day_files(ingests, "queries")),
        "exposures": tuple(day_files(ingests, "exposures")),
        "clickers": tuple(day_files(ingests, "clickers")) if config.pair_k > 1 else (),
        "documents": documents,
        "documents_parts": tuple(parts),
        "judged_queries": judged_queries,
        "adult_terms": adult_list(config.adult_list).terms,
        "ledger": merge_ledgers(day.manifest.outcome.ledger for day in ingests if day.manifest.outcome.ledger),
        "labels": inherited_labels(ingests),
        "window": opened.to_json(),
    }
    return run_beam_stage(
        store,
        request,
        "clicktower.beam_jobs.build.build_job:BuildJob",
        fields,
        input_bytes=day_bytes(ingests) + (storage.size_bytes(documents) or 0),
        worth_bytes=WORTH_PROCESSES_DAY_BYTES,
        beam_options=beam_options,
        progress=progress,
        reads=ingests,
    )
