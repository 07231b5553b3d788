"""Training: shards -> model folder, in process, in several processes of this machine, or on a cluster by Ray Train.

    train("store/build/DIGEST", store="store", recipe=recipe("lstm-pool-192-words"))

Reads schemas.shard; writes model to STORE/train/DIGEST. While it runs, checkpoints are beside the attempt, in
STORE/train/DIGEST/checkpoints: the same request started again after a kill continues from the newest.
"""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from clicktower.schemas import storage
from clicktower.schemas.errors import StoppedEarly, UsageError
from clicktower.schemas.judgments import Judged
from clicktower.schemas.manifest import Outcome, Request
from clicktower.schemas.stage import (
    Progress,
    Stage,
    StageResult,
    find_finished,
    is_planning,
    open_result,
    require_present,
    run_stage,
    silent,
    stage_folder,
)
from clicktower.schemas.text_contract import DEFAULT_TABLE_ROWS
from clicktower.training.model.objective_settings import Clicks
from clicktower.training.model.recipe import DEVICES, NO_SOURCES, ONE_WORKER, Compute, DeviceName, Recipe, Sources
from clicktower.training.ranking.measure import collection_of
from clicktower.training.trainer.job import TrainingJob, arithmetic_of, completed, count_gpus

TRAIN = Stage("train", version=2)  # 2: the recipe is written in sections; the model is the same


def train(
    shards: str,
    *,
    store: str,
    recipe: Recipe,
    compute: Compute = ONE_WORKER,
    sources: Sources = NO_SOURCES,
    in_cluster: bool = False,
    judged: Judged | None = None,
    progress: Progress = silent,
    checkpoint_seconds: float = 60.0,
    stop_after: int | None = None,
) -> StageResult:
    """Train a model on the shards in a build's folder.

    `in_cluster`: workers, GPUs and cores are those of a Ray cluster, and Ray Train starts them. `judged`: documents to
    watch NDCG on after each epoch; they choose nothing. `checkpoint_seconds`: how much work a kill may cost.
    `stop_after`: after this many epochs keep a checkpoint and raise StoppedEarly; the request stays the same, and
    without it goes on to the end. A recipe with `objective.pretrain` first trains a model on texts, a request of its
    own in the same store. Raises UsageError and StageError.
    """
    require_sum(recipe, compute)
    built = open_result(shards, *recipe.objective.stages)
    if judged and not isinstance(recipe.objective, Clicks):
        raise UsageError(
            f"NDCG cannot be watched while {recipe.name} trains: the objective {recipe.objective.kind} is watched on"
            " held-out rows of its shards.",
            "Leave the judged files out; `clicktower evaluate` measures NDCG of the finished model.",
        )
    before = pretraining(recipe)
    if before and sources.start:
        raise UsageError(
            f"{recipe.name} cannot start from {sources.start}: it begins with {before.epochs} epochs of its own on"
            " texts (objective.pretrain).",
            "Set objective.pretrain=none, or leave --start out.",
        )
    word_vectors = storage.absolute(sources.word_vectors) if sources.word_vectors else None
    recipe, taught_by = completed(recipe, word_vectors, sources.teacher), None
    if sources.teacher:
        from clicktower.training.model.teacher import teacher_source

        taught_by = teacher_source(sources.teacher, recipe)
    started = open_result(sources.start, "train") if sources.start else None
    digests = Sources(
        start=started.manifest.digest if started else None,
        word_vectors=storage.fingerprint(word_vectors) if word_vectors else None,
        teacher=taught_by.digest if taught_by else None,
    )

    def request_on(device: DeviceName) -> Request:
        on_device = replace(compute, device=device)
        return train_request(built, recipe, on_device, judged=fingerprints(judged), sources=digests)

    device = compute.device
    if device == "auto" and in_cluster and compute.path in ("auto", "torch"):
        # A finished model, of any device, is returned even if the cluster is down.
        on_devices: tuple[DeviceName, ...] = ("cuda", "cuda-eager", "cpu")
        finished = (name for name in on_devices if find_finished(store, request_on(name))[0])
        device = next(finished, "cpu" if is_planning() else device)  # a plan asks no cluster
    device = workers_device(device, in_cluster, compute.path, progress)
    if before:
        started = train(
            shards, store=store, recipe=before, compute=replace(compute, device=device),
            sources=Sources(word_vectors=word_vectors), in_cluster=in_cluster, progress=progress,
            checkpoint_seconds=checkpoint_seconds,
        )  # fmt: skip
    request = request_on(device)
    watched = Judged(**{k: storage.absolute(v) for k, v in judged.named_files.items()}) if judged else None
    checkpoints = storage.join(storage.absolute(stage_folder(store, request)), "checkpoints")
    inside = f"{built.manifest.attempt}/"

    def produce(attempt: str) -> Outcome:
        require_present([built, *([started] if started else [])])
        if watched:
            collection_of(watched)  # here, and not after the workers have started: it refuses files that do not join
        # Values left to the cluster are 0 until they are known.
        number = compute.workers if compute.workers != "auto" else 0 if in_cluster else max(1, count_gpus())
        job = TrainingJob(
            shards=storage.absolute(built.data),
            shard_files=tuple(replace(f, path=f.path.removeprefix(inside)) for f in built.manifest.files),
            recipe=recipe,
            judged=watched,
            threads=compute.threads or (0 if in_cluster else max(1, len(os.sched_getaffinity(0)) // number)),
            sources=Sources(
                start=storage.absolute(started.data) if started else None,
                word_vectors=word_vectors,
                teacher=taught_by.path if taught_by else None,
            ),
            digest=request.digest,
            checkpoints=checkpoints,
            output=storage.absolute(attempt),
            checkpoint_seconds=checkpoint_seconds,
            device=device,
            arithmetic=str(request.config["arithmetic"]),
            stop_after=stop_after,
        )
        if in_cluster:
            from clicktower.training.trainer.ray_workers import run_on_ray  # Ray takes seconds to load

            metrics = run_on_ray(job, number, progress, min_workers=compute.min_workers)
        else:
            started_workers: AbstractContextManager[Any] = nullcontext(_work_alone)
            if number > 1:
                from clicktower.training.trainer.local_workers import local_workers

                started_workers = local_workers(number)
            with started_workers as run:
                from clicktower.training.model.parameters import layout_of, require_memory  # so does torch

                require_memory(layout_of(recipe, table_rows_of(built)), number)
                metrics = run(job, progress)
        if not metrics:
            raise StoppedEarly(
                f"Training stopped after {stop_after} of {recipe.epochs} epochs, as asked. Its checkpoint is kept.",
                "Train without stopping early to go on from there.",
            )
        return Outcome(
            counts={"pairs": metrics.pop("pairs"), "updates": metrics.pop("updates")},
            metrics={**metrics, "device": device, "arithmetic": job.arithmetic},
            labels=built.manifest.outcome.labels,
        )

    result = run_stage(store, request, produce, progress)
    if not is_planning():
        storage.remove(checkpoints)
    return result


def _work_alone(job: TrainingJob, progress: Progress) -> dict[str, Any]:
    from clicktower.training.trainer.large_update import Workers
    from clicktower.training.trainer.worker import work

    return work(job, Workers(), progress)


def table_rows_of(built: StageResult) -> int:
    """The rows of the letter-trigram table of a build's shards."""
    return int(built.manifest.request.config.get("table_rows", DEFAULT_TABLE_ROWS))


def require_sum(recipe: Recipe, compute: Compute) -> None:
    """Raise UsageError for a fast sum of gradients, which depends on the number of workers, where that may change."""
    workers, least = compute.workers, compute.min_workers
    if recipe.reduction == "fast" and (workers == "auto" or least is not None):
        raise UsageError(
            f"Workers may be {workers}, at least {least or 1} of them, and a fast sum depends on their number.",
            "Use the exact reduction, or give the number and leave --min-workers out.",
        )


def workers_device(device: DeviceName, in_cluster: bool, path: str = "auto", progress: Progress = silent) -> DeviceName:
    """The device that a run's workers compute on: `auto` is that of the Ray cluster's nodes, or of this machine; the
    CPU for a path that only the CPU has.

    It determines the arithmetic of a request, so it is known before a worker starts. A GPU whose kernels fail their
    check (gpu_check) is used without them, or not at all. Raises UsageError and TransientError.
    """
    if device not in DEVICES:
        raise UsageError(f"There is no device named {device!r}.", f"Use one of {', '.join(DEVICES)}.")
    if device != "auto":
        return device
    if path not in ("auto", "torch"):
        return "cpu"
    if in_cluster:
        from clicktower.training.trainer.ray_cluster import device_of_cluster  # Ray takes a second to load

        return device_of_cluster()
    if not count_gpus():
        return "cpu"
    from clicktower.training.trainer.gpu_check import device_of_gpu  # so does torch

    return device_of_gpu(progress)


def pretraining(recipe: Recipe) -> Recipe | None:
    """The recipe that a recipe with `objective.pretrain` trains first, on texts alone, for its tower. None for any
    other.
    """
    if not (first := recipe.objective.pretraining):
        return None
    epochs, objective = first
    return replace(recipe, epochs=epochs, objective=objective)


def train_request(
    built: StageResult,
    recipe: Recipe,
    compute: Compute = ONE_WORKER,
    *,
    judged: Mapping[str, str] | None = None,
    sources: Sources = NO_SOURCES,
) -> Request:
    """The request of a training; its digest names the model.

    `judged`: `fingerprints` of the watched files. `sources`: the digests of each, or a file's fingerprint; the start of
    a recipe with `objective.pretrain` is implied.
    """
    if before := pretraining(recipe):
        first = train_request(built, before, compute, sources=Sources(word_vectors=sources.word_vectors))
        sources = replace(sources, start=first.digest)
    inputs = {
        "shards": built.manifest.digest,
        "judged": judged,
        "start": sources.start,
        **({"word_vectors": sources.word_vectors} if sources.word_vectors else {}),
        **({"teacher": sources.teacher} if sources.teacher else {}),
    }
    settings = {
        "recipe": recipe,
        # The bytes are the same for any number of workers and threads; only a fast sum depends on its grouping.
        "workers": "any" if recipe.reduction == "exact" else compute.workers,
        "arithmetic": arithmetic_of(compute.path, recipe, workers_device(compute.device, False, compute.path)),
    }
    return TRAIN.request(settings, inputs, seed=recipe.seed)


def fingerprints(judged: Judged | None) -> dict[str, str] | None:
    """The fingerprint of each of the judged files. Raises UsageError if one does not exist."""
    for name, uri in judged.named_files.items() if judged else ():
        if not storage.exists(uri):
            raise UsageError(
                f"There is no file {uri}, given as the {name} of the judged queries.",
                "Check the path, or train without judged documents.",
            )
    return {name: storage.fingerprint(uri) for name, uri in judged.named_files.items()} if judged else None
