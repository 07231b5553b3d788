"""Workers that an engine asks for while its job ends."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from apache_beam.portability.api import beam_fn_api_pb2

from beam_jobs.engine.worker_environments import _Workers


def _request(number: int) -> beam_fn_api_pb2.StartWorkerRequest:
    return beam_fn_api_pb2.StartWorkerRequest(
        worker_id=str(number),
        control_endpoint={"url": "127.0.0.1:1"},  # nobody answers there
    )


def test_no_worker_is_left_of_those_that_were_asked_for_while_the_job_ended(tmp_path):
    workers, some_started = _Workers(0, str(tmp_path / "workers.log")), Event()

    def ask(number: int) -> bool:
        refused = bool(workers.StartWorker(_request(number), None).error)
        if number == 3:
            some_started.set()
        return refused

    with ThreadPoolExecutor(4) as engine:
        asked = [engine.submit(ask, number) for number in range(40)]
        some_started.wait()
        workers.end()
        refused = [call.result() for call in asked]
    started = list(workers._processes.values())
    assert len(started) == refused.count(False) >= 1
    assert all(process.returncode is not None for process in started)
    assert workers.StartWorker(_request(99), None).error == "the job has ended"
    assert len(workers._processes) == len(started)
