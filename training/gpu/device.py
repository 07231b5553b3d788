"""Where a run computes: the CPU, or a CUDA GPU with the recurrence step by step (eager) or in fused kernels.

    open_device("cuda")    what a request is for (device_name), on this process's GPU

Float32 sums depend on who adds them up, so each of the three is an arithmetic of its own. Within one of them (and one
kind of GPU, one build of torch and Triton) a model's bytes depend on no number of workers or threads and no restart,
given exact reduction; between them models agree to a tolerance.
"""

from dataclasses import dataclass

import torch

from schemas.errors import StageError
from training.gpu.device_name import can_compile
from training.recipes.recipe import Recipe
from training.towers import Tower, tower_of


@dataclass(frozen=True, slots=True)
class Device:
    """Where tensors are, and who computes the recurrence."""

    place: torch.device
    fused: bool = False

    def tower(self, recipe: Recipe) -> Tower:
        """A recipe's tower as it is computed here. The kernels know float32; everything else is computed eagerly."""
        tower = tower_of(recipe)
        if not self.fused or recipe.dtype != "float32":
            return tower
        from training.gpu.gpu_recurrent import fused  # imports Triton, which no other run needs

        return fused(tower)


CPU = Device(torch.device("cpu"))


def open_device(name: str) -> Device:
    """The named device in this process: its current GPU, which Ray sets for each worker.

    Turns TF32 off, which would keep 10 of 23 bits. Raises StageError where this process has no GPU, or nothing to
    compile the kernels with.
    """
    if name == "cpu":
        return CPU
    if not torch.cuda.is_available():
        raise StageError(
            asked=f"training was to compute on {name}",
            found="there is no CUDA GPU here, or this build of torch has no CUDA",
            do="run it where there is one, or train with device=cpu",
        )
    if name == "cuda" and not can_compile():
        raise StageError(
            asked="training was to compute on cuda, with the recurrence in fused kernels",
            found="Triton, or the C compiler (gcc or clang) it needs to start them, is not installed",
            do="install both (torch's wheels for Linux bring Triton), or train with device=cuda-eager",
        )
    torch.set_float32_matmul_precision("highest")
    return Device(torch.device("cuda", torch.cuda.current_device()), fused=name == "cuda")


def gpu_share(num_workers: int, num_gpus: int) -> dict[str, float]:
    """What each worker asks Ray for: a GPU of its own, or a part of one where there are more workers than GPUs."""
    return {"GPU": 1 / -(-num_workers // num_gpus)} if num_gpus else {}


def process_group_backend(num_workers: int, num_gpus: int) -> str:
    """The backend that adds up over workers: NCCL for tensors on GPUs where each worker has its own, else gloo.

    NCCL refuses two ranks on one GPU. What is on the CPU always goes through gloo.
    """
    return "cpu:gloo,cuda:nccl" if num_workers <= num_gpus else "gloo"
