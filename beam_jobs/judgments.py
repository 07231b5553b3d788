"""The stage judgments: days -> click-derived judgments. What Beam does for it is in beam_jobs.judgments_job.

judgments(["store"], store="store", config=JudgmentsConfig(k=5))
"""

import time
from collections.abc import Sequence

from beam_jobs.arrow_files import explained
from beam_jobs.days import day_files, inherited_labels, open_window
from beam_jobs.engine_options import exchange_scratch
from beam_jobs.judgments_commit import Commit
from beam_jobs.judgments_config import JudgmentsConfig, adult_list, judgments_request
from beam_jobs.progress import listening
from beam_jobs.trained_days import refuse_trained_days, span
from beam_jobs.windows import Window
from schemas import storage
from schemas.stage import EngineJob, Progress, StageResult, run_stage, scratch_folder, silent, stage_folder

__all__ = ["JudgmentsConfig", "judgments"]


def judgments(
    days: Sequence[str],
    *,
    store: str,
    config: JudgmentsConfig,
    window: Window | None = None,
    trained_on: str | None = None,
    beam_options: Sequence[str] = (),
    progress: Progress = silent,
) -> StageResult:
    """The judgments of a window, in STORE/judgments/DIGEST: its queries, qrels, logged run, propensities.

    `days`: ingest folders or versions of days, or stores, of which the dates of the window are taken, or everything.
    `trained_on`: the build a model is trained on, whose days must be others, and earlier. Raises UsageError and
    StageError (see `open_window`; no impressions, no query behind the gate, ranks that hardly vary).
    """
    opened = open_window(days, window)
    ingests = opened.ingests
    if trained_on:
        refuse_trained_days(trained_on, ingests)
    adult = adult_list(config)
    request = judgments_request(
        [day.manifest.digest for day in ingests], config, opened.asked() if window and not window.is_all else None
    )

    def produce(attempt: str) -> None:
        from beam_jobs.engine import run_pipeline  # Beam takes seconds to import
        from beam_jobs.exchange import num_buckets_for
        from beam_jobs.judgments_job import Plan, judgments_pipeline

        queries, exposures = day_files(ingests, "queries"), day_files(ingests, "exposures")
        asked = f"judgments were to be derived from the clicks of {len(ingests)} days"
        plan = Plan(
            queries=tuple(queries),
            exposures=tuple(exposures),
            made=scratch_folder(attempt),
            scratch=exchange_scratch(beam_options, scratch_folder(attempt)),
            num_buckets=num_buckets_for(sum(file.size_bytes for day in ingests for file in day.manifest.files)),
            config=config,
            adult_terms=adult.terms,
            asked=asked,
            told=storage.join(scratch_folder(attempt), "progress"),
        )
        commit = Commit(
            folder=stage_folder(store, request),
            attempt=attempt.rsplit("/", 1)[-1],
            request=request,
            started=time.time(),
            labels={
                **inherited_labels(ingests),
                "judgments": "click-derived",
                "click_model": config.click_model,
                "exposure_corrected": config.click_model == "pbm",
            },
            span={**span(ingests), "days": opened.to_json()},
            asked=asked,
        )
        with listening(progress, plan.steps, plan.told):
            run_pipeline(
                lambda pipeline: judgments_pipeline(pipeline, plan, commit),
                beam_options,
                job=EngineJob(store=store, request=request),
                progress=progress,
            )

    with explained(store):
        return run_stage(store, request, produce, progress)
