"""Texts through a tower on a device, and the gradient of a loss by the tower's parameters.

    open_device("cuda")    the device of a request (training.compute.device), on this process's GPU

A run computes on the CPU, or on a CUDA GPU with the recurrence step by step (eager) or in fused kernels. Float32 sums
depend on the order of addition, so each of the three is an arithmetic of its own. Within one of them (and one kind of
GPU, one build of torch and Triton) a model's bytes do not depend on the number of workers or threads or on restarts,
given exact reduction; between them models agree to a tolerance.

Shapes: N texts, d dimensions, R touched rows, G columns.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from clicktower.schemas.errors import StageError
from clicktower.training.compute.device import can_compile
from clicktower.training.compute.reduction import RowGradient
from clicktower.training.model.parameters import Layout, tower_of
from clicktower.training.model.recipe import Recipe, tower_name
from clicktower.training.towers.text_batch import TextBatch
from clicktower.training.towers.tower import Parts, Tower, word_inputs
from clicktower.training.towers.tower_settings import Truncated


@dataclass(frozen=True, slots=True)
class Device:
    """Where tensors are, and what computes the recurrence."""

    place: torch.device
    fused: bool = False

    def tower(self, recipe: Recipe) -> Tower:
        """A recipe's tower on this device. The kernels know float32; everything else is computed eagerly."""
        tower = tower_of(recipe)
        if not self.fused or recipe.dtype != "float32":
            return tower
        from clicktower.training.towers.gpu_recurrent import fused  # imports Triton, which no other run needs

        return fused(tower)


CPU = Device(torch.device("cpu"))


def open_device(name: str) -> Device:
    """The named device in this process: its current GPU, which Ray sets for each worker.

    Turns TF32 off, which would keep 10 of 23 bits. Raises StageError if this process has no GPU, or cannot compile the
    kernels.
    """
    if name == "cpu":
        return CPU
    if not torch.cuda.is_available():
        raise StageError(
            f"There is no CUDA GPU for the device {name} here, or this build of torch has no CUDA.",
            "Run it where there is one, or train with device=cpu.",
        )
    if name == "cuda" and not can_compile():
        raise StageError(
            "The fused kernels of the device cuda need Triton, and the C compiler (gcc or clang) that starts them;"
            " one of the two is not installed.",
            "Install both (torch's wheels for Linux bring Triton), or train with device=cuda-eager.",
        )
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False  # on by default, whatever the precision of products
    return Device(torch.device("cuda", torch.cuda.current_device()), fused=name == "cuda")


@dataclass(frozen=True, slots=True)
class Encoder:
    """All parameters at one point: where a gradient is taken, the published Λ, or a model's.

    `table_at(name, rows)` gives some rows [R, G] of a tower's W; `parts` are its other parameters.
    """

    recipe: Recipe
    layout: Layout
    table_at: Callable[[str, torch.Tensor], torch.Tensor]
    parts: Mapping[str, Parts]
    device: Device = CPU

    @staticmethod
    def of(recipe: Recipe, layout: Layout, towers: Mapping[str, torch.Tensor], device: Device = CPU) -> "Encoder":
        """Of whole matrices [rows, G], by the towers' names."""
        split = {name: layout.split(matrix) for name, matrix in towers.items()}
        parts = {name: parts for name, (_, parts) in split.items()}
        return Encoder(recipe, layout, lambda name, rows: split[name][0].index_select(0, rows), parts, device)

    @property
    def dimensions(self) -> int:
        return tower_of(self.recipe).dimensions


@dataclass(frozen=True, slots=True)
class Encoded:
    """The embeddings of a batch's texts, in the caller's order, with the parameters that autograd made them of."""

    vectors_Nd: torch.Tensor
    own_loss: torch.Tensor | float  # the tower's own part of the loss
    name: str  # of the tower
    rows: torch.Tensor  # of W
    table_RG: torch.Tensor  # those rows
    parts: Parts  # all other parts in the tower's matrix: its own, and an objective's


def encode_batch(batch: TextBatch, side: str, encoder: Encoder) -> torch.Tensor:
    """The embeddings of a batch's texts, [N, d], in the caller's order."""
    with torch.no_grad():
        return encoded(batch, side, encoder).vectors_Nd


def encoded(batch: TextBatch, side: str, encoder: Encoder) -> Encoded:
    """A batch's texts through the tower of a side."""
    recipe, name = encoder.recipe, tower_name(encoder.recipe, side)
    # Leaves of their own, not views of one matrix: a view's gradient would be as large as the matrix.
    table_RG = encoder.table_at(name, batch.rows).detach().requires_grad_()
    parts = {part: values.detach().requires_grad_() for part, values in encoder.parts[name].items()}
    inputs_UG = word_inputs(table_RG, batch)
    steps = recipe.tower.truncate_steps if isinstance(recipe.tower, Truncated) else 0
    sorted_Nd, own_loss = encoder.device.tower(recipe).forward(inputs_UG, parts, batch, steps)
    vectors_Nd = torch.empty_like(sorted_Nd).index_copy(0, batch.order, sorted_Nd)
    return Encoded(vectors_Nd, own_loss, name, batch.rows, table_RG, parts)


def gradients(loss: torch.Tensor, sides: Sequence[Encoded], encoder: Encoder) -> list[tuple[str, RowGradient]]:
    """(the tower's name, the gradient of a loss by its parameters) for each of some sides, once.

    Each array is contiguous and alone in its memory, since it is added to in place; autograd gives one tensor to two
    parameters that were only added.
    """
    leaves = [leaf for side in sides for leaf in (side.table_RG, *side.parts.values())]
    memory, arrays = set[int](), []
    for array in torch.autograd.grad(loss, leaves, materialize_grads=True):
        is_shared = array.untyped_storage().data_ptr() in memory
        arrays.append(array.clone(memory_format=torch.contiguous_format) if is_shared else array.contiguous())
        memory.add(arrays[-1].untyped_storage().data_ptr())
    remaining = iter(arrays)
    gradients = []
    for side in sides:
        by_table_RG, by_parts = next(remaining), {part: next(remaining) for part in side.parts}
        trained = encoder.layout.trained(side.rows)
        gradients.append((side.name, RowGradient(trained, by_table_RG[: len(trained)], by_parts)))
    return gradients
