"""A line of JSON for every update of a run, in order, none twice and none left out however often the run was killed.

FOLDER/steps.jsonl   {"update": 121, "epoch": 2, "pairs": 256, "loss": 0.231, ...}

    update, epoch            counted from 1
    pairs                    of the minibatch, on all workers
    loss                     of the minibatch, per pair, before the update; a self-attentive tower's penalty included
    gradient_norm_TOWER      of its whole gradient, before re-normalisation
    clipped_TOWER            whether that was above th_G and was scaled down to it
    momentum                 μ of the update
    seconds                  it took, waiting for its texts included
    pairs_per_second         pairs / seconds
    sent_bytes               that one worker handed to the others' sums; 0 for one worker
    unix_seconds             when it was made

The file grows in the model folder, where it can be followed, but a run that goes on after a kill starts a new folder.
So every checkpoint is preceded by the lines since the one before it, in a file of their own beside it:

    CHECKPOINTS/steps/000000120.jsonl    the lines up to update 120
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from schemas import storage

FILE_NAME = "steps.jsonl"


class StepLog:
    """The lines of one run. `folder`: on this machine; `checkpoints`: of the run; `update`: the last that counts."""

    def __init__(self, folder: str, checkpoints: str, update: int) -> None:
        self._parts = storage.join(checkpoints, "steps")
        self._file = open(f"{folder}/{FILE_NAME}", "wb")  # noqa: SIM115 (closed by close, at the end of the run)
        self._since: list[bytes] = []  # the last part
        self._update = update

    def kept(self) -> Iterator[dict[str, Any]]:
        """The steps that were made before this process began, up to the checkpoint it goes on from; call it first.

        What was written of later updates is removed: they will be made again.
        """
        for name in storage.list_files(self._parts):
            part = storage.join(self._parts, name)
            if int(name.removesuffix(".jsonl")) > self._update:
                storage.remove(part)
                continue
            content = storage.read_bytes(part)
            self._file.write(content)
            yield from map(json.loads, content.splitlines())

    def add(self, step: Mapping[str, Any]) -> None:
        """One more step."""
        line = json.dumps(step).encode() + b"\n"
        self._since.append(line)
        self._file.write(line)
        self._update = step["update"]

    def flush(self) -> None:
        """Let those who follow the file see it."""
        self._file.flush()

    def keep(self) -> None:
        """Write what a checkpoint of the last update would miss; to be called before it is written."""
        if self._since:
            name = f"{self._update:09d}.jsonl"
            storage.write_atomic(storage.join(self._parts, name), b"".join(self._since))
            self._since.clear()

    def close(self) -> None:
        self._file.close()
