"""The trainer itself as a variant: large updates on batches prepared ahead, as training.trainer.worker makes them."""

from collections.abc import Sequence

import torch

from benchmarks.speed.agreement import Parts, matrix_of, parts_of
from clicktower.training.model.parameters import CPU, Device, layout_of
from clicktower.training.model.recipe import Nesterov, Recipe
from clicktower.training.trainer import clicks
from clicktower.training.trainer.clicks import ClickTask
from clicktower.training.trainer.large_update import Towers, Workers, WorkerShare, large_update
from clicktower.training.trainer.optimisers import LazyRows, MomentumSchedule
from clicktower.training.trainer.shard_data import MicroBatch, ShardData
from clicktower.training.trainer.worker import path_of, prepared

UPDATES = 100_000  # more than any run makes: the schedule wants their number


class Trainer:
    """A run of a recipe from given parameters. `arithmetic`: the path that computes (training.trainer.job)."""

    def __init__(
        self,
        recipe: Recipe,
        start: Parts,
        data: ShardData,
        *,
        arithmetic: str,
        threads: int,
        device: Device = CPU,
        workers: Workers | None = None,
    ) -> None:
        self._recipe, self._data, self._workers = recipe, data, workers or Workers()
        threads = threads if device.place.type == "cpu" else 1
        layout = layout_of(recipe, data.word_rows.trigram_rows)
        rule = recipe.optimiser
        assert isinstance(rule, Nesterov)
        self._towers = Towers(
            layout=layout,
            rows={t: LazyRows.start(matrix_of(parts, layout)).to(device.place) for t, parts in start.items()},
            schedule=MomentumSchedule(rule.momentum_edge, rule.momentum_middle, UPDATES),
            device=device,
            path=path_of(arithmetic, recipe, device, threads, clicks.batch),
        )
        self._updates = 0

    def train(self, minibatches: Sequence[Sequence[MicroBatch]]) -> list[float]:
        torch.set_num_threads(1)  # as the worker does; each time, since MKL's number is the process's
        whole, losses = [list(minibatch) for minibatch in minibatches], []
        task = ClickTask(self._data, self._recipe)
        for minibatch, share in prepared(whole, task, 0, self._workers, self._towers.path):
            self._updates += 1
            share_of_all = WorkerShare(share, self._updates, len(minibatch), self._workers)
            losses.append(large_update(self._towers, share_of_all).loss)
        return losses

    def parts(self) -> Parts:
        towers = self._towers
        published = {t: rows.all_published(self._updates, towers.schedule) for t, rows in towers.rows.items()}
        return {tower: parts_of(matrix.cpu(), towers.layout) for tower, matrix in published.items()}

    def close(self) -> None:
        """Its threads end with it."""
