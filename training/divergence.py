"""A run that runs away is stopped, and told where: the update, the micro-batch and the file its pairs are from.

Nothing else would stop it. The loss is bounded whatever the parameters are (cosines are), and a step that throws the
parameters far off leaves finite numbers that mean nothing.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from schemas.errors import Diverged
from training.order import MicroBatch
from training.parameters import Layout
from training.recipe import Recipe
from training.workers import Workers

PAIRS_NAMED = 5


def require_sane(loss: float, norms: Mapping[str, float], recipe: Recipe, layout: Layout, update: int) -> None:
    """Raise Diverged before an update that is not finite, or longer than the parameters were when training began.

    Those are uniform in ±initial_range, so their length is initial_range √(numbers / 3). `norms`: of each tower's
    gradient, before re-normalisation.
    """
    length = recipe.initial_range * math.sqrt(layout.rows * layout.columns / 3)
    for tower, norm in norms.items():
        if not math.isfinite(norm) or not math.isfinite(loss):
            raise _diverged(f"the gradient or the loss of update {update:,} is not finite")
        if recipe.optimiser == "adam":  # its steps do not grow with the gradient
            continue
        moved = recipe.step * min(norm, recipe.clip_norm or math.inf)
        if moved > length:
            raise _diverged(
                f"update {update:,} would move the {tower} tower by {moved:,.3g} (its gradient's norm {norm:,.3g} times"
                f" `step`), further than all of its parameters measured at the start ({length:,.3g})"
            )


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

    `largest`: of a micro-batch's gradient and loss (training.paths.Path.largest); `share`: this worker's; `minibatch`:
    of all workers, in its order. All of them are to call it together: each computes its share once more, and they
    compare. `files`: whose rows each shard's examples are.
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
    where = (
        f"micro-batch {place + 1} of {len(minibatch)} of update {update:,}, whose gradient {how}, is rows {rows}{more}"
        f" of {files[culprit.shard]}"
    )
    return Diverged(asked=error.asked, found=f"{error.found}; {where}", follows=error.follows, do=error.do)


def _diverged(found: str) -> Diverged:
    return Diverged(
        asked="each update must leave the towers finite and near where they were",
        found=found,
        follows="the model would be worse than none",
        do="lower `step` (--set step=...), or hold the gradient's norm down (--set clip_norm=...)",
    )
