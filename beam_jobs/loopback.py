"""Python workers on the machine that submits a job, for the engines that ask for them (Beam's LOOPBACK environment).

Beam's own way is a thread of the submitting process, which prints every traceback to the terminal and shares one
interpreter with all others, and a port that every machine of the network can reach. Here each worker is a process,
which ends with the one that submitted the job, and the port is open to this machine alone.
"""

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

TERM_SECONDS = 5.0

# What the worker runs: the harness ends when its engine closes the connection, which it does when it ends itself.
_WORKER = """
import sys
from apache_beam.runners.worker.sdk_worker import SdkHarness
endpoint, worker_id, cache_bytes = sys.argv[1:]
SdkHarness(endpoint, worker_id=worker_id, state_cache_size=int(cache_bytes), data_buffer_time_limit_ms=0).run()
"""


@contextmanager
def worker_pool(cache_bytes: int, log: str) -> Iterator[str]:
    """The address at which an engine asks for workers. What they say goes to the file `log`."""
    workers = _Workers(cache_bytes, log)
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(workers, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
        workers.end()


class _Workers(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):
    """An engine may ask for one more worker while the job ends: a call under way outlives the server it came to."""

    def __init__(self, cache_bytes: int, log: str) -> None:
        self._cache_bytes, self._log = cache_bytes, log
        self._processes: dict[str, subprocess.Popen] = {}
        self._ended, self._lock = False, Lock()

    def StartWorker(self, request, context):
        command = [sys.executable, "-c", _WORKER, request.control_endpoint.url, request.worker_id]
        with self._lock:
            if self._ended:
                return beam_fn_api_pb2.StartWorkerResponse(error="the job has ended")
            with open(self._log, "ab") as log:
                self._processes[request.worker_id] = subprocess.Popen(
                    [*command, str(self._cache_bytes)], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
                )
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(self, request, context):
        with self._lock:
            process = self._processes.pop(request.worker_id, None)
        if process:
            _end(process)
        return beam_fn_api_pb2.StopWorkerResponse()

    def end(self) -> None:
        """End every worker; no other is started from here on."""
        with self._lock:
            self._ended = True
            left = list(self._processes.values())
        for process in left:
            _end(process)


def _end(process: subprocess.Popen) -> None:
    process.terminate()
    try:
        process.wait(TERM_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
