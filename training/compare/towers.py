"""A row's towers: what the store has already, and the rest trained, each in a process of its own.

A training that runs out of memory or diverges ends its process and its row, not the comparison.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Any

from schemas.manifest import Request
from schemas.stage import Progress, StageResult, find_finished, open_result
from training.judged_files import Judged
from training.launch import fingerprints, train_request
from training.recipe import Recipe
from training.trial_process import Told, TrialProcess, interrupts_held

_LISTEN_SECONDS = 0.5


def of_seeds(recipe: Recipe, seeds: Sequence[int]) -> list[Recipe]:
    """The recipe with each of some seeds; with its own where none is given."""
    return [replace(recipe, seed=seed) for seed in seeds] or [recipe]


def requests(shards: str, recipes: Sequence[Recipe], where: Mapping[str, Any]) -> list[Request]:
    """What trains each recipe. `where`: device and path, as in training.launch.train_request."""
    built = open_result(shards)
    return [train_request(built, recipe, **where) for recipe in recipes]


def trained(
    shards: str,
    recipe: Recipe,
    *,
    store: str,
    judged: Judged,
    threads: int,
    where: Mapping[str, Any],
    progress: Progress,
) -> StageResult:
    """The trained model of a recipe.

    A training that watched the judgments of this comparison (as a pipeline's does) made the same bytes, and counts.
    Raises the training's own StageError.
    """
    built = open_result(shards)
    for watched in (None, judged):
        found, _ = find_finished(store, train_request(built, recipe, judged=fingerprints(watched), **where))
        if found:
            return found
    arguments = {"shards": shards, "store": store, "recipe": recipe, "threads": threads, **where}
    with interrupts_held() as let_interrupts_through, TrialProcess(arguments) as process:
        while True:
            let_interrupts_through()
            if not wait([process.pipe], _LISTEN_SECONDS):
                continue
            told = process.read()
            if isinstance(told, Told):
                progress(told.what, told.done, told.total)
            elif told.result:
                return told.result
            elif told.error:
                raise told.error
