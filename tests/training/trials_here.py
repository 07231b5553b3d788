"""Trials of a sweep without a process for each, for tests of what comes of a sweep and not of who carries it out."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from schemas.errors import StageError
from training.sweep.sweep_trials import CarryOut
from training.sweep.trial_process import Ended, carried_out


@contextmanager
def here(order: Callable[[list], Any] = list, dies: tuple = ()) -> Iterator[CarryOut]:
    """Trainings one after the other in this process, in some order; those of some keys cannot be carried out."""

    def carry_out(trainings: Mapping, hear: Callable) -> None:
        for key in order(list(trainings)):
            hear(key, Ended(error=_no_memory()) if key in dies else carried_out(trainings[key], lambda *_: None))

    yield carry_out


def _no_memory() -> StageError:
    return StageError(asked="the trial was trained", found="there was no memory", do="let fewer run at once")
