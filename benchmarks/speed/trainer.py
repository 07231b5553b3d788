"""The trainer itself as a variant: training.large_update on batches prepared ahead, as training.worker runs it."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from benchmarks.speed.agreement import Parts, parts_of
from training.gpu.device import CPU, Device
from training.large_update import Towers, large_update
from training.nesterov import LazyRows, MomentumSchedule
from training.order import MicroBatch
from training.pair_gradient import PairBatch, pair_batch
from training.pairs import pairs_of
from training.parameters import layout_of
from training.recipes import Recipe
from training.shard_data import ShardData
from training.threads import compute_threads
from training.workers import Alone, Workers

UPDATES = 1_000_000  # more than any run makes: the schedule wants their number


class Trainer:
    """A run of a recipe from given parameters. `start`: the matrix of each tower."""

    def __init__(
        self,
        recipe: Recipe,
        start: Parts,
        data: ShardData,
        *,
        compiled: bool,
        threads: int,
        device: Device = CPU,
        workers: Workers | None = None,
    ) -> None:
        if compiled:
            raise NotImplementedError  # wired when there is one
        self._recipe, self._data, self._device, self.workers = recipe, data, device, workers or Alone()
        layout = layout_of(recipe, data.table_rows)
        rows = {
            tower: LazyRows.start(layout.join(parts["W"], {n: p for n, p in parts.items() if n != "W"})).to(device.place)
            for tower, parts in start.items()
        }
        schedule = MomentumSchedule(recipe.momentum_edge, recipe.momentum_middle, UPDATES)
        self._towers = Towers(recipe=recipe, layout=layout, rows=rows, schedule=schedule, device=device)
        self._threads = compute_threads(threads if device.place.type == "cpu" else 1)
        self._updates = 0

    def train(self, minibatches: Sequence[Sequence[MicroBatch]]) -> list[float]:
        losses = []
        for num_micro_batches, share in self._prepared(minibatches):
            self._updates += 1
            made = large_update(
                self._towers,
                share,
                update=self._updates,
                num_micro_batches=num_micro_batches,
                workers=self.workers,
                threads=self._threads,
            )
            losses.append(made.loss)
        return losses

    def parts(self) -> Parts:
        towers = self._towers
        published = {t: rows.all_published(self._updates, towers.schedule) for t, rows in towers.rows.items()}
        return {tower: parts_of(matrix.cpu(), towers.layout) for tower, matrix in published.items()}

    def close(self) -> None:
        self._threads.shutdown()

    def _prepared(self, minibatches: Sequence[Sequence[MicroBatch]]) -> Iterator[tuple[int, list[PairBatch]]]:
        """Each minibatch's number of micro-batches and this worker's share; the next is prepared meanwhile."""

        def prepare(minibatch: Sequence[MicroBatch]) -> tuple[int, list[PairBatch]]:
            share = minibatch[self.workers.rank :: self.workers.size]
            batches = [pair_batch(pairs_of(m, self._data, self._recipe, epoch=0)) for m in share]
            return len(minibatch), [batch.to(self._device.place) for batch in batches]

        with ThreadPoolExecutor(1, "prepare") as ahead:
            following = ahead.submit(prepare, minibatches[0])
            for minibatch in minibatches[1:]:
                ready, following = following, ahead.submit(prepare, minibatch)
                yield ready.result()
            yield following.result()
