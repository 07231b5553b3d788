"""Beam's environment of worker processes that beam_jobs.forked_workers forks: what its own one of subprocesses is."""

from typing import Any

from apache_beam.runners.portability.fn_api_runner.worker_handlers import GrpcWorkerHandler, WorkerHandler
from apache_beam.transforms.environments import Environment, python_sdk_capabilities

from beam_jobs.forked_workers import ForkedWorkers

_URN = "clicktower:env:forked:v1"
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
