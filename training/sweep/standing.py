"""What the store knows of a trial: the figures of the epochs that are behind it, whether it is finished or not."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from schemas import storage
from schemas.errors import StageError
from schemas.manifest import Request
from schemas.stage import find_finished, stage_folder
from training.checkpoint import read_curve
from training.sweep.table import MEASURES, Trial


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """`curve`: a point for each epoch, as in curves.json (training.curves). `finished`: there is a model."""

    curve: list[dict[str, Any]]
    finished: bool


def standing(store: str, request: Request) -> Standing:
    """How far the training of a request is in a store."""
    finished, _ = find_finished(store, request)
    if finished:
        curve = json.loads(storage.read_bytes(storage.join(finished.data, "curves.json")))
        return Standing(curve=curve, finished=True)
    checkpoints = storage.join(stage_folder(store, request), "checkpoints")
    return Standing(curve=read_curve(checkpoints, request.digest), finished=False)


def measured(trial: Trial, found: Standing, epochs: int, measure: str) -> Trial:
    """The trial with its figures after so many epochs, as if it had stopped there even where it is further.

    What else the store holds must not decide who is best. Raises StageError where `measure` was not measured.
    """
    curve = found.curve[:epochs]
    last: Mapping[str, Any] = curve[-1]
    if last.get(measure) is None:
        raise StageError(
            asked=f"the trials were to be compared by {measure}",
            found=f"the training {trial.digest} had nothing to measure that on",
            follows="none of the trials can be compared by it",
            do=f"choose another of {', '.join(MEASURES)}, or give judged files",
        )
    return replace(
        trial,
        measures={name: last[name] for name in MEASURES if last.get(name) is not None},
        seconds=sum(point["seconds"] for point in curve),
        epochs=epochs,
        curve=[point.get(measure) for point in curve],
    )
