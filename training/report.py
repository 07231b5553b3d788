"""What the first worker of a run tells and keeps while it trains: a line of progress, every step, every epoch (measured
on held-out data while the next one trains), and checkpoints now and then. None of it changes a byte of the model."""

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from schemas.stage import Progress
from training.checkpoint import Position, write_checkpoint, writing
from training.curves import Curves
from training.held_out import shortly
from training.large_update import Towers, UpdateReport
from training.live_folder import LiveFolder
from training.measuring import Measured, Measuring
from training.objectives import Watched
from training.order import Order
from training.profile import Recorder
from training.progress_line import progress_line
from training.step_log import StepLog

if TYPE_CHECKING:
    from training.worker import Job

REPORT_SECONDS = 0.25
RATE_REPORTS = 20  # how many of them the rate that is told looks back: some five seconds


class Report:
    """Goes on where `position` left off; its methods are to be called as the run goes, `close` at the end."""

    def __init__(
        self,
        job: "Job",
        order: Order,
        watch: Watched,
        towers: Towers,
        position: Position,
        progress: Progress,
        phases: Recorder,
    ) -> None:
        self._job, self._order, self._towers = job, order, towers
        self._measuring = Measuring(watch, towers, phases)
        self._progress, self._phases = progress, phases
        self._folder = LiveFolder(job.output)
        self.curves = Curves(self._folder.path, position.curve)
        self._steps = StepLog(self._folder.path, job.checkpoints, position.update)
        self._epoch = _EpochSoFar()
        for step in self._steps.kept():
            self.curves.step(step)
            self._epoch.add(step)
            if step["update"] % order.num_minibatches == 0:
                self._epoch = _EpochSoFar()
        self._pairs, self._seconds = 0, 0.0  # since this process began
        self._recent: deque[tuple[int, float]] = deque([(0, 0.0)], RATE_REPORTS)
        self._notes = "".join(f"\n{why}: went on from before it" for _, why in position.refused)
        self._began = self._told = self._saved = time.monotonic()

    @property
    def last(self) -> dict[str, Any]:
        """The figures of the last epoch that was measured."""
        return dict(self.curves.points[-1]) if self.curves.points else {}

    def step(
        self,
        epoch: int,
        num_pairs: int,
        position: Position,
        made: UpdateReport,
        *,
        pairs: int,
        seconds: float,
        sent_bytes: int,
    ) -> None:
        """Update `position.update` was made of a minibatch of `pairs`, the last of `num_pairs` of epoch `epoch`."""
        clip_norm = self._job.recipe.clip_norm
        step = {
            "update": position.update,
            "epoch": epoch + 1,
            "pairs": pairs,
            "loss": made.loss / pairs,
            **{f"gradient_norm_{tower}": norm for tower, norm in made.norms.items()},
            **{f"clipped_{tower}": 0 < clip_norm < norm for tower, norm in made.norms.items()},
            "momentum": self._towers.schedule.momentum(position.update),
            "seconds": round(seconds, 6),
            "pairs_per_second": round(pairs / max(seconds, 1e-9), 1),
            "sent_bytes": sent_bytes,
            "unix_seconds": round(time.time(), 3),
        }
        self._pairs, self._seconds = self._pairs + pairs, self._seconds + seconds
        with self._phases("report"):
            self._steps.add(step)
            self.curves.step(step)
            self._epoch.add(step)
            if time.monotonic() - self._told >= REPORT_SECONDS:
                self._tell(epoch, num_pairs, position, made.norms)

    def epoch(self, epoch: int, position: Position, made: UpdateReport) -> None:
        """Epoch `epoch` (from 0) is over, `made` was its last update: begin to measure on held-out data."""
        num_pairs = self._order.num_pairs
        trained = {
            "pairs_per_second": round(num_pairs / max(position.seconds, 1e-9), 1),
            "seconds": round(position.seconds, 3),
            "updates": position.update,
            "momentum": self._towers.schedule.momentum(position.update),
            **self._epoch.mean_norms,
            "clipped_share": self._epoch.clipped_share,
        }

        def add(measured: Measured) -> None:
            train_loss = position.loss / num_pairs
            self.curves.add({"epoch": epoch + 1, "train_loss": train_loss, **measured, **trained})

        self._measuring.begin(position.update, add)
        self._tell(epoch, num_pairs, position, made.norms)
        self._epoch = _EpochSoFar()

    def checkpoint_if_due(self, position: Position, *, now: bool = False) -> None:
        if now or time.monotonic() - self._saved >= self._job.checkpoint_seconds:
            self._measuring.finish()  # a run that goes on from here will not come by this epoch again
            with self._phases("checkpoint"):
                with writing(self._job.checkpoints, position.update, "step log"):
                    self._steps.keep()
                position = replace(position, curve=self.curves.points)
                write_checkpoint(self._job.checkpoints, self._job.digest, position, self._towers.rows)
            self._saved = time.monotonic()

    def close(self) -> None:
        """Wait for the last measurement and finish the files."""
        self._measuring.close()
        self._steps.close()
        self.curves.close()
        self._folder.close()

    def _tell(self, epoch: int, num_pairs: int, position: Position, norms: Mapping[str, float]) -> None:
        self._told = time.monotonic()
        self._steps.flush()
        self._recent.append((self._pairs, self._seconds))
        pairs, seconds = (now - then for then, now in zip(self._recent[0], self._recent[-1], strict=True))
        recipe, total = self._job.recipe, self._order.num_pairs
        done = epoch * total + num_pairs
        self._progress(
            progress_line(
                epoch=epoch + 1,
                epochs=recipe.epochs,
                step=position.update - epoch * self._order.num_minibatches,
                steps=self._order.num_minibatches,
                # What is left goes as all of it went so far, measuring and checkpoints included.
                seconds_left=(self._told - self._began) / max(1, self._pairs) * (recipe.epochs * total - done),
                unit="pairs" if recipe.objective == "clicks" else "examples",
                per_second=pairs / max(seconds, 1e-9),
                loss=position.loss / num_pairs,
                norms=norms,
                clipped_share=self._epoch.clipped_share if recipe.clip_norm else None,
                held_out=shortly(self.last),
            )
            + self._notes,
            done,
            recipe.epochs * total,
        )


@dataclass(slots=True)
class _EpochSoFar:
    """Sums over the steps of an epoch."""

    steps: int = 0
    clipped: int = 0  # steps in which some tower's gradient was scaled down
    norms: dict[str, float] = field(default_factory=dict)

    def add(self, step: dict[str, Any]) -> None:
        self.steps += 1
        self.clipped += any(value for name, value in step.items() if name.startswith("clipped_"))
        for name, value in step.items():
            if name.startswith("gradient_norm_"):
                self.norms[name] = self.norms.get(name, 0.0) + value

    @property
    def mean_norms(self) -> dict[str, float]:
        return {name: total / self.steps for name, total in self.norms.items()}

    @property
    def clipped_share(self) -> float:
        return self.clipped / max(1, self.steps)
