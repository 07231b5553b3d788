"""Workers that are forked from a process that has imported what they need."""

import os
import signal
import stat
import tempfile
import time
from pathlib import Path

import apache_beam as beam
import pytest

from clicktower.beam_jobs.engine.beam_engine import run_pipeline
from clicktower.beam_jobs.engine.engine_options import asks_for_processes
from clicktower.beam_jobs.engine.engine_start import _PrivateServer
from clicktower.beam_jobs.engine.forked_workers import forked_workers
from clicktower.schemas.errors import TransientError

TWO_PROCESSES = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]


def _meet(_number: int, folder: str) -> None:
    """Leave the ids of this process and its parent, and wait for another to do so, or else one worker may do all."""
    Path(folder, f"{os.getpid()}-{os.getppid()}").touch()
    end = time.monotonic() + 300
    while len(list(Path(folder).iterdir())) < 2:
        assert time.monotonic() < end, "there is one worker alone"
        time.sleep(0.02)


def _killed(_number: int, _folder: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _in_each_worker(pipeline: beam.Pipeline, do, folder: str) -> None:
    _ = pipeline | beam.Create(range(8)) | beam.Reshuffle() | beam.Map(do, folder)


@pytest.mark.engine
def test_two_jobs_have_workers_of_one_process_and_none_is_left(tmp_path):
    found = []
    with forked_workers() as workers:
        for job in ("first", "second"):
            (tmp_path / job).mkdir()
            path = str(tmp_path / job)
            run_pipeline(
                lambda pipeline, path=path: _in_each_worker(pipeline, _meet, path), TWO_PROCESSES, workers=workers
            )
            found.append({tuple(map(int, file.name.split("-"))) for file in (tmp_path / job).iterdir()})
        server = workers._server.pid
    assert [len(pids) for pids in found] == [2, 2]
    assert {parent for pids in found for _, parent in pids} == {server}
    for pid in {server, *(pid for pids in found for pid, _ in pids)}:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.engine
def test_a_worker_that_a_signal_ends_is_named_and_the_job_may_be_tried_again(tmp_path):
    with pytest.raises(TransientError, match="SIGKILL ended a process"), forked_workers() as workers:
        run_pipeline(lambda pipeline: _in_each_worker(pipeline, _killed, str(tmp_path)), TWO_PROCESSES, workers=workers)
    with pytest.raises(ProcessLookupError):
        os.killpg(workers._server.pid, 0)


@pytest.mark.engine
def test_a_worker_that_does_not_end_is_ended(monkeypatch, tmp_path):
    monkeypatch.setattr("clicktower.beam_jobs.engine.forked_workers.END_SECONDS", 2.0)
    with forked_workers() as workers:
        os.kill(workers._server.pid, signal.SIGSTOP)  # waits for ever
    with pytest.raises(ProcessLookupError):
        os.killpg(workers._server.pid, 0)


@pytest.mark.parametrize("options", [[], ["--runner=PrismRunner"], ["--direct_running_mode=in_memory"]])
def test_none_is_started_where_none_is_asked_for(options):
    assert not asks_for_processes(options)


def test_workers_are_reached_in_a_private_folder_however_long_the_name_of_that_for_temporary_files_is(
    tmp_path, monkeypatch
):
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    server = _PrivateServer(None, None, None)
    socket = Path(server.address.removeprefix("unix:"))
    assert stat.S_ISSOCK(socket.stat().st_mode)
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o700
    server.close()
    assert not socket.parent.exists()
