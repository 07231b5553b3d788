"""The stage ingest: a search log -> the private daily aggregate. What Beam does for it is in beam_jobs.ingest_day."""

import time
from collections.abc import Sequence

from beam_jobs.arrow_files import explained
from beam_jobs.ingest_config import IngestConfig, adult_list, ingest_request
from beam_jobs.person_key import default_path, ensure_key
from beam_jobs.progress import listening
from beam_jobs.read_lines import plan_reading
from schemas.stage import Progress, StageResult, run_stage, silent

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
    whole, too many unreadable lines, an expired person key, a store that cannot be written.
    """
    plan = plan_reading(logs)
    with explained(store):
        key_path = config.person_key or default_path(store)
        key = ensure_key(key_path, create=config.person_key is None)
        adult = adult_list(config)
        request = ingest_request(plan.files, key.id, adult.digest, config)

        def produce(folder: str) -> None:
            from beam_jobs.engine import run_pipeline  # Beam takes seconds to import: only where it runs
            from beam_jobs.ingest_day import Job

            with listening(progress, "reading the log (bytes)", plan.stored_bytes) as token:
                job = Job(
                    plan=plan,
                    request=request,
                    config=config,
                    folder=folder,
                    key_path=key_path,
                    key_id=key.id,
                    adult_terms=adult.terms,
                    started=time.time(),
                    progress_token=token,
                )
                run_pipeline(job.build, beam_options)  # its last step commits the day

        return run_stage(store, request, produce)
