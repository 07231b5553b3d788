"""What one worker does, top to bottom: build, restore, loop, report, checkpoint, and at the end write the model.

Every worker runs this function on the whole order and computes its own micro-batches of each minibatch; all hold the
same state after every update. The first one (rank 0) measures, reports and writes. It knows nothing of Ray: the workers
talk through training.workers.
"""

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import torch

from schemas.stage import Progress
from training.checkpoint import Position, newest_checkpoint, read_checkpoint, write_checkpoint
from training.curves import Curves
from training.judged_files import Judged
from training.large_update import Towers, large_update
from training.model import write_model
from training.nesterov import LazyRows, MomentumSchedule
from training.order import MicroBatch, Order, pair_lengths
from training.pair_gradient import PairBatch, pair_batch
from training.parameters import initial_parameters, layout_of, tower_names
from training.recipes import Recipe
from training.shard_data import ShardData, load_shards
from training.threads import compute_threads
from training.watch import Watch
from training.workers import Workers

REPORT_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What a worker is given. Only `recipe` and `shards` decide the model."""

    shards: str
    recipe: Recipe
    judged: Judged | None
    threads: int
    digest: str  # of the request: a checkpoint of another one is refused
    checkpoints: str
    output: str
    checkpoint_seconds: float


def work(job: Job, workers: Workers, progress: Progress) -> dict[str, Any]:
    """Train and write the model folder; metrics of the run. Raises StageError."""
    # Build.
    torch.set_num_threads(1)  # the share's micro-batches are what threads compute side by side
    threads = compute_threads(job.threads)
    recipe = job.recipe
    data = load_shards(job.shards, recipe)
    order = Order(
        lengths=[pair_lengths(shard) for shard in data.train],
        micro_batch=recipe.micro_batch,
        minibatch=recipe.minibatch,
        seed=recipe.seed,
    )
    watch = Watch(data, recipe, job.judged)
    layout = layout_of(recipe, data.table_rows)
    schedule = MomentumSchedule(recipe.momentum_edge, recipe.momentum_middle, recipe.epochs * order.num_minibatches)

    # Restore.
    position, rows, refused = _restore(job, workers)
    rows = rows or {t: LazyRows.start(initial_parameters(recipe, layout, t)) for t in tower_names(recipe)}
    towers = Towers(recipe=recipe, layout=layout, rows=rows, schedule=schedule)
    resumed_at = position.update
    report = _Report(job, order, watch, towers, position.curve, progress) if workers.rank == 0 else None

    # Loop.
    first_epoch, done = divmod(position.update, order.num_minibatches)
    for epoch in range(first_epoch, recipe.epochs):
        minibatches = order.epoch(epoch)
        num_pairs = sum(len(m.pairs) for minibatch in minibatches[:done] for m in minibatch)
        for minibatch, share in _prepared(minibatches[done:], data, recipe, epoch, workers):
            started = time.monotonic()
            made = large_update(
                towers,
                share,
                update=position.update + 1,
                num_micro_batches=len(minibatch),
                workers=workers,
                threads=threads,
            )
            num_pairs += sum(len(micro_batch.pairs) for micro_batch in minibatch)
            position = replace(
                position,
                update=position.update + 1,
                loss=position.loss + made.loss,
                seconds=position.seconds + time.monotonic() - started,
            )
            if report:
                report.update(epoch, num_pairs, position)
                if num_pairs < order.num_pairs:
                    report.checkpoint_if_due(position)
        done = 0
        if report:
            report.epoch(epoch, position, made.norms)
        position = Position(update=position.update, curve=report.curves.points if report else [])
        if report:
            report.checkpoint_if_due(position)

    # Write.
    threads.shutdown()
    if not report:
        return {}
    report.curves.close()
    matrices = {name: state.all_published(position.update, schedule) for name, state in rows.items()}
    write_model(job.output, recipe, layout, matrices)
    return {
        "updates": position.update,
        "resumed_at": resumed_at,
        "refused_checkpoints": refused,
        "pairs": order.num_pairs,
        "watched": watch.source,
        **report.last,
    }


def _restore(job: Job, workers: Workers) -> tuple[Position, dict[str, LazyRows], list[str]]:
    """The state to go on from, the same on every worker: the first one chooses the checkpoint."""
    update, refused = newest_checkpoint(job.checkpoints, job.digest) if workers.rank == 0 else (0, [])
    chosen = torch.tensor([update], dtype=torch.int64)
    workers.add_up(chosen)
    if not chosen.item():
        return Position(), {}, refused
    return *read_checkpoint(job.checkpoints, job.digest, int(chosen.item())), refused


def _prepared(
    minibatches: list[list[MicroBatch]], data: ShardData, recipe: Recipe, epoch: int, workers: Workers
) -> Iterator[tuple[list[MicroBatch], list[PairBatch]]]:
    """Each minibatch with this worker's share of it ready to compute; the next is prepared meanwhile."""

    def prepare(minibatch: list[MicroBatch]) -> list[PairBatch]:
        return [_pair_batch(m, data, recipe, epoch) for m in minibatch[workers.rank :: workers.size]]

    with ThreadPoolExecutor(1, "prepare") as ahead:
        shares = deque(ahead.submit(prepare, minibatch) for minibatch in minibatches[:1])
        for minibatch, following in zip_longest(minibatches, minibatches[1:]):
            if following is not None:
                shares.append(ahead.submit(prepare, following))
            yield minibatch, shares.popleft().result()


def _pair_batch(micro_batch: MicroBatch, data: ShardData, recipe: Recipe, epoch: int) -> PairBatch:
    shard, pairs, n = data.train[micro_batch.shard], micro_batch.pairs, recipe.num_negatives
    if recipe.negatives == "redrawn":
        negatives = (data.pool_texts, data.redraw(shard, pairs, n=n, seed=recipe.seed, epoch=epoch))
    else:
        negatives = (shard.texts, shard.negatives[pairs, :n])
    return pair_batch((shard.texts, shard.query[pairs]), (shard.texts, shard.clicked[pairs]), negatives)


class _Report:
    """What the first worker tells and keeps: progress, a point of the curves each epoch, checkpoints now and then."""

    def __init__(self, job: Job, order: Order, watch: Watch, towers: Towers, curve: list, progress: Progress) -> None:
        self.curves = Curves(job.output, curve)
        self._order, self._watch, self._towers, self._progress = order, watch, towers, progress
        self._job, self._told, self._saved = job, 0.0, time.monotonic()

    @property
    def last(self) -> dict[str, Any]:
        return dict(self.curves.points[-1]) if self.curves.points else {}

    def update(self, epoch: int, num_pairs: int, position: Position) -> None:
        if time.monotonic() - self._told < REPORT_SECONDS:
            return
        self._told = time.monotonic()
        self._tell(epoch, position.loss / num_pairs, num_pairs)

    def epoch(self, epoch: int, position: Position, norms: dict[str, float]) -> None:
        num_pairs = self._order.num_pairs
        started = time.monotonic()
        measured = self._watch.measure(self._towers.published(position.update))
        self.curves.add(
            {
                "epoch": epoch + 1,
                "train_loss": position.loss / num_pairs,
                **measured,
                "pairs_per_second": round(num_pairs / max(position.seconds, 1e-9), 1),
                "seconds": round(position.seconds, 3),
                "watch_seconds": round(time.monotonic() - started, 3),
                "updates": position.update,
                "momentum": self._towers.schedule.momentum(position.update),
                **{f"gradient_norm_{tower}": norm for tower, norm in norms.items()},
            }
        )
        self._tell(epoch, position.loss / num_pairs, num_pairs)

    def checkpoint_if_due(self, position: Position) -> None:
        if time.monotonic() - self._saved >= self._job.checkpoint_seconds:
            write_checkpoint(self._job.checkpoints, self._job.digest, position, self._towers.rows)
            self._saved = time.monotonic()

    def _tell(self, epoch: int, loss: float, num_pairs: int) -> None:
        dev = self.last.get("dev_loss")
        total = self._order.num_pairs
        self._progress(
            f"train epoch {epoch + 1}/{self._job.recipe.epochs}, loss {loss:.3f}"
            + (f", dev {dev:.3f}" if dev is not None else ""),
            epoch * total + num_pairs,
            self._job.recipe.epochs * total,
        )
