"""Reports of a run's first worker: a line of progress, every step, every epoch (evaluated on held-out data while the
next one trains), and periodic checkpoints. None of it changes a byte of the model.
"""

import json
import math
import os
import shutil
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from clicktower.schemas import storage
from clicktower.schemas.manifest import to_bytes
from clicktower.schemas.process import make_scratch
from clicktower.schemas.stage import Progress
from clicktower.training.model.parameters import Encoder
from clicktower.training.trainer.checkpoint import Position, write_checkpoint, writing
from clicktower.training.trainer.job import TrainingJob
from clicktower.training.trainer.large_update import Towers, UpdateReport, diverged
from clicktower.training.trainer.objective import Measured, Watched
from clicktower.training.trainer.shard_data import Order

REPORT_SECONDS = 0.25
NOT_DRAWN = ("epoch", "update", "pairs", "unix_seconds")
# The measures of held-out data after an epoch (objective.Watched), in the words of a progress line: the first one
# available represents the epoch.
HELD_OUT = {
    "dev_ndcg@10": "dev NDCG@10 {:.3f}",
    "dev_accuracy": "dev accuracy {:.3f}",
    "dev_word_repeat": "dev word {:.3f}",
}
RATE_REPORTS = 20  # reports behind the displayed rate: some five seconds


class Report:
    """The reports of a run from `position` on; call its methods during the run, and `close` at the end.

    In the model folder it writes, besides steps.jsonl (StepLog):

        curves.json    epoch by epoch, a list of {"epoch", "train_loss", "dev_loss", "dev_ndcg@1", ...,
                       "pairs_per_second", ...}; None: not measured
        curves/        event files for TensorBoard: the same by epoch, and every step by update as step/...
    """

    def __init__(
        self, job: TrainingJob, order: Order, watch: Watched, towers: Towers, position: Position, progress: Progress
    ) -> None:
        self._job, self._order, self._towers = job, order, towers
        self._measuring = Measuring(watch, towers)
        self._progress = progress
        self._folder = LiveFolder(job.output)
        shutil.rmtree(f"{self._folder.path}/curves", ignore_errors=True)  # an earlier run of this attempt had others
        os.mkdir(f"{self._folder.path}/curves")
        # Not TensorBoard's EventFileWriter, whose thread prints an error itself, and whose file names the host.
        events = open(f"{self._folder.path}/curves/events.out.tfevents.{time.time_ns()}", "wb")  # noqa: SIM115
        self._events = RecordWriter(events)
        self._events.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
        self._curve = [dict(point) for point in position.curve]
        for point in self._curve:
            self._draw(point, point["epoch"], "", time.time())
        self._steps = StepLog(self._folder.path, job.checkpoints, position.update)
        self._epoch = defaultdict[str, float](float)  # sums over the steps of the epoch so far
        for step in self._steps.kept():
            self._add(step)
            if step["update"] % order.num_minibatches == 0:
                self._epoch.clear()
        self._pairs, self._seconds = 0, 0.0  # since this process began
        self._recent: deque[tuple[int, float]] = deque([(0, 0.0)], RATE_REPORTS)
        self._notes = "".join(f"\n{why}: went on from before it" for _, why in position.refused)
        if len(position.gpus) > 1:
            self._notes += f"\ncomputed on {' and '.join(position.gpus)}: another run may differ in bits"
        self._began = self._told = self._saved = time.monotonic()

    @property
    def last(self) -> dict[str, Any]:
        """The figures of the last evaluated epoch."""
        return dict(self._curve[-1]) if self._curve else {}

    def step(
        self,
        epoch: int,
        num_pairs: int,
        position: Position,
        report: UpdateReport,
        *,
        pairs: int,
        seconds: float,
        sent_bytes: int,
    ) -> None:
        """Report update `position.update`, made of a minibatch of `pairs`, the last of `num_pairs` of epoch `epoch`."""
        clip_norm = self._job.recipe.optimiser.clip_norm
        step = {
            "update": position.update,
            "epoch": epoch + 1,
            "pairs": pairs,
            "loss": report.loss / pairs,
            **{f"gradient_norm_{tower}": norm for tower, norm in report.norms.items()},
            **{f"clipped_{tower}": 0 < clip_norm < norm for tower, norm in report.norms.items()},
            "momentum": self._towers.schedule.momentum(position.update),
            "seconds": round(seconds, 6),
            "pairs_per_second": round(pairs / max(seconds, 1e-9), 1),
            "sent_bytes": sent_bytes,
            "unix_seconds": round(time.time(), 3),
        }
        self._pairs, self._seconds = self._pairs + pairs, self._seconds + seconds
        self._steps.add(step)
        self._add(step)
        if time.monotonic() - self._told >= REPORT_SECONDS:
            self._report_step(epoch, num_pairs, position, report.norms)

    def epoch(self, epoch: int, position: Position, report: UpdateReport) -> None:
        """Begin the evaluation of epoch `epoch` (from 0) on held-out data; `report` is of its last update."""
        num_pairs, sums = self._order.num_pairs, self._epoch
        trained = {
            "pairs_per_second": round(num_pairs / max(position.seconds, 1e-9), 1),
            "seconds": round(position.seconds, 3),
            "updates": position.update,
            "momentum": self._towers.schedule.momentum(position.update),
            **{name: total / sums["steps"] for name, total in sums.items() if name.startswith("gradient_norm_")},
            "clipped_share": self._clipped_share,
        }

        def add(measured: Measured) -> None:
            require_finite(measured, epoch)
            point = {"epoch": epoch + 1, "train_loss": position.loss / num_pairs, **measured, **trained}
            self._curve.append(point)
            self._draw(point, epoch + 1, "", time.time())

        self._measuring.begin(position.update, add)
        self._report_step(epoch, num_pairs, position, report.norms)
        self._epoch.clear()

    def checkpoint_if_due(self, position: Position, *, now: bool = False) -> None:
        if now or time.monotonic() - self._saved >= self._job.checkpoint_seconds:
            self._measuring.finish()  # a run resumed from here will not pass this epoch again
            with writing(self._job.checkpoints, position.update, "step log"):
                self._steps.keep()
            position = replace(position, curve=self._curve)
            write_checkpoint(self._job.checkpoints, self._job.digest, position, self._towers.rows)
            self._saved = time.monotonic()

    def close(self) -> None:
        """Wait for the last measurement and finish the files."""
        self._measuring.close()
        self._steps.close()
        self.stop()
        storage.write_atomic(storage.join(self._folder.path, "curves.json"), to_bytes(self._curve))
        self._folder.close()

    def stop(self) -> None:
        """Write no more events. May be called again."""
        self._events.close()

    def _add(self, step: Mapping[str, Any]) -> None:
        self._draw(step, step["update"], "step/", step["unix_seconds"])
        self._epoch["steps"] += 1
        self._epoch["clipped"] += any(value for name, value in step.items() if name.startswith("clipped_"))
        for name, value in step.items():
            if name.startswith("gradient_norm_"):
                self._epoch[name] += value

    @property
    def _clipped_share(self) -> float:
        """Of the epoch's steps so far, the share in which some tower's gradient was scaled down."""
        return self._epoch["clipped"] / max(1, self._epoch["steps"])

    def _draw(self, values: Mapping[str, Any], at: int, prefix: str, unix_seconds: float) -> None:
        # All values in one event: one each takes three times as long.
        scalars = [
            Summary.Value(tag=prefix + name.replace("@", "_at_"), simple_value=value)
            for name, value in values.items()
            if name not in NOT_DRAWN and value is not None
        ]
        event = Event(step=at, wall_time=unix_seconds, summary=Summary(value=scalars))
        self._events.write(event.SerializeToString())

    def _report_step(self, epoch: int, num_pairs: int, position: Position, norms: Mapping[str, float]) -> None:
        self._told = time.monotonic()
        self._steps.flush()
        self._events.flush()
        self._recent.append((self._pairs, self._seconds))
        pairs, seconds = (now - then for then, now in zip(self._recent[0], self._recent[-1], strict=True))
        recipe, total = self._job.recipe, self._order.num_pairs
        num_so_far = epoch * total + num_pairs
        self._progress(
            progress_line(
                epoch=epoch + 1,
                epochs=recipe.epochs,
                step=position.update - epoch * self._order.num_minibatches,
                steps=self._order.num_minibatches,
                # The rest takes as long per step as the run so far, including measuring and checkpoints.
                seconds_left=(self._told - self._began) / max(1, self._pairs) * (recipe.epochs * total - num_so_far),
                unit=f"{recipe.objective.unit}s",
                per_second=pairs / max(seconds, 1e-9),
                loss=position.loss / num_pairs,
                norms=norms,
                clipped_share=self._clipped_share if recipe.optimiser.clip_norm else None,
                held_out=epoch_figure(self.last),
            )
            + self._notes,
            num_so_far,
            recipe.epochs * total,
        )


class LiveFolder:
    """A folder whose files are written below the local `path`; on another file system `close` uploads them."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._is_local = storage.is_local(uri)
        self.path = storage.filesystem(uri)[1] if self._is_local else make_scratch()
        os.makedirs(self.path, exist_ok=True)

    def close(self) -> None:
        """Upload the files to their folder."""
        if self._is_local:
            return
        for name in storage.list_files(self.path):
            with open(f"{self.path}/{name}", "rb") as file:
                storage.write_atomic(storage.join(self._uri, name), file.read())
        shutil.rmtree(self.path)


def require_finite(measured: Measured, epoch: int) -> None:
    """Raise Diverged for a figure that is no number: it would be in no curve, and choose no trial of a sweep."""
    for name, value in measured.items():
        if value is not None and not math.isfinite(value):
            raise diverged(f"After epoch {epoch + 1} the held-out {name} is not finite.")


class Measuring:
    """Evaluates held-out data while the next epoch trains: a thread of its own evaluates a copy of the state.

    Training waits for an evaluation only if it takes longer than an epoch: one runs at a time, and results come in the
    order of the epochs. Training reads none of them.
    """

    def __init__(self, watch: Watched, towers: Towers) -> None:
        self._watch, self._towers = watch, towers
        self._rows = watch.table_rows.to(towers.device.place)
        self._thread = ThreadPoolExecutor(1, "measure", initializer=torch.set_num_threads, initargs=(1,))
        self._under_way: tuple[Future[Measured], Callable[[Measured], None]] | None = None

    def begin(self, update: int, then: Callable[[Measured], None]) -> None:
        """Evaluate Λ after `update`; a later `begin` or `finish`, whichever is first, passes the result to `then`."""
        self.finish()
        encoder = self._copy(update)

        def measure() -> Measured:
            started = time.monotonic()
            measured = self._watch.measure(encoder)
            return {**measured, "watch_seconds": round(time.monotonic() - started, 3)}

        self._under_way = self._thread.submit(measure), then

    def finish(self) -> None:
        """Wait for the current evaluation, if any, and pass its result on."""
        if self._under_way:
            measurement, then = self._under_way
            self._under_way = None
            then(measurement.result())

    def close(self) -> None:
        self.finish()
        self._thread.shutdown()

    def _copy(self, update: int) -> Encoder:
        """A copy of the towers after `update`, as far as held-out texts need them, which training does not change."""
        towers = self._towers
        published = towers.published(update)
        tables = {tower: published.table_at(tower, self._rows) for tower in towers.rows}
        parts = {
            tower: {part: values.clone() for part, values in parts.items()} for tower, parts in published.parts.items()
        }
        return replace(
            published,
            table_at=lambda tower, rows: tables[tower].index_select(0, torch.searchsorted(self._rows, rows)),
            parts=parts,
        )


def epoch_figure(measured: Mapping[str, Any]) -> str:
    """The figure that represents an epoch; empty if nothing was evaluated."""
    measures = (form.format(measured[name]) for name, form in HELD_OUT.items() if measured.get(name) is not None)
    return next(measures, "")


def progress_line(
    *,
    epoch: int,
    epochs: int,
    step: int,
    steps: int,
    seconds_left: float,
    unit: str,
    per_second: float,
    loss: float,
    norms: Mapping[str, float],
    clipped_share: float | None,
    held_out: str,
) -> str:
    """Two lines of progress: the position of the run, and its figures.

    epoch, step (of the epoch): from 1. unit: what is counted. loss: per unit, in the epoch so far. norms: of the last
    step's gradient, by tower. clipped_share: of the epoch's steps so far; None without re-normalisation. held_out: the
    result of the epoch before (shortly).
    """
    place = f"epoch {epoch}/{epochs}, step {step:,}/{steps:,}, {clock(seconds_left)} left"
    # Three significant digits, or all digits of the integer part: 0.0312, 9.81, 12,345.
    shown = {tower: f"{norm:.3g}" if norm < 1000 else f"{norm:,.0f}" for tower, norm in norms.items()}
    course = [
        f"{per_second:,.0f} {unit}/s",
        f"loss {loss:.4g}",
        "gradient " + " ".join(f"{tower} {norm}" for tower, norm in sorted(shown.items(), reverse=True)),
        f"clipped {clipped_share:.0%}" if clipped_share is not None else "",
        held_out,
    ]
    return f"{place}\n{', '.join(filter(None, course))}"


def clock(seconds: float) -> str:
    """0:07, 12:30, 3:05:09."""
    minutes, remainder = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{remainder:02d}" if hours else f"{minutes}:{remainder:02d}"


FILE_NAME = "steps.jsonl"


class StepLog:
    """A log with one line of JSON per update of a run, in order, each exactly once however often the run was killed.

    FOLDER/steps.jsonl   {"update": 121, "epoch": 2, "pairs": 256, "loss": 0.231, ...}

        update, epoch            counted from 1
        pairs                    of the minibatch, on all workers
        loss                     of the minibatch, per pair, before the update; an attention penalty included
        gradient_norm_TOWER      of its whole gradient, before re-normalisation
        clipped_TOWER            whether that was above th_G and was scaled down to it
        momentum                 μ of the update
        seconds                  it took, waiting for its texts included
        pairs_per_second         pairs / seconds
        sent_bytes               that one worker handed to the others' sums; 0 for one worker
        unix_seconds             when it was made

    The file grows in the model folder, where it can be followed, but a run that goes on after a kill starts a new
    folder. So every checkpoint is preceded by the lines since the one before it, in a file of their own beside it:

        CHECKPOINTS/steps/000000120.jsonl    the lines up to update 120

    `folder`: on this machine; `checkpoints`: of the run; `update`: the last that counts.
    """

    def __init__(self, folder: str, checkpoints: str, update: int) -> None:
        self._parts = storage.join(checkpoints, "steps")
        self._file = open(f"{folder}/{FILE_NAME}", "wb")  # noqa: SIM115 (closed by close, at the end of the run)
        self._since: list[bytes] = []  # the last part
        self._update = update

    def kept(self) -> Iterator[dict[str, Any]]:
        """The steps before this process began, up to the checkpoint it resumes from; call it first.

        Steps of later updates are removed, since training makes them again, and so is a file that a kill left
        half-written.
        """
        for name in storage.list_files(self._parts):
            part = storage.join(self._parts, name)
            update, _, ending = name.partition(".")
            if ending != "jsonl" or int(update) > self._update:
                storage.remove(part)
                continue
            content = storage.read_bytes(part)
            self._file.write(content)
            yield from map(json.loads, content.splitlines())

    def add(self, step: Mapping[str, Any]) -> None:
        """Add a step."""
        line = json.dumps(step, allow_nan=False).encode() + b"\n"
        self._since.append(line)
        self._file.write(line)
        self._update = step["update"]

    def flush(self) -> None:
        """Flush the file for its readers."""
        self._file.flush()

    def keep(self) -> None:
        """Write the steps since the last checkpoint; call it before writing a checkpoint."""
        if self._since:
            name = f"{self._update:09d}.jsonl"
            storage.write_atomic(storage.join(self._parts, name), b"".join(self._since))
            self._since.clear()

    def close(self) -> None:
        self._file.close()
