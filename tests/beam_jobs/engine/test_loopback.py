"""Workers that an engine asks for while its job ends."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from apache_beam.portability.api import beam_fn_api_pb2

from clicktower.beam_jobs.engine.engine_start import _Pool
from clicktower.beam_jobs.engine.forked_workers import forked_workers
from tests.waiting import runs, wait_until


def _request(number: int) -> beam_fn_api_pb2.StartWorkerRequest:
    return beam_fn_api_pb2.StartWorkerRequest(
        worker_id=str(number),
        control_endpoint={"url": "127.0.0.1:1"},  # nobody answers there
    )


@pytest.mark.engine
def test_no_worker_is_left_of_those_that_were_asked_for_while_the_job_ended(tmp_path, monkeypatch):
    monkeypatch.setattr("clicktower.beam_jobs.engine.forked_workers.END_SECONDS", 2.0)
    some_started = Event()
    with forked_workers() as workers:
        pool, server = _Pool(workers, 0, str(tmp_path / "workers.log")), workers._server.pid

        def ask(number: int) -> bool:
            refused = bool(pool.StartWorker(_request(number), None).error)
            if number == 3:
                some_started.set()
            return refused

        with ThreadPoolExecutor(4) as engine:
            asked = [engine.submit(ask, number) for number in range(40)]
            some_started.wait()
            workers.end()
            refused = [call.result() for call in asked]
    assert refused.count(False) >= 1
    assert pool.StartWorker(_request(99), None).error == "the job has ended"
    wait_until(lambda: not runs(server), "the process that forks to end")
