"""Whether all workers still hold the same state. Each makes every update for itself, so nothing else would show it."""

from collections.abc import Mapping

import numpy as np
import torch

from schemas.errors import StageError
from training.checkpoint import remove_checkpoints_after
from training.states import RowState
from training.workers import Workers

BITS = {4: np.int32, 8: np.int64}  # of numbers of so many bytes


def state_sums(rows: Mapping[str, RowState]) -> list[int]:
    """A few numbers that change with any bit of a state: its bits, added up as integers."""
    sums = []
    for tower in sorted(rows):
        for values in rows[tower].arrays().values():
            sums.append(int(values.view(BITS[values.dtype.itemsize]).sum(dtype=np.int64)))
    return sums


def require_equal(workers: Workers, rows: Mapping[str, RowState], *, update: int, since: int, checkpoints: str) -> None:
    """Raise StageError on every worker if their states differ after an update. All workers are to call it together.

    `since`: the update after which they were last known to be equal; what was kept of later ones cannot be trusted, and
    is removed.
    """
    if workers.size == 1:
        return
    own = torch.tensor(state_sums(rows), dtype=torch.int64)
    all_of_them = torch.zeros(workers.size, len(own), dtype=torch.int64)
    all_of_them[workers.rank] = own
    workers.add_up(all_of_them)
    others = [rank + 1 for rank in range(workers.size) if not torch.equal(all_of_them[rank], all_of_them[0])]
    if not others:
        return
    if workers.rank == 0:
        remove_checkpoints_after(checkpoints, since)
    raise StageError(
        asked=f"after update {update:,} all workers must hold the same state",
        found=f"{_listed(others)} of {workers.size} hold another than worker 1; after update {since:,} all were equal",
        follows="the model would depend on which of them writes it",
        do="look for a machine with other software or faulty memory, then run the same command again: checkpoints"
        f" after update {since:,} were removed",
    )


def _listed(others: list[int]) -> str:
    return "worker " + str(others[0]) if len(others) == 1 else "workers " + ", ".join(map(str, others))
