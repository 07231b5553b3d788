"""Beam's environment of worker processes that forked_workers forks: what its own one of subprocesses is."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.fn_api_runner.worker_handlers import GrpcWorkerHandler, WorkerHandler
from apache_beam.runners.worker import data_plane
from apache_beam.transforms.environments import Environment, python_sdk_capabilities
from apache_beam.utils import thread_pool_executor

from beam_jobs.engine.forked_workers import ForkedWorkers, forked_workers

_URN = "clicktower:env:forked:v1"
MOST_TEMPORARY = 70  # letters of the folder for temporary files: the path of a socket has at most a hundred or so
# Beam hands on bytes, and makes the handlers itself: these say which of the environments they are of.
_ENVIRONMENTS: dict[bytes, "ForkedEnvironment"] = {}


class ForkedEnvironment(Environment):
    """The environment of one job. What workers say goes to the file `log`."""

    def __init__(self, workers: ForkedWorkers, cache_bytes: int, log: str) -> None:
        super().__init__(capabilities=python_sdk_capabilities())
        self.workers, self.cache_bytes, self.log = workers, cache_bytes, log

    def to_runner_api_parameter(self, context: Any) -> tuple[str, bytes]:
        _ENVIRONMENTS[name := self.log.encode()] = self
        return _URN, name


class _PrivateServer(worker_handlers.GrpcServer):
    """What a runner's workers talk to: one unix socket, in a folder that only this user can enter.

    Beam's own listens on four ports of every interface, and hands out any file that this user can read.
    """

    def __init__(self, state: Any, provision_info: Any, worker_manager: Any) -> None:
        is_long = len(tempfile.gettempdir()) > MOST_TEMPORARY
        self._folder = tempfile.mkdtemp(prefix="clicktower-", dir="/tmp" if is_long else None)
        self.address = f"unix:{os.path.join(self._folder, 'runner')}"
        self.control_port = self.data_port = self.state_port = self.logging_port = 0  # _Handler gives the address
        self.control_handler = worker_handlers.BeamFnControlServicer(worker_manager)
        self.data_plane_handler = data_plane.BeamFnDataServicer(worker_handlers.DATA_BUFFER_TIME_LIMIT_MS)
        self._server = grpc.server(
            thread_pool_executor.shared_unbounded_instance(),
            options=[
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
                # Workers ask every 20 seconds whether it is still there, however long they compute.
                ("grpc.http2.max_pings_without_data", 0),
                ("grpc.http2.max_ping_strikes", 0),
                ("grpc.http2.min_ping_interval_without_data_ms", 20_000),
            ],
        )
        services = beam_fn_api_pb2_grpc
        services.add_BeamFnControlServicer_to_server(self.control_handler, self._server)
        services.add_BeamFnDataServicer_to_server(self.data_plane_handler, self._server)
        services.add_BeamFnStateServicer_to_server(worker_handlers.GrpcStateServicer(state), self._server)
        services.add_BeamFnLoggingServicer_to_server(worker_handlers.BasicLoggingService(), self._server)
        self._server.add_insecure_port(self.address)
        self._server.start()

    def close(self) -> None:
        self.control_handler.done()
        self._server.stop(self._DEFAULT_SHUTDOWN_TIMEOUT_SECS).wait()
        shutil.rmtree(self._folder, ignore_errors=True)


worker_handlers.GrpcServer = _PrivateServer  # type: ignore[misc]  # where Beam looks for it, and offers no choice


@WorkerHandler.register_environment(_URN, bytes)
class _Handler(GrpcWorkerHandler):
    def __init__(self, name: bytes, state: Any, provision_info: Any, grpc_server: Any) -> None:
        super().__init__(state, provision_info, grpc_server)
        self._environment = _ENVIRONMENTS[name]

    def start_worker(self) -> None:
        made_by = self._environment
        made_by.workers.start(
            self.control_address, self.worker_id, cache_bytes=made_by.cache_bytes, log=made_by.log,
            fail=lambda error: self.control_conn.abort(error),
        )  # fmt: skip

    def stop_worker(self) -> None:
        """Nothing: it ends with its connection."""

    def port_from_worker(self, port: int) -> str:
        assert isinstance(self._grpc_server, _PrivateServer)
        return self._grpc_server.address


# The same processes for engines that ask for workers on the machine that submits a job: Beam's LOOPBACK environment.
#
# Beam's own way is a thread of the submitting process, which prints every traceback to the terminal and shares one
# interpreter with all others, and a port that every machine of the network can reach. This one is open to this machine
# alone.


@contextmanager
def worker_pool(cache_bytes: int, log: str) -> Iterator[str]:
    """The address at which an engine asks for workers. What they say goes to the file `log`."""
    with forked_workers() as workers:
        server = grpc.server(ThreadPoolExecutor(max_workers=4))
        pool = _Pool(workers, cache_bytes, log)
        beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(None).wait()


class _Pool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):
    def __init__(self, workers: ForkedWorkers, cache_bytes: int, log: str) -> None:
        self._workers, self._cache_bytes, self._log = workers, cache_bytes, log

    def StartWorker(self, request, context):
        try:
            self._workers.start(
                request.control_endpoint.url,
                request.worker_id,
                cache_bytes=self._cache_bytes,
                log=self._log,
                fail=lambda error: None,  # the engine sees that it is gone
            )
        except (OSError, ValueError):  # a call under way outlives the server that it came to
            return beam_fn_api_pb2.StartWorkerResponse(error="the job has ended")
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(self, request, context):
        """Nothing: a worker ends with its connection."""
        return beam_fn_api_pb2.StopWorkerResponse()
