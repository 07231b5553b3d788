"""Training: shards -> model folder, in process with one worker, through Ray Train with more.

    train("store/build/DIGEST", store="store", recipe=recipe("lstm-96"))

Reads schemas.shard; writes training.model to STORE/train/DIGEST. While it runs, checkpoints are beside the attempt, in
STORE/train/DIGEST/checkpoints: the same request started again after a kill goes on from the newest.
"""

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from schemas import storage
from schemas.errors import UsageError
from schemas.manifest import Outcome, Request
from schemas.stage import Progress, StageResult, open_result, run_stage, silent
from training.judged_files import Judged
from training.recipes import Recipe

if TYPE_CHECKING:
    from training.worker import Job

STAGE_VERSION = 1

__all__ = ["Judged", "train"]


def train(
    shards: str,
    *,
    store: str,
    recipe: Recipe,
    workers: int = 1,
    threads: int | None = None,
    judged: Judged | None = None,
    progress: Progress = silent,
    checkpoint_seconds: float = 60.0,
) -> StageResult:
    """The trained model of the shards in a build's folder.

    `workers`: processes, and `threads`: of each of them, by default the cores divided by the workers. With exact
    reduction neither changes a byte of the model. `judged`: documents to watch NDCG on after each epoch; they choose
    nothing. `checkpoint_seconds`: how much work a kill may cost. Raises UsageError and StageError.
    """
    if workers < 1 or (threads is not None and threads < 1):
        raise UsageError(
            asked=f"training was asked for with {workers} workers and {threads} threads",
            found="both must be at least 1",
            do="give --workers 1 or more",
        )
    built = open_result(shards)
    threads = threads or max(1, len(os.sched_getaffinity(0)) // workers)
    request = Request(
        stage="train",
        stage_version=STAGE_VERSION,
        # The bytes are the same for any number of workers and threads; only a fast sum depends on its grouping.
        config={"recipe": asdict(recipe), "workers": "any" if recipe.reduction == "exact" else workers},
        inputs={
            "shards": built.manifest.digest,
            "judged": _fingerprints(judged) if judged else None,
        },
        seed=recipe.seed,
    )
    watched = Judged(**{k: _absolute(v) for k, v in asdict(judged).items()}) if judged else None
    checkpoints = ""

    def produce(attempt: str) -> Outcome:
        nonlocal checkpoints
        from training.worker import Job

        folder, _, name = _absolute(attempt).rpartition("/")
        checkpoints = storage.join(folder, "checkpoints")
        job = Job(
            shards=_absolute(built.data),
            recipe=recipe,
            judged=watched,
            threads=threads,
            digest=request.digest,
            checkpoints=checkpoints,
            output=_absolute(attempt),
            checkpoint_seconds=checkpoint_seconds,
        )
        metrics = _run(job, workers, f"{request.digest}-{name}", progress)
        return Outcome(
            counts={"pairs": metrics.pop("pairs"), "updates": metrics.pop("updates")},
            metrics={**metrics, "workers": workers, "threads": threads},
            labels=built.manifest.outcome.labels,
        )

    result = run_stage(store, request, produce)
    if checkpoints:
        storage.remove(checkpoints)
    return result


def _run(job: "Job", workers: int, name: str, progress: Progress) -> dict[str, Any]:
    if workers > 1:
        from training.ray_workers import run_on_ray

        return run_on_ray(job, workers, name, progress)
    from training.worker import work
    from training.workers import Alone

    return work(job, Alone(), progress)


def _fingerprints(judged: Judged) -> dict[str, str]:
    for what, uri in asdict(judged).items():
        if not storage.exists(uri):
            raise UsageError(
                asked=f"NDCG was to be watched with the {what} in {uri}",
                found="there is no such file",
                do="check the path, or train without judged documents",
            )
    return {what: storage.fingerprint(uri) for what, uri in asdict(judged).items()}


def _absolute(uri: str) -> str:
    """A local path from the root, since Ray's workers may run in another folder; another URI as it is."""
    return storage.filesystem(uri)[1] if storage.is_local(uri) else uri
