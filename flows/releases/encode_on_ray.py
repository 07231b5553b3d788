"""Titles encoded by tasks of a Ray cluster: each reads the model from the store and writes its part (encode_texts)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np
import ray

from clicktower.flows.releases.encode_texts import read_part, write_part
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.stage import StageResult
from clicktower.training.model.embedding import AnyEncoder, search_vectors
from clicktower.training.model.model import load_encoder
from clicktower.training.trainer.ray_cluster import cluster

_TRIES = 3  # tries of workers at a part


def encode_on_ray(
    trained: StageResult, workers: int
) -> Callable[[AnyEncoder, Mapping[int, Sequence[str]], Mapping[int, str]], Iterator[tuple[int, np.ndarray]]]:
    """(model, texts of each part, its file) -> the number and vectors of each part, in the order of completion.

    It uses the cluster that this process is connected to or that RAY_ADDRESS names; without either it starts one and
    ends it. Raises StageError if a part fails repeatedly.
    """

    def encode(
        model: AnyEncoder, texts: Mapping[int, Sequence[str]], names: Mapping[int, str]
    ) -> Iterator[tuple[int, np.ndarray]]:
        with cluster(workers):
            try:
                share = max(1, int(ray.cluster_resources().get("CPU", 1)) // workers)
                options = ray.remote(num_cpus=share, max_retries=_TRIES, scheduling_strategy="SPREAD")
                task = cast(Any, options(_encode_part))
                where = storage.absolute(trained.data)
                number = {task.remote(where, part, storage.absolute(names[at])): at for at, part in texts.items()}
                running = list(number)
                while running:
                    finished, running = ray.wait(running, num_returns=1)
                    ray.get(finished)
                    at = number[finished[0]]
                    vectors = read_part(names[at], len(texts[at]), model.dimensions)
                    # Not visible from here (a folder on the worker's own machine), or removed by another publisher.
                    yield at, search_vectors(model, texts[at], "document") if vectors is None else vectors
            except (ray.exceptions.RayTaskError, ray.exceptions.RayError) as error:
                cause = getattr(error, "cause", None)
                if isinstance(cause, StageError):
                    raise cause from None
                raise StageError(
                    f"A worker of {workers} that encode titles failed again and again ({type(error).__name__})."
                    " Finished parts are kept; what is live stays as it is.",
                    "Publish again, or with --workers 1 on this machine alone.",
                ) from None

    return encode


def _encode_part(model: str, texts: Sequence[str], name: str) -> None:
    """A worker's task."""
    write_part(name, search_vectors(_loaded(model), texts, "document"))


@lru_cache(maxsize=1)
def _loaded(model: str) -> AnyEncoder:
    return load_encoder(model)
