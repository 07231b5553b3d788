"""The workers of a training and their device, chosen without torch if possible, since a finished model needs none."""

import os
from dataclasses import dataclass
from typing import Literal, get_args

from clicktower.schemas.errors import UsageError

DeviceName = Literal["auto", "cpu", "cuda", "cuda-eager"]
DEVICES = get_args(DeviceName)

# The files of a GPU's driver: Nvidia's, that of its Jetson boards, Windows' for its Linux, AMD's.
DRIVER_FILES = ("/dev/nvidiactl", "/dev/nvmap", "/dev/dxg", "/dev/kfd")


@dataclass(frozen=True, kw_only=True)
class Compute:
    """Where and how a training computes. With the exact reduction `device` and `path` alone change its bytes.

    Raises UsageError for a number of workers or threads that is no number of any.

    Args:
        workers: Data-parallel workers; auto: one for each GPU of the Ray cluster, or without one of this machine, and
            one where there is no GPU.
        min_workers: In a Ray cluster, continue with as few workers when nodes are lost, and with more again when they
            come back; without it the run waits ten minutes for a replacement.
        threads: Threads of each worker; by default the cores of this machine, or of the Ray cluster, divided by the
            workers.
        path: On a CPU: compiled (which towers, and whether it is available, `clicktower doctor` says) or torch, the
            reference. auto: compiled where it supports the recipe. The two round differently.
        device: cpu; cuda (the recurrence in fused kernels), cuda-eager (step by step); auto: a GPU that passes its
            check (`clicktower doctor`), on this machine or, with RAY_ADDRESS set, on a node of the Ray cluster. They
            round differently, so each gives a different model.
    """

    workers: int | Literal["auto"] = 1
    min_workers: int | None = None
    threads: int | None = None
    path: Literal["auto", "compiled", "torch"] = "auto"
    device: DeviceName = "auto"

    def __post_init__(self) -> None:
        for what, option, number in (
            ("workers", "--workers", self.workers),
            ("workers to continue with", "--min-workers", self.min_workers),
            ("threads of each worker", "--threads", self.threads),
        ):
            if isinstance(number, int) and number < 1:
                raise UsageError(f"The {what} are {number}, and must be at least 1.", f"Give {option} 1 or more.")
        if self.min_workers is not None and isinstance(self.workers, int) and self.min_workers > self.workers:
            raise UsageError(
                f"At least {self.min_workers} workers are to continue, which is more than the {self.workers} that there"
                " are.",
                f"Give --min-workers {self.workers} or fewer.",
            )


ONE_WORKER = Compute()


def count_gpus() -> int:
    """The number of this machine's GPUs that torch can use."""
    if not any(map(os.path.exists, DRIVER_FILES)):  # without a driver torch finds no GPU either
        return 0
    import torch  # takes seconds to load

    return torch.cuda.device_count()
