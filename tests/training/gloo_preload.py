"""What each worker of tests.training.gloo_workers would load for itself: only their fork server loads this."""

from functools import cache
from importlib import import_module, metadata

import pyarrow as pa

import tests.training.gloo_workers  # noqa: F401

pa.array([1]).to_numpy()  # imports pandas' side of it
for objective in ("clicks", "classify", "generate"):
    import_module(f"training.objectives.{objective}")
# Every process group asks which packages bring backends, and reads what all that are installed say of themselves.
metadata.entry_points = cache(metadata.entry_points)
metadata.entry_points(group="torch.distributed.backends")
