"""No variant is timed that computes something else: its first update must be the reference's, loss and gradient.

The reference is the trainer's pure torch path in float64. A variant makes one update from the same start, without
momentum, by the very code that is timed: what its parameters lose is the step times the gradient.
"""

from collections.abc import Sequence
from typing import Protocol

import torch

from clicktower.training.model.parameters import Encoder, Layout
from clicktower.training.trainer.click_loss import pair_batch, pair_gradient
from clicktower.training.trainer.shard_data import MicroBatch, ShardData, pairs_of

TOLERANCE = 1e-4  # of the gradient's norm, for each part of each tower; float32 leaves some 1e-6
COMPARED_STEP = 0.0625  # a power of two costs no digit; a much longer one would be stopped as one that runs away

Tensors = dict[str, torch.Tensor]
Parts = dict[str, Tensors]  # of each tower


class Trainee(Protocol):
    """A variant in training."""

    def train(self, minibatches: Sequence[Sequence[MicroBatch]]) -> list[float]:
        """Make an update of each minibatch, everything from indexing on; their losses."""

    def parts(self) -> Parts:
        """What its towers have learnt so far."""

    def close(self) -> None: ...


def reference_gradient(
    start: Parts, minibatch: Sequence[MicroBatch], data: ShardData, layout: Layout
) -> tuple[float, Parts]:
    """(loss, gradient of each part of each tower), summed over the minibatch, in float64."""
    matrices = {tower: matrix_of(parts, layout).double() for tower, parts in start.items()}
    encoder = Encoder.of(layout, matrices)
    total, sums = 0.0, {tower: parts_of(torch.zeros_like(matrix), layout) for tower, matrix in matrices.items()}
    for micro_batch in minibatch:
        gradients, loss = pair_gradient(pair_batch(pairs_of(micro_batch, data, layout.recipe, epoch=0)), encoder)
        total += float(loss)
        for tower, gradient in gradients:
            sums[tower]["W"].index_add_(0, gradient.rows, gradient.table_RG)
            for part, values in gradient.parts.items():
                sums[tower][part] += values
    return total, sums


def parts_of(matrix: torch.Tensor, layout: Layout) -> Tensors:
    """A tower's matrix as its parts by name, W among them."""
    table, parts = layout.split(matrix)
    return {"W": table, **parts}


def matrix_of(parts: Tensors, layout: Layout) -> torch.Tensor:
    """A tower's matrix, from its parts by name."""
    return layout.join(parts["W"], {name: part for name, part in parts.items() if name != "W"})


def require_agreement(
    name: str, trainee: Trainee, start: Parts, minibatch: Sequence[MicroBatch], loss: float, gradient: Parts
) -> float:
    """Make the trainee's first update, with COMPARED_STEP; the largest relative error of any part.

    `start`: its parameters before, `gradient`: what they are to lose. Raises SystemExit where it is another variant.
    """
    (made,) = trainee.train([minibatch])
    after = trainee.parts()
    worst = abs(made - loss) / abs(loss)
    for tower, parts in gradient.items():
        for part, expected in parts.items():
            moved = start[tower][part].double() - after[tower][part].to("cpu", torch.float64)
            error = moved / COMPARED_STEP - expected
            worst = max(worst, float(torch.linalg.vector_norm(error) / torch.linalg.vector_norm(expected)))
    if not worst <= TOLERANCE:
        raise SystemExit(f"{name} does not compute the model: its loss or gradient is off by {worst:.2g}")
    return worst
