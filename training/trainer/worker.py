"""A training worker, top to bottom: build, restore, loop, report, checkpoint, and at the end write the model.

Every worker runs this function on the whole order and computes its own micro-batches of each minibatch; all hold the
same state after every update. The first one (rank 0) evaluates, reports and writes. It does not depend on Ray: the
workers communicate through `workers`.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from clicktower.schemas.errors import Diverged, StageError
from clicktower.schemas.section import code_of
from clicktower.schemas.stage import Progress, silent
from clicktower.training.kernel.kernel_library import status
from clicktower.training.model.model import Model, write_model
from clicktower.training.model.parameters import CPU, Device, Layout, initial_parameters, require_memory
from clicktower.training.model.recipe import Nesterov, Recipe
from clicktower.training.trainer.checkpoint import Position, newest_checkpoint, read_checkpoint
from clicktower.training.trainer.job import COMPILED, ROWS, TrainingJob, require_served
from clicktower.training.trainer.kernel_path import CompiledPath, compiled_batch
from clicktower.training.trainer.large_update import LossBatch, Path, Towers, Workers, WorkerShare, large_update
from clicktower.training.trainer.objective import Objective, Task
from clicktower.training.trainer.optimisers import MomentumSchedule, RowState, start_state
from clicktower.training.trainer.run_report import Report
from clicktower.training.trainer.shard_data import MicroBatch, Order, ShardFiles, local_folder


def work(job: TrainingJob, workers: Workers, progress: Progress) -> dict[str, Any]:
    """Train and write the model folder; returns its metrics, empty if it stops early. Raises StageError."""
    with ExitStack() as at_the_end:
        return _work(job, workers, progress, at_the_end)


def _work(job: TrainingJob, workers: Workers, progress: Progress, at_the_end: ExitStack) -> dict[str, Any]:
    # Build.
    show_step = silent if workers.rank else progress
    show_step("reading the shards", 0, None)
    torch.set_num_threads(1)  # threads compute the share's micro-batches in parallel
    device, kinds = CPU, list[str]()
    if job.device != "cpu":
        from clicktower.training.trainer.gpu_check import gpu_kind, kinds_of_workers, open_device, require_right_gpu

        show_step("checking the GPU", 0, None)
        device = open_device(job.device)
        require_right_gpu(job.device)
        kinds = kinds_of_workers(gpu_kind(job.device), workers)
    recipe = job.recipe
    require_served(job.arithmetic, recipe)
    files = ShardFiles(local_folder(job.shards), job.shard_files)
    files.compare("Before training")
    objective: Objective = code_of(recipe.objective)
    words: tuple[str, ...] = ()
    vectors_KD, known_words = None, dict[str, int]()
    if job.sources.word_vectors:
        from clicktower.training.model.word_vectors import vectors_of_shards

        show_step("reading the word vectors", 0, None)
        word_vectors = vectors_of_shards(files.folder, job.sources.word_vectors)
        words, vectors_KD, known_words = word_vectors.words, word_vectors.vectors_KD, word_vectors.metrics()
    if job.sources.teacher:
        show_step("the teacher reads the texts", 0, None)
    task = objective.load(files.folder, recipe, words, job.sources.teacher)
    watch = task.watched(job.judged)
    order = Order(lengths=task.lengths, micro_batch=recipe.micro_batch, minibatch=recipe.minibatch, seed=recipe.seed)
    layout = Layout(recipe=recipe, word_rows=task.word_rows, outputs=task.outputs)
    require_memory(layout)
    rule = recipe.optimiser if isinstance(recipe.optimiser, Nesterov) else Nesterov()
    schedule = MomentumSchedule(rule.momentum_edge, rule.momentum_middle, recipe.epochs * order.num_minibatches)

    # Restore.
    position, rows = _restore(job, workers)
    position = replace(position, gpus=[*position.gpus, *(kind for kind in kinds if kind not in position.gpus)])
    if not rows:
        start = start_of(layout, task.row_weights(), job.sources.start, vectors_KD)
        # One after the other: a state is a copy, and there may not be room for two of each tower.
        rows = {tower: start_state(recipe, start.pop(tower)) for tower in list(start)}
    rows = {tower: state.to(device.place) for tower, state in rows.items()}
    path = path_of(job.arithmetic, recipe, device, job.threads, objective.batch)
    towers = Towers(layout=layout, rows=rows, schedule=schedule, device=device, path=path)
    resumed_at = equal_at = position.update
    report = Report(job, order, watch, towers, position, progress) if workers.rank == 0 else None
    if report:
        at_the_end.callback(report.stop)  # however it ends: the folder of a failed attempt goes

    # Loop.
    first_epoch, first_minibatch = divmod(position.update, order.num_minibatches)
    last_epoch = min(job.stop_after or recipe.epochs, recipe.epochs)
    for epoch in range(first_epoch, last_epoch):
        minibatches = order.epoch(epoch)
        num_pairs = sum(len(m.pairs) for minibatch in minibatches[:first_minibatch] for m in minibatch)
        started, sent_before = time.monotonic(), workers.sent_bytes
        for minibatch, share in prepared(minibatches[first_minibatch:], task, epoch, workers, path):
            update = position.update + 1
            try:
                last_update = large_update(towers, WorkerShare(share, update, len(minibatch), workers))
            except Diverged as error:
                from clicktower.training.trainer.culprit import name_culprit

                raise name_culprit(
                    error, minibatch, epoch, update,
                    task=task, batch_of=objective.batch, towers=towers, workers=workers,
                ) from None  # fmt: skip
            pairs = sum(len(micro_batch.pairs) for micro_batch in minibatch)
            num_pairs += pairs
            seconds = time.monotonic() - started
            position = replace(
                position, update=update, loss=position.loss + last_update.loss, seconds=position.seconds + seconds
            )
            if report:
                sent_bytes = workers.sent_bytes - sent_before
                report.step(
                    epoch, num_pairs, position, last_update, pairs=pairs, seconds=seconds, sent_bytes=sent_bytes
                )
                if num_pairs < order.num_pairs:
                    report.checkpoint_if_due(position)
            started, sent_before = time.monotonic(), workers.sent_bytes
        first_minibatch = 0
        files.compare(f"After epoch {epoch + 1}", only_touched=True)
        if workers.size > 1:
            from clicktower.training.trainer.process_group import require_equal

            require_equal(workers, rows, update=position.update, since=equal_at, checkpoints=job.checkpoints)
        equal_at = position.update
        if report:
            report.epoch(epoch, position, last_update)
        if epoch > first_epoch:
            workers.report(report.last if report else {})  # of the previous epoch: the current one is being measured
        position = replace(position, loss=0.0, seconds=0.0)
        if report:
            report.checkpoint_if_due(position, now=epoch + 1 == last_epoch < recipe.epochs)

    # Write.
    files.compare("Before the model is written")
    if report:
        report.close()
    workers.report(report.last if report else {})
    if not report or last_epoch < recipe.epochs:
        return {}
    # A tower's optimiser state is freed as the tower is published: there may not be room for both.
    matrices = {name: rows.pop(name).all_published(position.update, schedule) for name in list(rows)}
    write_model(job.output, Model.of(layout, matrices))
    return {
        "updates": position.update,
        "resumed_at": resumed_at,
        "resumed": [{"update": update, "workers": size} for update, size in position.resumed],
        **({"gpus": position.gpus} if position.gpus else {}),
        "refused_checkpoints": [why for _, why in position.refused],
        "pairs": order.num_pairs,
        "watched": watch.source,
        "workers": workers.size,
        "threads": job.threads,
        "instructions": status().instructions if job.arithmetic in (COMPILED, ROWS) else "",
        **known_words,
        **report.last,
    }


def _restore(job: TrainingJob, workers: Workers) -> tuple[Position, dict[str, RowState]]:
    """The state to resume from, the same on every worker: the first one chooses the checkpoint."""
    newest, refused = newest_checkpoint(job.checkpoints, job.digest) if workers.rank == 0 else (0, [])
    chosen = torch.tensor([newest], dtype=torch.int64)
    workers.add_up(chosen)
    position, rows = Position(), dict[str, RowState]()
    if update := int(chosen.item()):
        try:
            position, rows = read_checkpoint(job.checkpoints, job.digest, update)
        except StageError as error:
            if workers.rank == 0:
                raise
            raise StageError(
                f"On the machine of worker {workers.rank + 1}, and not on that of the first: {error.problem}",
                "Put the store where every node sees it: a shared folder, or a URI.",
            ) from None
        position = replace(position, resumed=[*position.resumed, (update, workers.size)])
    return replace(position, refused=[*position.refused, *refused]), rows


def path_of(
    arithmetic: str, recipe: Recipe, device: Device, num_threads: int, batch_of: Callable[[Any], LossBatch]
) -> Path:
    """The path of an arithmetic. `batch_of`: the objective's (training.trainer.objective), for gradients in torch."""
    if arithmetic == COMPILED:
        # A cut cannot apply to only some of the texts that share a step.
        share_prefixes = not recipe.tower.adds_up and not recipe.tower.truncation
        prepare = partial(compiled_batch, both_directions=recipe.tower.ways == 2, share_prefixes=share_prefixes)
        return CompiledPath(num_threads, prepare)
    from clicktower.training.trainer.reference_path import ReferencePath, RowsPath

    return RowsPath(num_threads, batch_of) if arithmetic == ROWS else ReferencePath(num_threads, device, batch_of)


def prepared(
    minibatches: list[list[MicroBatch]], task: Task, epoch: int, workers: Workers, path: Path
) -> Iterator[tuple[list[MicroBatch], list[Any]]]:
    """Each minibatch with this worker's prepared share of it; the next one is prepared in the background."""

    def prepare(minibatch: list[MicroBatch]) -> list[Any]:
        share = minibatch[workers.rank :: workers.size]
        return [path.prepare(task.examples(m, epoch)) for m in share]

    with ThreadPoolExecutor(1, "prepare") as ahead:
        shares = (ahead.submit(prepare, minibatch) for minibatch in minibatches)
        following = next(shares, None)
        for minibatch in minibatches:
            share, following = following, next(shares, None)
            assert share
            yield minibatch, share.result()


def start_of(
    layout: Layout, row_weights: np.ndarray | None, model: str | None, word_vectors: np.ndarray | None = None
) -> dict[str, torch.Tensor]:
    """Each tower's parameters before the first update, [rows, columns].

    `model`: a model folder. W and the tower's parts come from it; an objective's own parts are new. One tower for both
    sides starts from the shared one, or from that of queries. `word_vectors`: of the words with a row of their own
    (model.word_vectors); words that the model has keep its vectors. Raises UsageError if its towers are different.
    """
    names = layout.recipe.objective.towers
    start = {name: initial_parameters(layout, name, row_weights, word_vectors) for name in names}
    if model is None:
        return start
    from clicktower.training.trainer.earlier_model import started_from

    return started_from(model, layout, start)
