"""The micro-batch that stopped a diverging run."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from clicktower.schemas.errors import Diverged
from clicktower.training.trainer.large_update import Workers
from clicktower.training.trainer.shard_data import MicroBatch

PAIRS_NAMED = 5


def name_culprit(
    error: Diverged,
    largest: Callable[[Any], float],
    share: Sequence[Any],
    minibatch: Sequence[MicroBatch],
    files: Sequence[str],
    workers: Workers,
    update: int,
) -> Diverged:
    """The error with the micro-batch it came from: the first whose gradient is not finite, else the largest.

    `largest`: of a micro-batch's gradient and loss (Path.largest); `share`: this worker's; `minibatch`: of all workers,
    in its order. All call it together: each computes its share once more, and they compare. `files`: the file whose
    rows each shard's examples are.
    """
    sizes = torch.zeros(len(minibatch), dtype=torch.float64)
    for place, batch in zip(range(workers.rank, len(minibatch), workers.size), share, strict=True):
        sizes[place] = largest(batch)
    workers.add_up(sizes)
    place = int(sizes.argmax())
    worst, culprit = sizes[place].item(), minibatch[place]
    rows = ", ".join(f"{pair:,}" for pair in culprit.pairs[:PAIRS_NAMED].tolist())
    more = f" and {len(culprit.pairs) - PAIRS_NAMED:,} more" if len(culprit.pairs) > PAIRS_NAMED else ""
    how = f"goes up to {worst:,.3g}" if math.isfinite(worst) else "is not finite"
    return Diverged(
        f"{error.problem} Micro-batch {place + 1} of {len(minibatch)} of update {update:,}, whose gradient {how},"
        f" is rows {rows}{more} of {files[culprit.shard]}.",
        error.fix,
    )
