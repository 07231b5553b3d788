"""The arithmetic of a run. Float32 sums depend on it, so it is part of the request, and the same for all workers.

    compiled-2     the compiled path, on a CPU (training.kernel); the number goes up when its results change
    torch-4        the reference path, on a CPU; so does this one
    torch-cuda-2, triton-cuda-2    on a GPU (device)

Within one of them a model's bytes do not depend on workers, threads or restarts; between them models agree to a
tolerance.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, get_args

from schemas.errors import StageError, UsageError
from training.kernel.kernel_library import status, trains
from training.recipes.recipe import Recipe
from training.recipes.towers import BiLSTM, Truncated

if TYPE_CHECKING:
    from training.network.encoder import Device
    from training.update import large_update

Path = Literal["auto", "compiled", "torch"]
COMPILED = "compiled-2"
REFERENCE = "torch-4"
ON_GPU = {"cuda-eager": "torch-cuda-2", "cuda": "triton-cuda-2"}


def arithmetic_of(path: str, recipe: Recipe, device: str) -> str:
    """The arithmetic of a path (auto: the compiled one if it supports the recipe) on a device.

    Raises UsageError for an unknown path, and where the compiled one was asked for and does not serve.
    """
    if path not in get_args(Path):
        raise UsageError(
            asked=f"training was asked for on the path {path!r}",
            found="there is no path of that name",
            do=f"use one of {', '.join(get_args(Path))}",
        )
    if path == "compiled" and (device != "cpu" or not trains(recipe)):
        reason = "it computes on a CPU, and a GPU was asked for" if device != "cpu" else _reason(recipe)
        raise UsageError(
            asked=f"{recipe.name} was to be trained on the compiled path",
            found=reason,
            do="use --path auto, which takes the reference path where it has to",
        )
    if device != "cpu":
        return ON_GPU[device]
    return COMPILED if path != "torch" and trains(recipe) else REFERENCE


def require_served(arithmetic: str, recipe: Recipe) -> None:
    """Raise StageError if this process lacks the arithmetic that the process that started the run chose."""
    if arithmetic == COMPILED and not trains(recipe):
        raise StageError(
            asked=f"a worker was to train {recipe.name} on the compiled path ({COMPILED})",
            found=f"on its machine {_reason(recipe)}",
            follows="its sums would round differently, and the model's bytes would depend on which worker did it",
            do="install the package there with a C++ compiler at hand, or train everywhere with --path torch",
        )


def path_of(
    arithmetic: str,
    recipe: Recipe,
    device: "Device",
    num_threads: int,
    batch_of: "Callable[[Any], large_update.LossBatch]",
) -> "large_update.Path":
    """The path with an arithmetic. `batch_of`: the objective's (training.objectives), for the reference path."""
    if arithmetic != COMPILED:
        from training.update.large_update import ReferencePath

        return ReferencePath(device, batch_of)
    from training.kernel.kernel_path import CompiledPath

    # Steps that texts share cannot be cut off for one and kept for another.
    assert isinstance(recipe.tower, Truncated)
    return CompiledPath(
        num_threads,
        both_directions=isinstance(recipe.tower, BiLSTM),
        share_prefixes=not recipe.tower.truncate_steps,
    )


def _reason(recipe: Recipe) -> str:
    found = status()
    if not found.available:
        return f"the compiled path is not available ({found.reason})"
    words = recipe.word_vectors.kind if recipe.word_vectors else "none"
    return (
        f"it does not serve this recipe ({recipe.tower.kind}, {recipe.tower.cells} cells, {recipe.dtype}, "
        f"{recipe.objective.kind}, {recipe.optimiser.kind}, word vectors: {words}, "
        f"{'a' if recipe.clicks.teacher else 'no'} teacher)"
    )
