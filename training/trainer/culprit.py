"""The micro-batch that stopped a diverging run."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from clicktower.schemas.errors import Diverged
from clicktower.training.model.parameters import RowGradient
from clicktower.training.trainer.large_update import LossBatch, Towers, Workers
from clicktower.training.trainer.objective import Task
from clicktower.training.trainer.shard_data import MicroBatch

PAIRS_NAMED = 5


def name_culprit(
    error: Diverged,
    minibatch: Sequence[MicroBatch],
    epoch: int,
    update: int,
    *,
    task: Task,
    batch_of: Callable[[Any], LossBatch],
    towers: Towers,
    workers: Workers,
) -> Diverged:
    """The error with the micro-batch it came from: the first whose gradient is not finite, else the largest.

    `minibatch`: of all workers, in its order. All call it together: each computes its share once more, on the reference
    path, and they compare. `batch_of`: the objective's.
    """
    encoder, sizes = towers.look_ahead(update), torch.zeros(len(minibatch), dtype=torch.float64)
    for place in range(workers.rank, len(minibatch), workers.size):
        batch = batch_of(task.examples(minibatch[place], epoch)).to(towers.device.place)
        sizes[place] = _largest(*batch.gradient(encoder, update))
    workers.add_up(sizes)
    place = int(sizes.argmax())
    worst, culprit = sizes[place].item(), minibatch[place]
    rows = ", ".join(f"{pair:,}" for pair in culprit.pairs[:PAIRS_NAMED].tolist())
    more = f" and {len(culprit.pairs) - PAIRS_NAMED:,} more" if len(culprit.pairs) > PAIRS_NAMED else ""
    how = f"goes up to {worst:,.3g}" if math.isfinite(worst) else "is not finite"
    return Diverged(
        f"{error.problem} Micro-batch {place + 1} of {len(minibatch)} of update {update:,}, whose gradient {how},"
        f" is rows {rows}{more} of {task.files[culprit.shard]}.",
        error.fix,
    )


def _largest(gradients: Sequence[tuple[str, RowGradient]], loss: torch.Tensor) -> float:
    """The largest absolute number of a micro-batch's gradient and loss; infinite if one is not finite."""
    arrays = [loss, *(values for _, of_tower in gradients for values in (of_tower.table_RG, *of_tower.parts.values()))]
    sizes = [values.abs().max().item() for values in arrays if values.numel()]
    return max(sizes) if all(map(math.isfinite, sizes)) else math.inf
