"""Where a run computes, and all parameters of a model at one point (forward: texts through its towers).

    open_device("cuda")    the device of a request (training.compute.device), on this process's GPU

A run computes on the CPU, or on a CUDA GPU with the recurrence step by step (eager) or in fused kernels. Float32 sums
depend on the order of addition, so each of the three is an arithmetic of its own. Within one of them (and one kind of
GPU, one build of torch and Triton) a model's bytes do not depend on the number of workers or threads or on restarts,
given exact reduction; between them models agree to a tolerance.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from clicktower.schemas.errors import StageError
from clicktower.training.compute.device import can_compile
from clicktower.training.model.parameters import Layout, tower_of
from clicktower.training.model.recipe import Recipe
from clicktower.training.towers.tower import Parts, Tower


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
