"""The stage ingest: a search log -> the private daily aggregate. What Beam does for it is in ingest_job."""

import time
from collections.abc import Sequence

from beam_jobs.engine.arrow_files import explained
from beam_jobs.engine.engine_options import exchange_scratch, with_local_workers
from beam_jobs.engine.forked_workers import ForkedWorkers, forked_workers_if_asked
from beam_jobs.engine.progress import listening
from beam_jobs.ingest.day_versions import find_held, register
from beam_jobs.ingest.ingest_config import IngestConfig, ingest_request
from beam_jobs.ingest.open_source import open_source
from beam_jobs.ingest.person_key import ensure_key, ensure_store_key
from beam_jobs.sources.read_lines import find_files
from schemas import storage
from schemas.stage import EngineJob, Progress, StageResult, open_result, run_stage, scratch_folder, silent

__all__ = ["IngestConfig", "ingest"]


def ingest(
    logs: Sequence[str],
    *,
    store: str,
    config: IngestConfig,
    beam_options: Sequence[str] = (),
    progress: Progress = silent,
) -> StageResult:
    """The daily aggregate of a log, reused if it is there: STORE/ingest/DIGEST.

    `logs` are paths, patterns or folders. Raises UsageError or StageError: nothing to read, files that cannot be read
    whole, that are written to meanwhile, too many unreadable lines, an expired person key, a store that cannot be
    written; and for a date that was ingested before: lines of which some are in that day already, or another person key
    (see day_versions).
    """
    states = _states(logs)
    plan = open_source(config).plan(logs)
    with explained(store):
        if config.person_key:
            key_path, key = config.person_key, ensure_key(config.person_key, create=False)
        else:
            key_path, key = ensure_store_key(store, renew=config.renew_key)
        request = ingest_request(plan.files, key.id, config)

        # The files are in that day already, or a person was erased from them.
        if held := find_held(store, request, replace=config.replace_day):
            return open_result(held)

        def produce(folder: str) -> None:
            options = with_local_workers(beam_options, plan.estimated_bytes)
            with forked_workers_if_asked(options, "beam_jobs.ingest.ingest_job") as workers:
                run(folder, options, workers)

        def run(folder: str, options: Sequence[str], workers: ForkedWorkers | None) -> None:
            from beam_jobs.engine.beam_engine import run_pipeline  # Beam takes seconds to import: only here
            from beam_jobs.ingest.ingest_job import IngestJob

            job = IngestJob(
                plan=plan,
                request=request,
                config=config,
                folder=folder,
                made=scratch_folder(folder),
                scratch=exchange_scratch(beam_options, scratch_folder(folder)),
                key_path=key_path,
                key_id=key.id,
                started=time.time(),
                told=storage.join(scratch_folder(folder), "progress"),
                states={file: states.get(file, "not there yet") for file in plan.files},
            )
            with listening(progress, job.steps, job.told):
                # Its last step commits the day.
                run_pipeline(
                    job.build,
                    options,
                    job=EngineJob(store=store, request=request),
                    progress=progress,
                    workers=workers,
                )

        result = run_stage(store, request, produce, progress)
        register(
            store, request, replace=config.replace_day
        )  # where the day is new its last step did; here for one that was there before
        return result


def _states(logs: Sequence[str]) -> dict[str, str]:
    """The state of each file before anything of it is looked at, so that whatever is written from here on is seen."""
    files = find_files(logs)
    return dict(zip(files, storage.of_each(storage.state, files), strict=True))
