"""The stage build: days + documents -> shards. What Beam does for it is in beam_jobs.build_shards.

build(["store"], "documents.tsv", store="store", config=BuildConfig(k=5))
"""

import time
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from beam_jobs.arrow_files import explained, write_parts, write_table
from beam_jobs.build_commit import Commit
from beam_jobs.build_config import BuildConfig, build_request
from beam_jobs.days import day_files, inherited_labels, open_days
from beam_jobs.progress import listening
from beam_jobs.shard_writer import write_pool
from beam_jobs.titles import pool_of, titled_documents
from schemas import storage
from schemas.documents import read_documents
from schemas.judgments import read_queries
from schemas.ledger import merge
from schemas.stage import Progress, StageResult, run_stage, silent, stage_folder
from schemas.words import normalise

__all__ = ["BuildConfig", "build"]


def build(
    days: Sequence[str],
    documents: str,
    *,
    store: str,
    config: BuildConfig,
    judged_queries: str | None = None,
    beam_options: Sequence[str] = (),
    progress: Progress = silent,
) -> StageResult:
    """The shards of a window, in STORE/build/DIGEST.

    `days`: ingest folders, or stores whose finished ingests are all taken. `judged_queries`: a file of `id TAB query`
    whose queries are kept out of training. Raises UsageError and StageError (see `open_days`, `read_documents`;
    ids that do not match, nothing left behind the gate, a pool too small to draw from).
    """
    window = open_days(days)
    judged = sorted({normalise(text) for text in read_queries(judged_queries).values()}) if judged_queries else []
    request = build_request([day.manifest.digest for day in window], documents, judged_queries, config)

    def produce(attempt: str) -> None:
        from beam_jobs.build_shards import JUDGED, Plan, shards_pipeline  # Beam takes seconds to import
        from beam_jobs.engine import run_pipeline
        from beam_jobs.exchange import num_buckets_for

        started = time.time()
        progress("reading the documents", 0, None)
        titled = titled_documents(read_documents(documents).table, config.pool_size)
        scratch = storage.join(attempt, "scratch")
        pool = pool_of(titled)
        queries, exposures = day_files(window, "queries"), day_files(window, "exposures")
        plan = Plan(
            queries=tuple(queries),
            exposures=tuple(exposures),
            titled=write_parts(titled, scratch, "titled"),
            judged=write_parts(pa.table([judged], schema=JUDGED), scratch, "judged"),
            pool=write_table(pool, scratch, "pool"),
            scratch=scratch,
            num_buckets=num_buckets_for(sum(_day_bytes(day) for day in window) + titled.nbytes),
            config=config,
        )
        commit = Commit(
            folder=stage_folder(store, request),
            attempt=attempt.rsplit("/", 1)[-1],
            request=request,
            started=started,
            ledger=merge(day.manifest.outcome.ledger for day in window if day.manifest.outcome.ledger),
            labels=inherited_labels(window),
            pool=write_pool(pool, storage.join(attempt, "pool"), "pool", table_rows=config.table_rows),
            scratch=scratch,
            asked=f"shards were to be built from {len(window)} days and {documents}",
        )
        with listening(progress, "building shards: day files", len(queries) + len(exposures)) as token:
            run_pipeline(lambda pipeline: shards_pipeline(pipeline, replace(plan, token=token), commit), beam_options)

    with explained(store):
        return run_stage(store, request, produce)


def _day_bytes(day: StageResult) -> int:
    return sum(file.size_bytes for file in day.manifest.files)
