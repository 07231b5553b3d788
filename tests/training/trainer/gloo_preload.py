"""What each worker of tests.training.trainer.gloo_workers would load for itself: only their fork server loads this."""

from functools import cache
from importlib import metadata

import pyarrow as pa

from clicktower.training.trainer import classify, clicks, generate  # noqa: F401

pa.array([1]).to_numpy()  # imports pandas' side of it
# Every process group asks which packages bring backends, and reads what all that are installed say of themselves.
metadata.entry_points = cache(metadata.entry_points)
metadata.entry_points(group="torch.distributed.backends")
