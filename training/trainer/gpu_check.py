"""Whether a GPU computes the same as the CPU, before anything is trained on it.

    gpu_problem("cuda")    empty, or the device's defect

The gradient of one micro-batch is computed twice there and once on the CPU in float64: for the paper's LSTM, and for a
bidirectional one with all gates, which together run every branch of the kernels. The result is kept in the user's cache
for each kind of GPU and version of its driver, torch and Triton.
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.stage import Progress, silent
from clicktower.training.model.parameters import CPU, Device, Encoder, initial_parameters, layout_of
from clicktower.training.model.recipe import DeviceName, Recipe
from clicktower.training.model.recipe import recipe as named_recipe
from clicktower.training.towers.text_table import Ragged, TextTable, list_offsets
from clicktower.training.towers.tower_kinds import BiLSTM
from clicktower.training.towers.tower_settings import LSTM
from clicktower.training.trainer.click_loss import pair_batch, pair_gradient
from clicktower.training.trainer.job import ON_GPU
from clicktower.training.trainer.large_update import Workers
from clicktower.training.trainer.shard_data import Pairs, apart

TOLERANCE = 2e-5  # relative to an array's largest number; float32 rounding takes a fortieth of it
CHECKED = (LSTM(), BiLSTM(forget_gate=True, peepholes=True))
NUM_ROWS, NUM_PAIRS, NUM_NEGATIVES, LONGEST = 500, 48, 4, 24  # of the micro-batch


def device_of_gpu(progress: Progress = silent) -> DeviceName:
    """The fastest device of this process's GPU that passes its check; cpu if none does. Reports those that fail."""
    names: tuple[DeviceName, ...] = ("cuda", "cuda-eager") if can_compile() else ("cuda-eager",)
    for name in names:
        progress(f"checking the GPU ({name})", 0, None)
        if not (problem := gpu_problem(name)):
            return name
        progress(f"{gpu_kind(name)} does not pass the check of the device {name}: {problem}", 0, None)
    return "cpu"


def require_right_gpu(name: str) -> None:
    """Raises StageError if this process's GPU fails the check of a device."""
    if problem := gpu_problem(name):
        raise StageError(
            f"{gpu_kind(name)} does not pass the check of the device {name}: {problem}.",
            "Train with device=cuda-eager or device=cpu, or with another version of torch, Triton or the driver.",
        )


def gpu_problem(name: str) -> str:
    """The defect of a device of this process's GPU, in words; empty if there is none, or no GPU."""
    if name == "cpu" or not torch.cuda.is_available():
        return ""
    kind = f"{gpu_kind(name)}, driver {_driver()}, {ON_GPU[name]}"
    answer = Path.home() / ".cache" / "clicktower" / f"gpu-{hashlib.sha256(kind.encode()).hexdigest()[:16]}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):  # none yet, or in another format
        kept = json.loads(answer.read_bytes())
        if kept["kind"] == kind:
            return str(kept["problem"])
    problem = difference(open_device(name))
    with suppress(OSError):  # if the home is not writable the next process checks again
        storage.write_atomic(str(answer), json.dumps({"kind": kind, "problem": problem}).encode())
    return problem


def gpu_kind(name: str) -> str:
    """What a device's results depend on besides the code: the GPU, torch, its kernels' compiler; empty without a
    GPU.
    """
    if name == "cpu" or not torch.cuda.is_available():
        return ""
    triton = f", Triton {importlib.metadata.version('triton')}" if name == "cuda" else ""
    return f"{torch.cuda.get_device_name()}, torch {torch.__version__}{triton}"


def kinds_of_workers(kind: str, workers: Workers) -> list[str]:
    """The distinct kinds of all workers' GPUs. All call it together."""
    table = torch.zeros(workers.size, 256, dtype=torch.int64)
    letters = torch.tensor(list(kind.encode()[:256]), dtype=torch.int64)
    table[workers.rank, : len(letters)] = letters
    workers.add_up(table)
    return sorted({bytes(filter(None, row)).decode(errors="replace") for row in table.tolist()} - {""})


def difference(device: Device) -> str:
    """How a device's gradients differ from the CPU's, or from its own in a second run; empty if they do not."""
    for tower in CHECKED:
        recipe = replace(named_recipe("lstm-96"), tower=tower, initial_range=0.1)
        try:
            expected = _gradient(replace(recipe, dtype="float64"), CPU)
            first, again = _gradient(recipe, device), _gradient(recipe, device)
        except Exception as error:  # Triton, its C compiler and the driver raise arbitrary errors
            return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        if not all(map(np.array_equal, first, again)):
            return f"two runs of one micro-batch of {tower.kind} give different bits"
        off = max(
            float(np.abs(x - right).max() / np.abs(right).max()) for x, right in zip(first, expected, strict=True)
        )
        if not off <= TOLERANCE:
            return f"the gradient of {tower.kind} is off by {off:.1g} of its largest number ({TOLERANCE:g} is allowed)"
    return ""


def _gradient(recipe: Recipe, device: Device) -> Sequence[np.ndarray]:
    layout = layout_of(recipe, NUM_ROWS)
    towers = {name: initial_parameters(layout, name).to(device.place) for name in recipe.objective.towers}
    batch = pair_batch(_pairs()).to(device.place)
    gradients, loss = pair_gradient(batch, Encoder.of(layout, towers, device))
    arrays = [loss, *(array for _, gradient in gradients for array in (gradient.table_RG, *gradient.parts.values()))]
    return [array.cpu().numpy() for array in arrays]


def _pairs() -> Pairs:
    """A micro-batch of texts of 1 to LONGEST words; every word is its own, of 1 to 9 trigrams."""
    numbers = np.random.default_rng(1)
    words = list_offsets(numbers.integers(1, LONGEST + 1, NUM_PAIRS * (NUM_NEGATIVES + 2)))
    trigrams = list_offsets(numbers.integers(1, 10, words[-1]))
    table = TextTable(
        Ragged(words, np.arange(words[-1])), Ragged(trigrams, numbers.integers(NUM_ROWS, size=trigrams[-1]))
    )
    index = np.arange(len(table)).reshape(NUM_PAIRS, -1)
    return apart((table, index[:, 0]), (table, index[:, 1]), (table, index[:, 2:]))


def _driver() -> str:
    try:
        return Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").splitlines()[0]
    except OSError:
        return "unknown"


def open_device(name: str) -> Device:
    """The named device in this process: its current GPU, which Ray sets for each worker.

    Turns TF32 off, which would keep 10 of 23 bits. Raises StageError if this process has no GPU, or cannot compile the
    kernels.
    """
    if name == "cpu":
        return CPU
    if not torch.cuda.is_available():
        raise StageError(
            f"There is no CUDA GPU for the device {name} here, or this build of torch has no CUDA.",
            "Run it where there is one, or train with device=cpu.",
        )
    if name == "cuda" and not can_compile():
        raise StageError(
            "The fused kernels of the device cuda need Triton, and the C compiler (gcc or clang) that starts them;"
            " one of the two is not installed.",
            "Install both (torch's wheels for Linux bring Triton), or train with device=cuda-eager.",
        )
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False  # on by default, whatever the precision of products
    return Device(torch.device("cuda", torch.cuda.current_device()), fused=name == "cuda")


def can_compile() -> bool:
    """Whether Triton is here, and the C compiler that it looks for."""
    return importlib.util.find_spec("triton") is not None and any(map(shutil.which, ("gcc", "clang")))
