"""Communication between workers: touched rows and sums. One worker alone, or several through gloo."""

from collections.abc import Mapping
from typing import Any, Protocol

import torch


class Workers(Protocol):
    """The workers of a run from the view of one of them."""

    rank: int
    size: int
    sent_bytes: int  # that this worker has handed to the sums so far

    def unite(self, touched: torch.Tensor) -> None:
        """Make a bool mask true wherever it is true on any worker, in place."""

    def add_up(self, values: torch.Tensor) -> None:
        """Replace values by their sum over all workers, in place. Never the mean."""

    def report(self, figures: Mapping[str, Any]) -> None:
        """Report an epoch's figures to whoever started the workers. All call it; those of the first one count."""


class Alone:
    """A single worker, in process."""

    rank, size, sent_bytes = 0, 1, 0

    def unite(self, touched: torch.Tensor) -> None:
        pass

    def add_up(self, values: torch.Tensor) -> None:
        pass

    def report(self, figures: Mapping[str, Any]) -> None:
        pass


class ProcessGroup:
    """Workers in the processes of torch's default process group."""

    def __init__(self) -> None:
        self.rank = torch.distributed.get_rank()
        self.size = torch.distributed.get_world_size()
        self.sent_bytes = 0

    def unite(self, touched: torch.Tensor) -> None:
        as_bytes = touched.to(torch.uint8)
        self.sent_bytes += as_bytes.nbytes
        torch.distributed.all_reduce(as_bytes, torch.distributed.ReduceOp.MAX)
        touched.copy_(as_bytes)

    def add_up(self, values: torch.Tensor) -> None:
        self.sent_bytes += values.nbytes
        torch.distributed.all_reduce(values, torch.distributed.ReduceOp.SUM)

    def report(self, figures: Mapping[str, Any]) -> None:
        pass
