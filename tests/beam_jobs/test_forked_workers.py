"""Workers that are forked from a process that has imported what they need."""

import os
import signal
import time
from pathlib import Path

import apache_beam as beam
import pytest

from beam_jobs.engine import run_pipeline
from beam_jobs.forked_workers import forked_workers, forked_workers_if_asked
from schemas.errors import TransientError

TWO_PROCESSES = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]


def _process_of(_number: int) -> tuple[int, int]:
    time.sleep(0.2)  # or else one worker may do all
    return os.getpid(), os.getppid()


def _killed(_number: int) -> tuple[int, int]:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it is dead")


def _write_processes(pipeline: beam.Pipeline, path: str, process_of=_process_of) -> None:
    processes = pipeline | beam.Create(range(8)) | beam.Reshuffle() | beam.Map(process_of)
    _ = processes | beam.Map(_write, path)


def _write(processes: tuple[int, int], folder: str) -> None:
    Path(folder, "{}-{}".format(*processes)).touch()


@pytest.mark.engine
def test_two_jobs_have_workers_of_one_process_and_none_is_left(tmp_path):
    found = []
    with forked_workers() as workers:
        for job in ("first", "second"):
            (tmp_path / job).mkdir()
            path = str(tmp_path / job)
            run_pipeline(lambda pipeline, path=path: _write_processes(pipeline, path), TWO_PROCESSES, workers=workers)
            found.append({tuple(map(int, file.name.split("-"))) for file in (tmp_path / job).iterdir()})
        server = workers._server.pid
    assert [len(pids) for pids in found] == [2, 2]
    assert {parent for pids in found for _, parent in pids} == {server}
    for pid in {server, *(pid for pids in found for pid, _ in pids)}:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.engine
def test_a_worker_that_a_signal_ends_is_named_and_the_job_may_be_tried_again(tmp_path):
    with pytest.raises(TransientError, match="ended by SIGKILL"), forked_workers() as workers:
        run_pipeline(
            lambda pipeline: _write_processes(pipeline, str(tmp_path), _killed), TWO_PROCESSES, workers=workers
        )
    with pytest.raises(ProcessLookupError):
        os.killpg(workers._server.pid, 0)


@pytest.mark.engine
def test_a_worker_that_does_not_end_is_ended(monkeypatch, tmp_path):
    monkeypatch.setattr("beam_jobs.forked_workers.END_SECONDS", 2.0)
    with forked_workers() as workers:
        os.kill(workers._server.pid, signal.SIGSTOP)  # waits for ever
    with pytest.raises(ProcessLookupError):
        os.killpg(workers._server.pid, 0)


@pytest.mark.parametrize("options", [[], ["--runner=PrismRunner"], ["--direct_running_mode=in_memory"]])
def test_none_is_started_where_none_is_asked_for(options):
    with forked_workers_if_asked(options) as workers:
        assert workers is None
