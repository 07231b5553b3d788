"""Trials of a sweep without a process for each, for tests of what comes of a sweep and not of who carries it out."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from clicktower.schemas.errors import StageError
from clicktower.schemas.stage import silent
from clicktower.training.sweep.sweep_stage import TrialExecutor
from clicktower.training.sweep.trial_process import Key, TrialOutcome, train_trial


@contextmanager
def here(order: Callable[[list], Any] = list, dies: tuple = ()) -> Iterator[TrialExecutor]:
    """Trainings one after the other in this process, in some order; those of some keys cannot be carried out."""
    yield _Here(order, dies)


class _Here:
    def __init__(self, order: Callable[[list], Any], dies: tuple) -> None:
        self._order, self._dies = order, dies
        self._waiting: dict[Key, Mapping[str, Any]] = {}

    def has_room(self) -> bool:
        return True

    def start(self, key: Key, arguments: Mapping[str, Any]) -> None:
        self._waiting[key] = arguments

    def news(self) -> list[tuple[Key, TrialOutcome]]:
        key = self._order(list(self._waiting))[0]
        arguments = self._waiting.pop(key)
        return [(key, TrialOutcome(error=_no_memory()) if key in self._dies else train_trial(arguments, silent))]


def _no_memory() -> StageError:
    return StageError("There was no memory.", "Let fewer trials run at once.")
