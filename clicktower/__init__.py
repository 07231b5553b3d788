"""clicktower from Python: what the commands do, for programs and notebooks.

    import clicktower

    release = clicktower.load("release")        # or s3://bucket/release, or a folder that `clicktower train` printed
    release.search("angle bracket", k=3)
    release.encode_queries(["angle bracket"])

Errors are UsageError (the request is wrong) and StageError (it failed); both say what is wrong and what to do.
"""

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clicktower.api import Model, Release, load, run, train
    from clicktower.schemas.errors import StageError, UsageError

__all__ = ["Model", "Release", "StageError", "UsageError", "load", "run", "train"]

# No engine that this package uses or starts sends usage reports, unless the user enables them. Set here, because every
# module of ours imports this package before any engine.
for _name, _value in {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
}.items():
    os.environ.setdefault(_name, _value)

# An installed clicktower holds its packages; in a checkout, also one that Ray copies to a node, they lie beside it.
if not Path(__file__).with_name("schemas").exists():
    __path__.append(str(Path(__file__).parents[1]))


def __getattr__(name: str) -> Any:
    """The interface is imported when it is used: a command needs none of it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("clicktower.api"), name)
