"""What workers tell each other: which rows were touched, and sums. One worker alone, or several through gloo."""

from typing import Protocol

import torch


class Workers(Protocol):
    """The workers of a run, as one of them sees them."""

    rank: int
    size: int

    def unite(self, touched: torch.Tensor) -> None:
        """Make a bool mask true wherever it is true on any worker, in place."""

    def add_up(self, values: torch.Tensor) -> None:
        """Replace values by their sum over all workers, in place. Never the mean."""


class Alone:
    """A single worker, in process."""

    rank, size = 0, 1

    def unite(self, touched: torch.Tensor) -> None:
        pass

    def add_up(self, values: torch.Tensor) -> None:
        pass


class ProcessGroup:
    """Workers in the processes of torch's default process group."""

    def __init__(self) -> None:
        self.rank = torch.distributed.get_rank()
        self.size = torch.distributed.get_world_size()

    def unite(self, touched: torch.Tensor) -> None:
        as_bytes = touched.to(torch.uint8)
        torch.distributed.all_reduce(as_bytes, torch.distributed.ReduceOp.MAX)
        touched.copy_(as_bytes)

    def add_up(self, values: torch.Tensor) -> None:
        torch.distributed.all_reduce(values, torch.distributed.ReduceOp.SUM)
