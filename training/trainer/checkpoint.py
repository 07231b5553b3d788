"""Checkpoints of a run: the raw state after an update, so that a killed run continues to the same bytes.

    FOLDER/update-000000120.safetensors   Λ and what moves it, of each tower (optimisers)
    FOLDER/update-000000120.json          whose it is, the position in the order, size and hash; written last

The state is raw: bringing untouched rows up to date before writing would round once more, and then the bytes of a model
would depend on when checkpoints were taken (docs/model.md section 4). It is independent of the workers: a run may
continue with another number of them. The last two are kept, so that a damaged one costs little: a run continues from
the one before, and its later checkpoints say so and replace the damaged one.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.manifest import from_bytes
from clicktower.training.model.model_folder import read_arrays, safetensors_pieces
from clicktower.training.trainer.optimisers import RowState, restored_state

SCHEMA_VERSION = "1.1"  # 1.0 did not record a run's earlier history, and belongs to other requests
KEPT = 2


class _Refused(Exception):
    """A checkpoint that is damaged or belongs to another run."""


class WriteError(StageError):
    """An error that only the writing worker can meet: a full disk, a store without permission."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """The progress of a run. Its place in the order follows from the number of updates."""

    update: int = 0  # updates made
    loss: float = 0.0  # summed over the pairs of the epoch so far
    seconds: float = 0.0  # of training in the epoch so far
    curve: list[dict[str, Any]] = field(default_factory=list)  # of the finished epochs
    resumed: list[tuple[int, int]] = field(default_factory=list)  # at which updates, with how many workers
    refused: list[tuple[int, str]] = field(default_factory=list)  # rejected checkpoints, and why
    gpus: list[str] = field(default_factory=list)  # kinds used so far; with two, another run may differ in bits


def write_checkpoint(folder: str, digest: str, position: Position, rows: Mapping[str, RowState]) -> None:
    """Write a checkpoint of the run `digest`; remove all but the last two, and refused ones. Raises WriteError."""
    arrays = {f"{tower}.{n}": array for tower, state in rows.items() for n, array in state.arrays().items()}
    content = safetensors_pieces(arrays)
    size_bytes, sha256 = sum(len(piece) for piece in content), hashlib.sha256()
    for piece in content:
        sha256.update(piece)
    head = {
        "schema_version": SCHEMA_VERSION,
        "digest": digest,
        **asdict(position),
        "size_bytes": size_bytes,
        "sha256": sha256.hexdigest(),
    }
    with writing(folder, position.update, f"{size_bytes / 1e6:,.0f} MB"):
        storage.write_atomic(checkpoint_file(folder, position.update, "safetensors"), *content)
        storage.write_atomic(checkpoint_file(folder, position.update, "json"), json.dumps(head).encode())
    # Only after a complete one records the refusal; otherwise a kill in between would lose it.
    for update in [update for update, _ in position.refused if update > position.update]:
        remove_checkpoint(folder, update)
    for update in list_updates(folder)[KEPT:]:
        remove_checkpoint(folder, update)


@contextmanager
def writing(folder: str, update: int, content: str) -> Iterator[None]:
    """Within, a part (`content`) of an update's checkpoint is written to a run's folder. Raises WriteError."""
    try:
        yield
    except OSError as error:
        kept = list_updates(folder)
        raise WriteError(
            f"The {content} of the checkpoint of update {update:,} could not be written to {folder}"
            f" ({error.strerror or type(error).__name__})."
            + (f" Training stopped; the checkpoint of update {kept[0]:,} is whole." if kept else " Training stopped."),
            "Make room or choose another store, then run the same command: it continues from there.",
        ) from None


def list_updates(folder: str) -> list[int]:
    """The updates with a checkpoint, newest first, complete or not."""
    names = [name.removesuffix(".json") for name in storage.list_files(folder) if name.endswith(".json")]
    return sorted((int(name.removeprefix("update-")) for name in names if name.startswith("update-")), reverse=True)


def newest_checkpoint(folder: str, digest: str) -> tuple[int, list[tuple[int, str]]]:
    """(the newest update with a complete checkpoint of this run, 0 without one; why newer ones were refused)."""
    refused = []
    for update in list_updates(folder):
        try:
            _read(folder, digest, update)
        except _Refused as error:
            refused.append((update, str(error)))
        else:
            return update, refused
    return 0, refused


def read_checkpoint(folder: str, digest: str, update: int) -> tuple[Position, dict[str, RowState]]:
    """The state after an update. Raises StageError for a checkpoint that is damaged or belongs to another run."""
    try:
        head, tensors = _read(folder, digest, update)
    except _Refused as error:
        raise StageError(f"In {folder} {error}.", f"Remove {folder} to start afresh.") from None
    of_towers: dict[str, dict[str, np.ndarray]] = {}
    for name in sorted(tensors):  # towers in one order
        tower, _, array = name.partition(".")
        of_towers.setdefault(tower, {})[array] = tensors[name]
    rows = {tower: restored_state(arrays) for tower, arrays in of_towers.items()}
    position = Position(
        update=update,
        loss=head["loss"],
        seconds=head["seconds"],
        curve=head["curve"],
        resumed=[(update, workers) for update, workers in head["resumed"]],
        refused=[(update, why) for update, why in head["refused"]],
        gpus=head["gpus"],
    )
    return position, rows


def _read(folder: str, digest: str, update: int) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        head = from_bytes(storage.read_bytes(checkpoint_file(folder, update, "json")))
        if str(head["schema_version"]).split(".")[0] != SCHEMA_VERSION.split(".")[0]:
            raise _Refused(f"the checkpoint of update {update:,} has version {head['schema_version']}")
        if head["digest"] != digest:
            raise _Refused(f"the checkpoint of update {update:,} belongs to another request")
        content = storage.map_bytes(checkpoint_file(folder, update, "safetensors"))
        if hashlib.sha256(content).hexdigest() != head["sha256"]:
            raise _Refused(f"the checkpoint of update {update:,} is damaged")
        return head, read_arrays(content)
    except (OSError, ValueError, KeyError, TypeError):
        raise _Refused(f"the checkpoint of update {update:,} cannot be read") from None


def remove_checkpoint(folder: str, update: int) -> None:
    storage.remove(checkpoint_file(folder, update, "json"))
    storage.remove(checkpoint_file(folder, update, "safetensors"))


def checkpoint_file(folder: str, update: int, ending: str) -> str:
    return storage.join(folder, f"update-{update:09d}.{ending}")
