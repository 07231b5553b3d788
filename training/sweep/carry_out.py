"""Whoever carries out the trainings of a sweep, some at a time: processes of this machine, or Ray Tune on a cluster.

    with in_processes(at_once=2) as carry_out:
        carry_out({key: arguments, ...}, hear)

What is to be trained, what counts already and what comes next is decided elsewhere (sweep_trials).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import wait
from typing import Any

from training.sweep.trial_process import Ended, Told, TrialProcess, interrupts_held

# A trial's seed (place in its point's recipes) and point (place in the sweep). In this order they are trained: all
# points with the first seed before any with the second, so that a sweep that is looked at early, or cut short, shows
# all.
Key = tuple[int, int]

# Called with what a trial tells, and now and then with nothing, so that whoever listens can tell others.
Hear = Callable[[Key | None, Told | Ended | None], None]

# Trains what it is given (arguments of launch.train), until each has Ended. Raises KeyboardInterrupt where it
# was asked to stop; what was being trained has ended then, and goes on from its last checkpoint another time.
CarryOut = Callable[[Mapping[Key, Mapping[str, Any]], Hear], None]

LISTEN_SECONDS = 0.5


@contextmanager
def in_processes(at_once: int) -> Iterator[CarryOut]:
    """Trainings in processes of this machine, `at_once` side by side. An interrupt ends them."""
    with interrupts_held() as let_interrupts_through:

        def carry_out(trainings: Mapping[Key, Mapping[str, Any]], hear: Hear) -> None:
            waiting = list(trainings)[::-1]
            processes: dict[Any, tuple[Key, TrialProcess, ExitStack]] = {}  # by pipe
            with ExitStack() as all_of_them:
                while waiting or processes:
                    let_interrupts_through()
                    while waiting and len(processes) < at_once:
                        key = waiting.pop()
                        own = all_of_them.enter_context(ExitStack())
                        trial = own.enter_context(TrialProcess(trainings[key]))
                        processes[trial.pipe] = key, trial, own
                        hear(key, Told(what="started", done=0, total=None))
                    for pipe in wait(list(processes), LISTEN_SECONDS):
                        key, trial, own = processes[pipe]
                        told = trial.read()
                        if isinstance(told, Ended):
                            own.close()
                            del processes[pipe]
                        hear(key, told)
                    hear(None, None)

        yield carry_out
