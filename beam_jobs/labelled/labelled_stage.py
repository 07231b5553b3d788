"""The stage build-labelled: labelled files -> labelled shards. What Beam does for it is in labelled_job.

build_labelled(["pairs.tsv"], store="store", config=LabelledConfig(mapping=...))
"""

import time
from collections.abc import Sequence

from beam_jobs.engine.arrow_files import explained
from beam_jobs.engine.engine_options import exchange_scratch
from beam_jobs.engine.progress import listening
from beam_jobs.labelled.labelled_config import LabelledConfig, labelled_request, labelled_source
from schemas import storage
from schemas.stage import EngineJob, Progress, StageResult, run_stage, scratch_folder, silent, stage_folder

__all__ = ["LabelledConfig", "build_labelled"]


def build_labelled(
    files: Sequence[str],
    *,
    store: str,
    config: LabelledConfig,
    dev: Sequence[str] = (),
    beam_options: Sequence[str] = (),
    progress: Progress = silent,
) -> StageResult:
    """The labelled shards of some files, in STORE/build-labelled/DIGEST.

    files, dev: paths, patterns or folders. With `dev` its lines are what is held out, and a line of `files` that has a
    sentence of it is left out; without, whole components of sentences are held out by a keyed hash. Raises UsageError
    and StageError: nothing to read, columns that are not there, too many unreadable lines, nothing left to train on or
    to hold out, one class only.
    """
    source = labelled_source(config)
    train_plan = source.plan(files)
    dev_plan = source.plan(dev) if dev else None
    dev_files = list(dev_plan.files) if dev_plan else []
    request = labelled_request(train_plan.files, dev_files, config)

    def produce(attempt: str) -> None:
        from beam_jobs.engine.beam_engine import run_pipeline  # Beam takes seconds to import
        from beam_jobs.engine.exchange import num_buckets_for
        from beam_jobs.labelled.labelled_commit import LabelledCommit
        from beam_jobs.labelled.labelled_job import LabelledPlan, Part, labelled_pipeline

        plans = [(train_plan, False), *([(dev_plan, True)] if dev_plan else [])]
        plan = LabelledPlan(
            parts=tuple(Part(unit=unit, dev=is_dev) for each, is_dev in plans for unit in each.units),
            stored_bytes=sum(each.stored_bytes for each, _ in plans),
            has_dev_file=dev_plan is not None,
            made=scratch_folder(attempt),
            scratch=exchange_scratch(beam_options, scratch_folder(attempt)),
            num_buckets=num_buckets_for(sum(each.estimated_bytes for each, _ in plans)),
            config=config,
            told=storage.join(scratch_folder(attempt), "progress"),
        )
        commit = LabelledCommit(
            folder=stage_folder(store, request),
            attempt=attempt.rsplit("/", 1)[-1],
            request=request,
            unit=config.mapping.unit,
            started=time.time(),
            asked=f"labelled shards were to be built from {len(train_plan.files) + len(dev_files)} files",
        )
        with listening(progress, plan.steps, plan.told):
            run_pipeline(
                lambda pipeline: labelled_pipeline(pipeline, plan, commit),
                beam_options,
                job=EngineJob(store=store, request=request),
                progress=progress,
            )

    with explained(store):
        return run_stage(store, request, produce, progress)
