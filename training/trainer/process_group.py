"""Several workers in the processes of a group, whoever starts them (local_workers, ray_workers)."""

from collections.abc import Mapping

import numpy as np
import torch

from clicktower.schemas.errors import StageError
from clicktower.training.trainer.checkpoint import list_updates, remove_checkpoint
from clicktower.training.trainer.large_update import Workers
from clicktower.training.trainer.optimisers import RowState


class ProcessGroup(Workers):
    """Workers in the processes of torch's default process group."""

    def __init__(self) -> None:
        self.rank = torch.distributed.get_rank()
        self.size = torch.distributed.get_world_size()

    def unite(self, touched: torch.Tensor) -> None:
        as_bytes = touched.to(torch.uint8)
        self.sent_bytes += as_bytes.nbytes
        torch.distributed.all_reduce(as_bytes, torch.distributed.ReduceOp.MAX)
        touched.copy_(as_bytes)

    def add_up(self, values: torch.Tensor) -> None:
        self.sent_bytes += values.nbytes
        torch.distributed.all_reduce(values, torch.distributed.ReduceOp.SUM)


def gpu_share(num_workers: int, num_gpus: int) -> dict[str, float]:
    """What each worker requests from Ray: a GPU of its own, or a part of one if there are more workers than GPUs."""
    return {"GPU": 1 / -(-num_workers // num_gpus)} if num_gpus else {}


def process_group_backend(num_workers: int, num_gpus: int) -> str:
    """The backend for sums over workers: NCCL for tensors on GPUs if each worker has its own, otherwise gloo.

    NCCL refuses two ranks on one GPU. Tensors on the CPU always use gloo.
    """
    return "cpu:gloo,cuda:nccl" if num_workers <= num_gpus else "gloo"


BITS = {4: np.int32, 8: np.int64}  # by the bytes of a number


def state_sums(rows: Mapping[str, RowState]) -> list[int]:
    """Checksums of a state that change with any bit: the sum of its bits as integers."""
    arrays = (values for tower in sorted(rows) for values in rows[tower].arrays().values())
    return [int(values.view(BITS[values.dtype.itemsize]).sum(dtype=np.int64)) for values in arrays]


def require_equal(workers: Workers, rows: Mapping[str, RowState], *, update: int, since: int, checkpoints: str) -> None:
    """Raise StageError on every one of several workers if their states differ after an update. All call it together.

    `since`: the update after which they were last known to be equal; checkpoints of later ones cannot be trusted, and
    are removed.
    """
    sums = torch.tensor(state_sums(rows), dtype=torch.int64)
    sums_WA = torch.zeros(workers.size, len(sums), dtype=torch.int64)
    sums_WA[workers.rank] = sums
    workers.add_up(sums_WA)
    differing = [f"{rank + 1}" for rank in range(workers.size) if not torch.equal(sums_WA[rank], sums_WA[0])]
    if not differing:
        return
    if workers.rank == 0:
        remove_checkpoints_after(checkpoints, since)
    raise StageError(
        f"After update {update:,} worker{'s' * (len(differing) > 1)} {', '.join(differing)} of {workers.size}"
        f" hold{'s' * (len(differing) == 1)} another state than worker 1; after update {since:,} all were equal."
        f" Checkpoints after update {since:,} were removed.",
        "Look for a machine with other software or faulty memory, then run the same command again.",
    )


def remove_checkpoints_after(folder: str, update: int) -> None:
    """Remove every checkpoint of an update later than this."""
    for later in [number for number in list_updates(folder) if number > update]:
        remove_checkpoint(folder, later)
