"""Trainings in processes of their own: a crash stays there, and many run in parallel.

    with TrialProcess({"shards": ..., "store": ..., "recipe": ...}) as trial:
        message = trial.read()     # a TrialStatus, and at last a TrialOutcome

The process is an ordinary `launch.train`. It ends with the process that started it: by SIGTERM, so that its attempt is
cleared away and its checkpoints stay, and by itself once nobody listens to it any more.
"""

import multiprocessing
import os
import signal
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from clicktower.schemas.errors import StageError, StoppedEarly
from clicktower.schemas.stage import Progress, StageResult

Key = tuple[int, int]  # a trial's seed (index in its point's recipes) and point (index in the sweep)

LISTEN_SECONDS = 0.5
TERM_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialStatus:
    """The progress of a trial, as stage.Progress reports it."""

    activity: str
    count: int
    total: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialOutcome:
    """How a trial ended: with its result, or with an error; with neither if it stopped early, as requested."""

    result: StageResult | None = None
    error: StageError | None = None


class TrialProcess:
    """A trial that runs from its creation on. Leaving its context ends it."""

    def __init__(self, arguments: Mapping[str, Any], gpu: int | None = None) -> None:
        """`arguments`: of launch.train, except progress. `gpu`: the one to use; None: the first."""
        context = multiprocessing.get_context("spawn")  # a fork would copy half of torch's and Ray's threads
        self.pipe, theirs = context.Pipe(duplex=False)
        self._ended = False
        self._process = context.Process(target=_work, args=(theirs, dict(arguments), gpu))
        # Ctrl-C reaches all processes of a terminal; a trial ignores it: its parent ends it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def read(self) -> TrialStatus | TrialOutcome:
        """The next message of the trial; waits for it. A caller can wait for `pipe` together with other trials'
        pipes.
        """
        try:
            message = self.pipe.recv()
        except (EOFError, OSError):  # OSError: it died while it sent a message
            self._process.join()
            message = _lost_process(self._process.exitcode or 0)
        self._ended = isinstance(message, TrialOutcome)
        return message

    def __enter__(self) -> "TrialProcess":
        return self

    def __exit__(self, *_: object) -> None:
        if self._ended:
            self._process.join(TERM_SECONDS)
        for end in (self._process.terminate, self._process.kill):
            if self._process.is_alive():
                end()
                self._process.join(TERM_SECONDS)
        self._process.join()
        self.pipe.close()


class Processes(ExitStack):
    """A sweep_stage.TrialExecutor: processes of this machine, `at_once` of them concurrently, ended with the block.

    Each has one of `gpus`, the one with the fewest trials.
    """

    def __init__(self, at_once: int, gpus: Sequence[int] = ()) -> None:
        super().__init__()
        self._at_once, self._trials_of_gpu = at_once, Counter(dict.fromkeys(gpus, 0))
        self._running: dict[Any, tuple[Key, TrialProcess, ExitStack]] = {}  # by pipe

    def has_room(self) -> bool:
        return len(self._running) < self._at_once

    def start(self, key: Key, arguments: Mapping[str, Any]) -> None:
        stack = self.enter_context(ExitStack())
        gpu = min(self._trials_of_gpu, key=lambda name: self._trials_of_gpu[name], default=None)
        if gpu is not None:
            self._trials_of_gpu[gpu] += 1
            stack.callback(self._trials_of_gpu.subtract, [gpu])
        trial = stack.enter_context(TrialProcess(arguments, gpu))
        self._running[trial.pipe] = key, trial, stack

    def news(self) -> list[tuple[Key, TrialStatus | TrialOutcome]]:
        messages = []
        for pipe in wait(list(self._running), LISTEN_SECONDS):
            key, trial, stack = self._running[pipe]
            message = trial.read()
            if isinstance(message, TrialOutcome):
                stack.close()
                del self._running[pipe]
            messages.append((key, message))
        return messages


def _work(pipe: Connection, arguments: dict[str, Any], gpu: int | None) -> None:
    """The process's work."""
    if gpu is not None:
        import torch  # takes seconds to load

        torch.cuda.set_device(gpu)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))

    def tell(activity: str, count: int, total: int | None) -> None:
        pipe.send(TrialStatus(activity=activity, count=count, total=total))

    ended = train_trial(arguments, tell)
    with suppress(BrokenPipeError):  # nobody listens any more
        pipe.send(ended)


def train_trial(arguments: Mapping[str, Any], tell: Progress) -> TrialOutcome:
    """Train in this process. `arguments`: of launch.train, except progress."""
    from clicktower.training.trainer.launch import train

    try:
        return TrialOutcome(result=train(**arguments, progress=tell))
    except StoppedEarly:
        return TrialOutcome()
    except StageError as error:
        return TrialOutcome(error=error)
    except Exception as error:
        is_os = isinstance(error, OSError) and error.errno
        reason = os.strerror(error.errno) if is_os else type(error).__name__  # type: ignore
        return _failed_trial(f"failed unexpectedly ({reason})", "Train it alone with `clicktower train` to see more.")


def _lost_process(exitcode: int) -> TrialOutcome:
    by_kill = exitcode == -signal.SIGKILL
    return _failed_trial(
        f"was ended by signal {-exitcode}" if exitcode < 0 else f"ended with code {exitcode} and no result",
        "Look for too little memory, and let fewer trials run at once." if by_kill else "Run the same command again.",
    )


def _failed_trial(reason: str, fix: str) -> TrialOutcome:
    problem = f"The training of the trial {reason}. A new start continues from its last checkpoint."
    return TrialOutcome(error=StageError(problem, fix))
