"""The stage build: days + documents -> shards. What Beam does for it is in build_job.

build(["store"], "documents.tsv", store="store", config=BuildConfig(k=5))
"""

from collections.abc import Sequence

from beam_jobs.build.build_config import BuildConfig, adult_list, build_request
from beam_jobs.build.titles import plan_documents
from beam_jobs.engine.beam_stage import Attempt, BeamJob, run_beam_stage
from beam_jobs.engine.engine_options import WORTH_PROCESSES_DAY_BYTES
from beam_jobs.ingest.days import Window, day_bytes, day_files, inherited_labels, open_window
from schemas import storage
from schemas.search_log import merge_ledgers
from schemas.stage import Progress, StageResult, silent

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
    adult = adult_list(config.adult_list)
    request = build_request(
        [day.manifest.digest for day in ingests],
        documents,
        judged_queries,
        config,
        opened.asked() if window and not window.is_all else None,
    )

    def job_of(attempt: Attempt) -> BeamJob:
        from beam_jobs.build.build_job import BuildJob

        return BuildJob(
            attempt=attempt,
            config=config,
            queries=tuple(day_files(ingests, "queries")),
            exposures=tuple(day_files(ingests, "exposures")),
            documents=documents,
            documents_parts=tuple(parts),
            judged_queries=judged_queries,
            adult_terms=adult.terms,
            ledger=merge_ledgers(day.manifest.outcome.ledger for day in ingests if day.manifest.outcome.ledger),
            labels=inherited_labels(ingests),
            window=opened.to_json(),
            asked=f"shards were to be built from {len(ingests)} days and {documents}",
        )

    return run_beam_stage(
        store,
        request,
        job_of,
        module="beam_jobs.build.build_job",
        input_bytes=day_bytes(ingests) + (storage.size_bytes(documents) or 0),
        worth_bytes=WORTH_PROCESSES_DAY_BYTES,
        beam_options=beam_options,
        progress=progress,
    )
