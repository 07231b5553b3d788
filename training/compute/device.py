"""The device of a run, chosen without torch if possible, since a finished model needs none."""

import importlib.util
import os
import shutil

DEVICES = ("auto", "cpu", "cuda", "cuda-eager")

# The files of a GPU's driver: Nvidia's, that of its Jetson boards, Windows' for its Linux, AMD's.
DRIVER_FILES = ("/dev/nvidiactl", "/dev/nvmap", "/dev/dxg", "/dev/kfd")


def count_gpus() -> int:
    """The number of this machine's GPUs that torch can use."""
    if not any(map(os.path.exists, DRIVER_FILES)):  # without a driver torch finds no GPU either
        return 0
    import torch  # takes seconds to load

    return torch.cuda.device_count()


def can_compile() -> bool:
    """Whether Triton is here, and the C compiler that it looks for."""
    return importlib.util.find_spec("triton") is not None and any(map(shutil.which, ("gcc", "clang")))


def gpu_share(num_workers: int, num_gpus: int) -> dict[str, float]:
    """What each worker requests from Ray: a GPU of its own, or a part of one if there are more workers than GPUs."""
    return {"GPU": 1 / -(-num_workers // num_gpus)} if num_gpus else {}


def process_group_backend(num_workers: int, num_gpus: int) -> str:
    """The backend for sums over workers: NCCL for tensors on GPUs if each worker has its own, otherwise gloo.

    NCCL refuses two ranks on one GPU. Tensors on the CPU always use gloo.
    """
    return "cpu:gloo,cuda:nccl" if num_workers <= num_gpus else "gloo"
