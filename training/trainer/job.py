"""The job of a training worker, and its arithmetic.

Float32 sums depend on the arithmetic, so it is part of the request, and the same for all workers.

    compiled-2     the compiled path, on a CPU (training.kernel); the number goes up when its results change
    torch-5        the reference path, on a CPU; so does this one
    torch-rows-2   the reference path's gradients, and the updates by the compiled one
    torch-cuda-3, triton-cuda-3    on a GPU (device)

Within one of them a model's bytes do not depend on workers, threads or restarts; between them models agree to a
tolerance.
"""

import os
from dataclasses import dataclass
from typing import Literal, get_args

from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.judgments import Judged
from clicktower.schemas.manifest import OutputFile
from clicktower.training.kernel.kernel_library import status
from clicktower.training.model.kernel_towers import can_train, moves_rows
from clicktower.training.model.recipe import NO_SOURCES, Recipe, Sources

Path = Literal["auto", "compiled", "torch", "rows"]
COMPILED = "compiled-2"
REFERENCE = "torch-5"
ROWS = "torch-rows-2"
# The path for each CPU arithmetic, or a refusal: a node that lacks it must not make another model.
ONLY_PATH = {COMPILED: "compiled", REFERENCE: "torch", ROWS: "rows"}
ON_GPU = {"cuda-eager": "torch-cuda-3", "cuda": "triton-cuda-3"}

# The files of a GPU's driver: Nvidia's, that of its Jetson boards, Windows' for its Linux, AMD's.
DRIVER_FILES = ("/dev/nvidiactl", "/dev/nvmap", "/dev/dxg", "/dev/kfd")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingJob:
    """The job of a worker. The recipe, shards, sources and arithmetic alone determine the model."""

    shards: str
    shard_files: tuple[OutputFile, ...]  # as the build's manifest has them
    recipe: Recipe
    judged: Judged | None
    threads: int  # of each worker; 0: all that the cluster has (ray_workers)
    digest: str  # of the request: a checkpoint of another one is refused
    checkpoints: str
    output: str
    checkpoint_seconds: float
    sources: Sources = NO_SOURCES  # model folders and files
    device: str = "cpu"  # cpu, cuda or cuda-eager
    arithmetic: str = REFERENCE  # the arithmetic of every worker
    stop_after: int | None = None  # stop after so many epochs with a checkpoint instead of a model


def count_gpus() -> int:
    """The number of this machine's GPUs that torch can use."""
    if not any(map(os.path.exists, DRIVER_FILES)):  # without a driver torch finds no GPU either
        return 0
    import torch  # takes seconds to load

    return torch.cuda.device_count()


def completed(recipe: Recipe, word_vectors: str | None, teacher: str | None) -> Recipe:
    """A recipe for a file of word vectors and a teacher's folder, or without. Raises UsageError and StageError as
    with_word_vectors and with_teacher.
    """
    if word_vectors or recipe.word_vectors:
        from clicktower.training.model.word_vectors import with_word_vectors

        recipe = with_word_vectors(recipe, word_vectors)
    if teacher or recipe.clicks.teacher:
        from clicktower.training.model.teacher import with_teacher

        recipe = with_teacher(recipe, teacher)
    return recipe


def arithmetic_of(path: str, recipe: Recipe, device: str) -> str:
    """The arithmetic of a path (auto: the compiled one, or as much of it as supports the recipe) on a device.

    Raises UsageError for an unknown path, or a requested one that does not support the recipe.
    """
    if path not in get_args(Path):
        raise UsageError(f"There is no path named {path!r}.", f"Use one of {', '.join(get_args(Path))}.")
    if device != "cpu" and path in ("auto", "torch"):
        return ON_GPU[device]
    if device == "cpu":
        if path in ("auto", "compiled") and can_train(recipe):
            return COMPILED
        if path in ("auto", "rows") and moves_rows(recipe):
            return ROWS
        if path in ("auto", "torch"):
            return REFERENCE
    raise UsageError(
        f"The {path} path does not train {recipe.name}: "
        + ("it computes on a CPU, and a GPU was asked for." if device != "cpu" else f"{_reason(recipe)}."),
        "Use --path auto, which takes the reference path where it has to.",
    )


def require_served(arithmetic: str, recipe: Recipe) -> None:
    """Raise StageError if this process lacks the arithmetic that was chosen when the run started."""
    serves = {COMPILED: can_train, ROWS: moves_rows}.get(arithmetic)
    if serves and not serves(recipe):
        raise StageError(
            f"A worker cannot train {recipe.name} with the arithmetic {arithmetic}: on its machine {_reason(recipe)}."
            " Its sums would round differently, and the model's bytes would depend on which worker did it.",
            "Install the package there with a C++ compiler at hand, or train everywhere with --path torch.",
        )


def _reason(recipe: Recipe) -> str:
    kernel = status()
    if not kernel.available:
        return f"the compiled path is not available ({kernel.reason})"
    words = recipe.word_vectors.kind if recipe.word_vectors else "none"
    return (
        f"it does not serve this recipe ({recipe.tower.kind}, {recipe.tower.cells} cells, {recipe.dtype}, "
        f"{recipe.objective.kind}, {recipe.optimiser.kind}, word vectors: {words}, "
        f"{'a' if recipe.clicks.teacher else 'no'} teacher)"
    )
