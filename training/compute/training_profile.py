"""Where the time of a run went: phases on each of its threads, as totals and as a trace.

    phases = Phases()               or OFF, which records nothing and costs next to nothing
    with phases("update"):
        ...
    write_profile(folder, phases)

FOLDER/profile.json   {"seconds", "threads", "phases": [{"where", "phase", "what", "calls", "seconds", "share"}], ...}
FOLDER/trace.json     every phase on its thread; opens in chrome://tracing and https://ui.perfetto.dev

A phase inside another one is taken off it, so that what is listed for a thread adds up to the time it was busy.
"""

import json
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from schemas import storage

PROFILE, TRACE = "profile.json", "trace.json"
TRACE_EVENTS = 200_000  # a trace of more is slow to open; totals go on

# In the order of a run. `where` of a row: loop (the thread that leads), compute (the threads of micro-batches), beside
# (threads of their own, for texts and for held-out data).
WHAT = {
    "load": "shards and held-out texts",
    "start": "random numbers, or a checkpoint",
    "input": "waiting for the next minibatch's texts",
    "step": "the rest of an update",
    "touched rows": "which rows the minibatch touches",
    "look-ahead": "those rows, where the gradient is taken",
    "micro-batches": "waiting for the threads that compute them",
    "gather": "W of each distinct word",
    "recurrence": "towers forward and backward",
    "forward": "towers forward",
    "backward": "towers backward",
    "loss": "cosines, loss, its gradient",
    "scatter": "gradient of W and of the rest",
    "reduction": "adding up",
    "workers": "other workers: waiting and sending",
    "update": "norms and Nesterov's step",
    "report": "progress, step log, curves",
    "watch": "copying for a measurement, waiting",
    "checkpoint": "writing the state",
    "export": "the model, all rows up to date",
    "preparation": "texts of the next minibatch",
    "measure": "held-out data, while training goes on",
}


class Recorder(Protocol):
    """What a run is told to record its phases with: a Phases, or OFF."""

    def __call__(self, name: str, **facts: int) -> AbstractContextManager[None]:
        """A phase of the calling thread, while the context lasts."""

    def inside(self, nanoseconds: Mapping[str, int]) -> None:
        """Parts of the phase that the calling thread is in, measured elsewhere (by a compiled function)."""


class _Off:
    _NOTHING: AbstractContextManager[None] = nullcontext()

    def __call__(self, name: str, **facts: int) -> AbstractContextManager[None]:
        return self._NOTHING

    def inside(self, nanoseconds: Mapping[str, int]) -> None:
        pass


OFF: Recorder = _Off()


class Phases:
    """Records phases of any thread; the thread that makes it is the one that leads."""

    def __init__(self) -> None:
        self.began = time.perf_counter_ns()
        self.lanes: dict[str, Lane] = {}
        self._of_thread, self._lock = threading.local(), threading.Lock()
        self._of_thread.lane = self.lanes["loop"] = Lane()

    def __call__(self, name: str, **facts: int) -> AbstractContextManager[None]:
        return _Phase(self._lane(), name, facts)

    def inside(self, nanoseconds: Mapping[str, int]) -> None:
        lane, start = self._lane(), time.perf_counter_ns() - sum(nanoseconds.values())
        for name, duration in nanoseconds.items():
            lane.add(name, start, duration, duration, {})
            start += duration
        if lane.open:
            lane.open[-1].inner += sum(nanoseconds.values())

    def _lane(self) -> "Lane":
        if not hasattr(self._of_thread, "lane"):
            # By name: the thread that prepares is a new one in every epoch.
            with self._lock:
                self._of_thread.lane = self.lanes.setdefault(threading.current_thread().name, Lane())
        return self._of_thread.lane


class Lane:
    """The phases of one thread, or of threads that follow one another."""

    def __init__(self) -> None:
        self.totals: dict[str, list[int]] = {}  # phase -> calls, nanoseconds without those of phases inside it
        self.events: list[tuple[str, int, int, dict[str, int]]] = []  # phase, start, duration, facts
        self.open: list[_Phase] = []

    def add(self, name: str, start: int, duration: int, own: int, facts: dict[str, int]) -> None:
        total = self.totals.setdefault(name, [0, 0])
        total[0] += 1
        total[1] += own
        if len(self.events) < TRACE_EVENTS:
            self.events.append((name, start, duration, facts))


class _Phase(AbstractContextManager):
    __slots__ = ("_facts", "_lane", "_name", "_start", "inner")

    def __init__(self, lane: Lane, name: str, facts: dict[str, int]) -> None:
        self._lane, self._name, self._facts, self.inner = lane, name, facts, 0

    def __enter__(self) -> None:
        self._lane.open.append(self)
        self._start = time.perf_counter_ns()

    def __exit__(self, *error: object) -> None:
        duration = time.perf_counter_ns() - self._start
        lane = self._lane
        lane.open.pop()
        if lane.open:
            lane.open[-1].inner += duration
        lane.add(self._name, self._start, duration, duration - self.inner, self._facts)


def write_profile(folder: str, phases: Phases, facts: Mapping[str, Any], num_threads: int) -> None:
    """Write profile.json, with `facts` of the run in it, and trace.json."""
    profile = {**facts, **summary(phases, num_threads)}
    storage.write_atomic(storage.join(folder, PROFILE), json.dumps(profile, indent=1).encode())
    storage.write_atomic(storage.join(folder, TRACE), json.dumps(trace(phases)).encode())


def summary(phases: Phases, num_threads: int) -> dict[str, Any]:
    """The time since `phases` was made, and each place's phases with their share of it, the largest first.

    A share is of the time that the place had: that of `num_threads` for `compute`, of one for the others.
    """
    nanoseconds = time.perf_counter_ns() - phases.began
    places: dict[str, dict[str, list[int]]] = {}
    for lane_name, lane in phases.lanes.items():
        totals = places.setdefault(_place(lane_name), {})
        for name, (calls, own) in lane.totals.items():
            total = totals.setdefault(name, [0, 0])
            total[0] += calls
            total[1] += own
    rows = []
    for place, totals in places.items():
        available = nanoseconds * (num_threads if place == "compute" else 1)
        for name, (calls, own) in sorted(totals.items(), key=lambda item: -item[1][1]):
            rows.append(
                {
                    "where": place,
                    "phase": name,
                    "what": WHAT.get(name, ""),
                    "calls": calls,
                    "seconds": own / 1e9,
                    "share": own / available,
                }
            )
    return {"seconds": nanoseconds / 1e9, "threads": num_threads, "phases": rows}


def trace(phases: Phases) -> dict[str, Any]:
    """The phases as Chrome's trace event format has them: complete events, in microseconds, named threads."""
    events: list[dict[str, Any]] = []
    for number, (name, lane) in enumerate(phases.lanes.items()):
        events.append({"name": "thread_name", "ph": "M", "pid": 0, "tid": number, "args": {"name": name}})
        events.append({"name": "thread_sort_index", "ph": "M", "pid": 0, "tid": number, "args": {"sort_index": number}})
        events += [
            {"name": phase, "cat": _place(name), "ph": "X", "pid": 0, "tid": number,
             "ts": (start - phases.began) / 1e3, "dur": duration / 1e3, "args": facts}
            for phase, start, duration, facts in lane.events
        ]  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _place(lane: str) -> str:
    """loop; compute_3 -> compute; any other -> beside"""
    name = lane.rpartition("_")[0] or lane
    return name if name in ("loop", "compute") else "beside"
