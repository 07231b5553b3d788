"""The two paths of a minibatch's gradient, with one meaning: the reference in torch, and the compiled one on a CPU.

A path prepares micro-batches (indices only, ahead of time), adds up a minibatch's gradients over all workers, and
steps.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

import torch

from training.compute.workers import Workers
from training.network.parameters import Layout
from training.recipes.recipe import Recipe
from training.update.optimisers import MomentumSchedule, RowState


class Run(Protocol):
    """What a path needs of a run's state (large_update.Towers)."""

    @property
    def recipe(self) -> Recipe: ...

    @property
    def layout(self) -> Layout: ...

    @property
    def rows(self) -> Mapping[str, RowState]: ...

    @property
    def schedule(self) -> MomentumSchedule: ...


class Summed(Protocol):
    """A minibatch's gradient, summed over all workers, and what it was taken of."""

    @property
    def loss(self) -> float: ...

    @property
    def norms(self) -> Mapping[str, float]:
        """Of each tower's gradient."""

    def step(self, scales: Mapping[str, float]) -> None:
        """Make the update on each tower's rows, with its gradient times its scale. Once."""


class Path(Protocol):
    def prepare(self, examples: Any) -> Any:
        """A micro-batch ready to compute, of what an objective made of it (training.objectives).

        Raises ValueError for a text without words.
        """

    def table_rows(self, micro_batch: Any, side: str) -> torch.Tensor:
        """The rows of W that the queries, or the documents, of a micro-batch touch."""

    def sum_gradients(
        self,
        run: Run,
        share: Sequence[Any],
        touched: Mapping[str, torch.Tensor],
        *,
        update: int,
        num_micro_batches: int,
        workers: Workers,
        threads: Executor,
    ) -> Summed:
        """The gradients at the look-ahead point of `update` of all workers' shares, at the touched rows of each tower.

        Raises StageError, on every worker alike, where they do not add up exactly.
        """

    def largest(self, run: Run, micro_batch: Any, update: int) -> float:
        """The largest number, in size, of a micro-batch's gradient and loss; infinite where one is not finite."""
