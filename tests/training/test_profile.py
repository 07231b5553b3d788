"""Phases add up, whatever is inside what; a trace has the form that Chrome and Perfetto read."""

import json
import threading
import time

import pytest

from training.compute.training_profile import OFF, Phases, summary, trace, write_profile


def spend(seconds: float) -> None:
    time.sleep(seconds)


def rows(phases: Phases, num_threads: int = 1) -> dict[tuple[str, str], dict]:
    return {(row["where"], row["phase"]): row for row in summary(phases, num_threads)["phases"]}


def test_a_phase_inside_another_is_taken_off_it():
    phases = Phases()
    with phases("step", update=7):
        spend(0.002)
        for _ in range(3):
            with phases("update"):
                spend(0.01)
    found = rows(phases)
    assert found["loop", "update"]["calls"] == 3
    assert found["loop", "update"]["seconds"] >= 0.03
    (_, start, whole, facts), = [event for event in phases.lanes["loop"].events if event[0] == "step"]  # fmt: skip
    assert facts == {"update": 7}
    # Own time and that of what is inside make up the whole, to the nanosecond.
    own = phases.lanes["loop"].totals["step"][1] + phases.lanes["loop"].totals["update"][1]
    assert own == whole
    assert start >= phases.began


def test_all_phases_of_a_thread_never_exceed_the_time_there_was():
    phases = Phases()
    for _ in range(50):
        with phases("step"), phases("update"), phases("workers"):
            pass
    found = summary(phases, 1)
    assert 0 < sum(row["seconds"] for row in found["phases"]) <= found["seconds"]
    assert sum(row["share"] for row in found["phases"]) <= 1


def test_parts_that_a_compiled_function_measured_stand_inside_the_phase_that_called_it():
    phases = Phases()
    with phases("micro-batch"):
        spend(0.005)
        phases.inside({"gather": 1_000_000, "recurrence": 3_000_000})
    totals = phases.lanes["loop"].totals
    assert totals["gather"] == [1, 1_000_000]
    assert totals["recurrence"] == [1, 3_000_000]
    events = {name: (start, duration) for name, start, duration, _ in phases.lanes["loop"].events}
    start, whole = events["micro-batch"]
    assert totals["micro-batch"][1] == whole - 4_000_000
    # End to end, the last ending where it was reported.
    assert events["gather"][0] + events["gather"][1] == events["recurrence"][0]
    assert start <= events["gather"][0]
    assert sum(events["recurrence"]) <= start + whole


def test_threads_are_told_apart_and_summed_by_what_they_are_for():
    phases = Phases()

    def compute() -> None:
        with phases("gather"):
            spend(0.002)

    for name in ("compute_0", "compute_1", "compute_0"):  # a name that comes back is the same lane
        thread = threading.Thread(target=compute, name=name)
        thread.start()
        thread.join()
    assert list(phases.lanes) == ["loop", "compute_0", "compute_1"]
    row = rows(phases, num_threads=2)["compute", "gather"]
    assert row["calls"] == 3
    found = summary(phases, 2)
    assert row["share"] == pytest.approx(row["seconds"] / (2 * found["seconds"]), rel=0.2)


def test_an_error_ends_its_phase():
    phases = Phases()
    with pytest.raises(KeyError), phases("step"):
        raise KeyError
    with phases("report"):
        pass
    assert [event[0] for event in phases.lanes["loop"].events] == ["step", "report"]
    assert phases.lanes["loop"].open == []


def test_a_trace_is_of_complete_events_on_named_threads(tmp_path):
    phases = Phases()
    with phases("step", update=1), phases("update"):
        pass
    write_profile(str(tmp_path), phases, {"updates": 1}, 1)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert [e["args"]["name"] for e in events if e["name"] == "thread_name"] == ["loop"]
    complete = [event for event in events if event["ph"] == "X"]
    assert {event["name"] for event in complete} == {"step", "update"}
    for event in complete:
        assert event.keys() >= {"name", "ph", "ts", "dur", "pid", "tid"}
        assert event["ts"] >= 0
        assert event["dur"] >= 0
    inner, outer = sorted(complete, key=lambda event: event["dur"])
    assert outer["ts"] <= inner["ts"]
    assert inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 1e-3
    assert outer["args"] == {"update": 1}
    assert json.loads((tmp_path / "profile.json").read_text()).keys() >= {"updates", "seconds", "threads", "phases"}
    assert trace(phases) == {"traceEvents": events, "displayTimeUnit": "ms"}


def test_a_trace_stops_growing_and_totals_go_on(monkeypatch):
    monkeypatch.setattr("training.compute.training_profile.TRACE_EVENTS", 10)
    phases = Phases()
    for _ in range(25):
        with phases("step"):
            pass
    assert len(phases.lanes["loop"].events) == 10
    assert phases.lanes["loop"].totals["step"][0] == 25


def test_off_records_nothing_and_lets_errors_through():
    with OFF("step", update=1):
        OFF.inside({"gather": 1})
    with pytest.raises(KeyError), OFF("step"):
        raise KeyError
