"""The Ray cluster that a command computes on: the one it is connected to, that of RAY_ADDRESS, or one of its own."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import ray

from schemas.errors import StageError

# Ray gives a node 30 seconds to start, and no way to give it more. A slow or busy machine may need another try, which
# finds in memory what the first one read from disk.
STARTS = 4


@contextmanager
def cluster(num_cpus: int) -> Iterator[None]:
    """Within, this process is on a cluster. One of its own has `num_cpus` CPUs and ends with the block.

    Raises ConnectionError where no head answers at RAY_ADDRESS, StageError where no Ray can be started here.
    """
    if ray.is_initialized():
        yield
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if "RAY_ADDRESS" in os.environ:
        try:
            ray.init(**quiet)
        except RuntimeError as error:  # of many kinds, where no head answers
            raise ConnectionError(str(error)) from error
    else:
        _start(num_cpus=num_cpus, **quiet)
    try:
        yield
    finally:
        ray.shutdown()


def _start(**options: Any) -> None:
    for start in range(1, STARTS + 1):
        try:
            ray.init(address="local", include_dashboard=False, **options)
            return
        except Exception as error:  # Ray raises no narrower kind
            ray.shutdown()
            if "timed out during startup" not in str(error):
                raise
            if start == STARTS:
                raise StageError(
                    asked="a Ray of this machine's own was to be started",
                    found=f"it was not ready within 30 seconds, {STARTS} times",
                    follows="nothing was computed",
                    do="try again when the machine has less to do, or start Ray by hand and name it in RAY_ADDRESS",
                ) from error
