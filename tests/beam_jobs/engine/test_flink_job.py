"""A job on a Flink cluster is found by its name, waited for and cancelled there."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from clicktower.beam_jobs.engine import engine_start
from clicktower.beam_jobs.engine.engine_start import FlinkJob
from clicktower.schemas.errors import TransientError


@pytest.fixture
def cluster(monkeypatch):
    """A cluster's address and its jobs; those that run end when they are cancelled or have been looked at thrice."""
    monkeypatch.setattr(engine_start.time, "sleep", lambda seconds: None)
    jobs, looks = [], []

    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            looks.append(self.path)
            if len(looks) > 3:
                for job in jobs:
                    job["state"] = job["state"].replace("RUNNING", "FINISHED")
            self._answer({"taskmanagers": 1, "jobs": jobs})

        def do_PATCH(self):
            for job in jobs:
                if self.path == f"/jobs/{job['jid']}?mode=cancel":
                    job["state"] = "CANCELED"
            self._answer({})

        def _answer(self, value):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(value).encode())

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", jobs
        server.shutdown()


def job(number: int, name: str, state: str) -> dict:
    return {"jid": str(number), "name": name, "state": state, "start-time": number}


def test_it_is_waited_for_until_it_has_ended(cluster):
    address, jobs = cluster
    jobs += [job(1, "ours", "RUNNING"), job(2, "another", "RUNNING")]
    reported = []
    FlinkJob(address, "ours").wait(reported.append)
    assert set(reported) == {"it runs on the cluster already, as ours: waiting for it"}
    FlinkJob(address, "unknown").wait(reported.clear)
    assert reported


def test_it_alone_is_cancelled_and_the_newest_of_its_name_says_so(cluster):
    address, jobs = cluster
    jobs += [job(3, "ours", "RUNNING"), job(1, "ours", "FAILED"), job(4, "another", "RUNNING")]
    ours = FlinkJob(address, "ours")
    assert not ours.was_cancelled()
    ours.cancel()
    assert ours.was_cancelled()
    assert "CANCELED" not in [one["state"] for one in jobs[1:]]
    assert not FlinkJob(address, "unknown").was_cancelled()


def test_a_cluster_that_is_not_there_is_an_error_to_wait_for_and_cancels_nothing():
    nowhere = FlinkJob("http://127.0.0.1:9", "ours")
    with pytest.raises(TransientError, match="No Flink cluster answers at"):
        nowhere.wait(print)
    with pytest.raises(OSError, match="refused"):
        nowhere.cancel()
    assert not nowhere.was_cancelled()
