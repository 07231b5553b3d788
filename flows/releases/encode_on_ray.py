"""Encoding of a catalogue's titles by tasks of a Ray cluster: titles go to the tasks, vectors go to files.

The model is read by each worker from the store, so both the store and the release URI must be where every node sees
them. A task that is lost with its node is tried again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import ray

from schemas.errors import StageError
from training.models.ensemble import Ensemble, load_encoder
from training.models.model import Model
from training.run.ray_cluster import cluster

_TRIES = 3


# Encodes titles by a model and writes their vectors to a file.
EncodePart = Callable[[Model | Ensemble, Sequence[str], str], None]


def encode_parts(
    encode_part: EncodePart, model: str, parts: Mapping[int, tuple[Sequence[str], str]], workers: int
) -> Iterator[int]:
    """The number of each part (titles, file to write), in the order in which they are finished.

    Joins the cluster that this process is connected to or that RAY_ADDRESS names; without either it starts one of its
    own and ends it. Raises StageError where a part fails again and again.
    """
    with cluster(workers):
        try:
            share = max(1, int(ray.cluster_resources().get("CPU", 1)) // workers)
            task = cast(Any, ray.remote(num_cpus=share, max_retries=_TRIES, scheduling_strategy="SPREAD")(_encode_part))
            number = {task.remote(encode_part, model, texts, name): at for at, (texts, name) in parts.items()}
            running = list(number)
            while running:
                finished, running = ray.wait(running, num_returns=1)
                ray.get(finished)
                yield number[finished[0]]
        except (ray.exceptions.RayTaskError, ray.exceptions.RayError) as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, StageError):
                raise cause from None
            raise StageError(asked=f"titles were to be encoded by {workers} workers",
                             found=f"one of them failed again and again ({type(error).__name__})",
                             follows="what is live stays as it is, and the parts that are finished are kept",
                             do="publish again, or with --workers 1 on this machine alone") from None  # fmt: skip


def _encode_part(encode_part: EncodePart, model: str, texts: Sequence[str], name: str) -> None:
    encode_part(_loaded(model), texts, name)


@lru_cache(maxsize=1)
def _loaded(model: str) -> Model | Ensemble:
    return load_encoder(model)
