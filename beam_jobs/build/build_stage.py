"""The stage build: days + documents -> shards. What Beam does for it is in build_job.

build(["store"], "documents.tsv", store="store", config=BuildConfig(k=5))
"""

import time
from collections.abc import Sequence

from beam_jobs.build.build_commit import BuildCommit
from beam_jobs.build.build_config import BuildConfig, adult_list, build_request
from beam_jobs.build.titles import plan_documents
from beam_jobs.engine.arrow_files import explained
from beam_jobs.engine.engine_options import WORTH_PROCESSES_DAY_BYTES, exchange_scratch, with_local_workers
from beam_jobs.engine.forked_workers import ForkedWorkers, forked_workers_if_asked
from beam_jobs.engine.progress import listening
from beam_jobs.ingest.days import day_files, inherited_labels, open_window
from beam_jobs.ingest.windows import Window
from schemas import storage
from schemas.ledger import merge
from schemas.stage import EngineJob, Progress, StageResult, run_stage, scratch_folder, silent, stage_folder

__all__ = ["BuildConfig", "build"]


def build(
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

    `days`: ingest folders or versions of days, or stores, of which the dates of the window are taken, or everything.
    `judged_queries`: a file of `id TAB query` whose queries are kept out of training. Raises UsageError and StageError
    (see `open_window`, `read_documents`; ids that do not match, nothing left behind the gate, a pool too small to draw
    from).
    """
    opened = open_window(days, window)
    ingests = opened.ingests
    parts = plan_documents(documents)
    adult = adult_list(config)
    request = build_request(
        [day.manifest.digest for day in ingests],
        documents,
        judged_queries,
        config,
        opened.asked() if window and not window.is_all else None,
    )

    def produce(attempt: str) -> None:
        num_bytes = sum(map(_day_bytes, ingests)) + (storage.size_bytes(documents) or 0)
        options = with_local_workers(beam_options, num_bytes, WORTH_PROCESSES_DAY_BYTES)
        with forked_workers_if_asked(options, "beam_jobs.build.build_job") as workers:
            run(attempt, num_bytes, options, workers)

    def run(attempt: str, num_bytes: int, options: Sequence[str], workers: ForkedWorkers | None) -> None:
        from beam_jobs.build.build_job import BuildPlan, shards_pipeline
        from beam_jobs.engine.beam_engine import run_pipeline
        from beam_jobs.engine.exchange import num_buckets_for

        queries, exposures = day_files(ingests, "queries"), day_files(ingests, "exposures")
        plan = BuildPlan(
            queries=tuple(queries),
            exposures=tuple(exposures),
            documents=documents,
            documents_parts=tuple(parts),
            judged_queries=judged_queries,
            made=scratch_folder(attempt),
            scratch=exchange_scratch(beam_options, scratch_folder(attempt)),
            num_buckets=num_buckets_for(num_bytes),
            config=config,
            adult_terms=adult.terms,
            told=storage.join(scratch_folder(attempt), "progress"),
        )
        commit = BuildCommit(
            folder=stage_folder(store, request),
            attempt=attempt.rsplit("/", 1)[-1],
            request=request,
            started=time.time(),
            ledger=merge(day.manifest.outcome.ledger for day in ingests if day.manifest.outcome.ledger),
            labels=inherited_labels(ingests),
            documents=documents,
            asked=f"shards were to be built from {len(ingests)} days and {documents}",
            window=opened.to_json(),
        )
        with listening(progress, plan.steps, plan.told):
            run_pipeline(
                lambda pipeline: shards_pipeline(pipeline, plan, commit),
                options,
                job=EngineJob(store=store, request=request),
                progress=progress,
                workers=workers,
            )

    with explained(store):
        return run_stage(store, request, produce, progress)


def _day_bytes(day: StageResult) -> int:
    return sum(file.size_bytes for file in day.manifest.files)
