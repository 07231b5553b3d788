"""The stage ingest: a search log -> the private daily aggregate. What Beam does for it is in ingest_job."""

from collections.abc import Sequence

from beam_jobs.engine.arrow_files import explained
from beam_jobs.engine.beam_stage import Attempt, BeamJob, run_beam_stage
from beam_jobs.ingest.day_versions import find_held, register
from beam_jobs.ingest.ingest_config import IngestConfig, ingest_request, open_source
from beam_jobs.ingest.person_key import ensure_key, ensure_store_key
from beam_jobs.sources.read_lines import find_files
from schemas import storage
from schemas.stage import Progress, StageResult, open_result, silent

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

        def job_of(attempt: Attempt) -> BeamJob:
            from beam_jobs.ingest.ingest_job import IngestJob

            return IngestJob(
                attempt=attempt,
                plan=plan,
                config=config,
                key_path=key_path,
                key_id=key.id,
                states={file: states.get(file, "not there yet") for file in plan.files},
            )

        result = run_beam_stage(
            store,
            request,
            job_of,
            module="beam_jobs.ingest.ingest_job",
            input_bytes=plan.estimated_bytes,
            beam_options=beam_options,
            progress=progress,
        )
        # Where the day is new its last step has done so; here for one that was there before.
        register(store, request, replace=config.replace_day)
        return result


def _states(logs: Sequence[str]) -> dict[str, str]:
    """The state of each file before anything of it is looked at, so that whatever is written from here on is seen."""
    files = find_files(logs)
    return dict(zip(files, storage.of_each(storage.state, files), strict=True))
