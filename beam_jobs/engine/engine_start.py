"""The services that each runner needs, started for one job and ended with it.

FnApiRunner needs none, or worker processes (forked_workers). Prism and Flink take jobs through a server, which is
started here unless `--job_endpoint` names one.
"""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import (
    DebugOptions,
    DirectOptions,
    FlinkRunnerOptions,
    GoogleCloudOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
    PrismRunnerOptions,
    TestOptions,
    WorkerOptions,
)
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc
from apache_beam.runners.portability.flink_runner import FlinkRunner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner, worker_handlers
from apache_beam.runners.portability.fn_api_runner.worker_handlers import GrpcWorkerHandler, WorkerHandler
from apache_beam.runners.runner import PipelineResult, PipelineRunner
from apache_beam.runners.worker import data_plane
from apache_beam.transforms.environments import Environment, python_sdk_capabilities
from apache_beam.utils import thread_pool_executor

from clicktower.beam_jobs.engine.beam_engine import EngineLog, find_carried, new_pipeline
from clicktower.beam_jobs.engine.engines import LOOPBACK, MINI_CLUSTER
from clicktower.beam_jobs.engine.forked_workers import ForkedWorkers, forked_workers
from clicktower.schemas.errors import JobGoesOn, LostSight, StageError, TransientError, UsageError
from clicktower.schemas.process import asked_to_end_by, end_session, make_socket_folder, raise_if_asked_to_end
from clicktower.schemas.stage import Progress

# Beam would stage a list of the installed packages, which nothing reads; without it a cluster needs no file of this
# machine, so a job survives the machine that submitted it.
_NOTHING_TO_STAGE = "disable_logging_submission_environment"
PORT = "{port}"  # stands for the chosen port in a command
START_SECONDS = 120.0
TERM_SECONDS = 10.0
CLUSTER_ANSWER_SECONDS = 10.0
CANCEL_SECONDS = 60.0
SILENCE_SECONDS = 60.0  # how long a cluster may be silent while a job on it is waited for
_ENDED = {
    "FAILED": "The runner reports that the Beam job failed",
    "CANCELLED": "The Beam job was cancelled from the runner's side",
    "DRAINED": "The Beam job was drained from the runner's side",
}
_ENDED_ON_FLINK = {"CANCELED", "FAILED", "FINISHED"}


class HandedOver(JobGoesOn):
    """The job was described and left for another program to start: no failure (exit code 0), and no result yet."""

    exit_code = 0


def run_on_engine(
    build: Callable[[beam.Pipeline], None],
    name: str,
    options: PipelineOptions,
    log: EngineLog,
    job_name: str,
    has_committed: Callable[[], bool],
    progress: Progress,
    workers: ForkedWorkers | None,
) -> None:
    """As beam_engine.run_pipeline, on the runner with this name, or in worker processes of this machine."""
    name_job(name, options, job_name)

    def is_done() -> bool:
        """Whether the request is committed, once no job of this name runs any more."""
        if same := flink_job(name, options):
            try:
                same.wait(lambda activity: progress(activity, 0, None))
            except (KeyboardInterrupt, SystemExit):  # an interrupt of our own job cancels this one too
                cancel(None, name, options)
                raise
        return has_committed()

    if is_done():
        return
    with started(name, options, log.folder, workers) as runner:
        pipeline = new_pipeline(build, runner, options)
        _refuse_dry_run(name, pipeline, options)
        if is_done():  # a killed client's submission may have reached the cluster while the engine started
            return
        if isinstance(runner, PipelineRunner):  # in this process: `run` returns at the end
            pipeline.run().wait_until_finish()
        else:
            _submit_and_wait(pipeline, name, options, log)


@contextmanager
def started(
    name: str, options: PipelineOptions, log_folder: str, workers: ForkedWorkers | None = None
) -> Iterator[PipelineRunner | str]:
    """The runner for Beam, with its services running; `options` are changed to point to them.

    `workers`: forks worker processes if the options ask for them and the caller has started it.

    Raises UsageError if an engine's files are missing, StageError if its server does not start.
    """
    portable = options.view_as(PortableOptions)
    with ExitStack() as stack:
        if name == "FnApiRunner":
            direct = options.view_as(DirectOptions)
            if direct.direct_running_mode != "multi_processing":  # only translated
                yield FnApiRunner()
                return
            direct.direct_running_mode = "in_memory"  # otherwise Beam uses its own processes, which import everything
            workers = workers or stack.enter_context(forked_workers())
            environment = ForkedEnvironment(workers, _cache_bytes(options), os.path.join(log_folder, "workers.log"))
            yield FnApiRunner(default_environment=environment)
            return
        command: list[str] = []
        if name in ("PrismRunner", "FlinkRunner") and not portable.job_endpoint:
            options.view_as(DebugOptions).add_experiment(_NOTHING_TO_STAGE)
            if name == "PrismRunner":
                command, preload = _prism(options), ""
            else:
                command = _flink_job_server(options, log_folder)
                # A library from `make engines` that hides the ports of server and mini cluster from other machines.
                library_file = os.path.join(os.path.dirname(command[command.index("-jar") + 1]), LOOPBACK)
                preload = library_file if os.path.isfile(library_file) else ""
        if name in ("PrismRunner", "FlinkRunner", "PortableRunner") and _is_loopback(name, options):
            portable.environment_type = "EXTERNAL"
            portable.environment_config = stack.enter_context(
                worker_pool(_cache_bytes(options), os.path.join(log_folder, "workers.log"))
            )
        if command:  # it ends before the pool: workers end with their connections to it
            log = os.path.join(log_folder, "server.log")
            portable.job_endpoint = stack.enter_context(job_server(command, log, preload))
        yield name


def _refuse_dry_run(name: str, pipeline: beam.Pipeline, options: PipelineOptions) -> None:
    """With the option `--dry_run`, translate the job as for running and raise UsageError."""
    if not options.view_as(TestOptions).dry_run:
        return
    if name == "DataflowRunner":
        result: Any = pipeline.run()  # it stops before it talks to Google
        proto = result.job.proto_pipeline
    else:
        proto = pipeline.to_runner_api()
    names = [transform.unique_name for transform in proto.components.transforms.values()]
    steps = dict.fromkeys(name.partition("/")[0] for name in names if name)
    raise UsageError(
        f"With --dry_run the job is only translated: it has {len(names)} transforms for {name}, in the steps"
        f" {', '.join(steps)}. Nothing ran.",
        "Leave out --dry_run to run it.",
    )


def _submit_and_wait(pipeline: beam.Pipeline, name: str, options: PipelineOptions, log: EngineLog) -> None:
    """Return when the runner reports DONE; cancel the job if this process is interrupted."""
    result: PipelineResult | None = None
    cause: Exception | None = None
    try:
        result = pipeline.run()
        _leave_to_launcher(name, options)
        state = str(result.wait_until_finish())
    except HandedOver:
        raise
    except BaseException as error:
        if asked_to_end_by() or not isinstance(error, Exception):  # Beam may make an error of an interrupt
            cancel(result, name, options)
            raise_if_asked_to_end()
            raise
        cause, state = error, _last_state(result)  # RuntimeError, with the runner's text, for any end but DONE
    if state == "DONE":
        return
    if carried := find_carried(cause):
        raise carried from None
    where = log.keep_if_engines_wrote()
    kept = f" (the engine's output, which may quote data, is in {where})" if where else ""
    on_flink = flink_job(name, options)
    if state not in _ENDED:
        if result is None and cause and not isinstance(cause, grpc.RpcError):  # not submitted: not the engine's fault
            raise cause
        if on_flink:
            raise LostSight(
                f"The Beam job cannot be followed any more; its last known state: {state}. If it reached the cluster,"
                " it goes on and commits its result.",
                f"Run the same command again, which waits for it{kept}.",
            )
        cancel(result, name, options)
    if on_flink and on_flink.was_cancelled():  # Beam cannot tell this from a failure
        state = "CANCELLED"
    ended = _ENDED.get(state, f"The Beam job cannot be followed any more; its last known state: {state}")
    kind = StageError if state == "CANCELLED" else TransientError  # a user who cancelled it does not want a retry
    raise kind(f"{ended}. Nothing was committed.", f"Run the same command again{kept}.")


def _leave_to_launcher(name: str, options: PipelineOptions) -> None:
    """If Dataflow's template launcher requested the job, its description is written: raise HandedOver."""
    if name == "DataflowRunner" and options.view_as(GoogleCloudOptions).template_location:
        raise HandedOver(
            "The job is written down for Dataflow's template launcher (--template_location) and starts after this"
            " command has ended. Its last step writes the manifest; the same command on any machine then answers"
            " 'reused'.",
            "Follow the job on Dataflow's own page.",
        )


def _last_state(result: PipelineResult | None) -> str:
    try:
        return str(result.state) if result else "not submitted"
    except Exception:  # the server is gone
        return "submitted"


def on_a_cluster(name: str, options: PipelineOptions) -> bool:
    """Whether the job runs elsewhere and continues after this process ends."""
    if name == "FlinkRunner":
        return options.view_as(FlinkRunnerOptions).flink_master not in MINI_CLUSTER
    return name not in ("FnApiRunner", "PrismRunner")


def name_job(name: str, options: PipelineOptions, job_name: str) -> None:
    """Name the job so that another process can find it; Beam keeps the name among Google's options."""
    named = options.view_as(GoogleCloudOptions)
    if name in ("FlinkRunner", "PrismRunner"):
        named.job_name = named.job_name or job_name or f"clicktower-{uuid.uuid4().hex[:12]}"


def cancel(result: PipelineResult | None, name: str, options: PipelineOptions) -> None:
    """End a submitted job. Raises JobGoesOn if it is on a cluster and may still run there.

    A job in this process, or in a server that was started for it, ends with it.
    """
    try:
        if on_flink := flink_job(name, options):
            on_flink.cancel()
        elif result and on_a_cluster(name, options):
            result.cancel()
    except Exception as error:
        raise JobGoesOn(
            f"The cluster did not take the request to cancel the Beam job ({type(error).__name__}). The job may go on"
            " there and commit its result.",
            "Look for it on the cluster's own page, and cancel it there if it is not wanted.",
        ) from None


def _prism(options: PipelineOptions) -> list[str]:
    prism = options.view_as(PrismRunnerOptions)
    _require(prism.prism_location, "--runner=PrismRunner", "--prism_location", "the program prism")
    return [
        prism.prism_location, "--job_port", PORT, "--serve_http=false",
        "--log_level", prism.prism_log_level, "--log_kind", "text",
    ]  # fmt: skip


def _flink_job_server(options: PipelineOptions, log_folder: str) -> list[str]:
    flink, server = options.view_as(FlinkRunnerOptions), options.view_as(JobServerOptions)
    _require(flink.flink_job_server_jar, "--runner=FlinkRunner", "--flink_job_server_jar", "Flink's job server")
    java = server.job_server_java_launcher
    _require(shutil.which(java), "--runner=FlinkRunner", "--job_server_java_launcher", "java (17 or 11)")
    flink.flink_master = FlinkRunner.add_http_scheme(flink.flink_master)
    if on_a_cluster("FlinkRunner", options):
        require_cluster(flink.flink_master)
    artifacts = server.artifacts_dir or os.path.join(log_folder, "artifacts")
    return [
        java, f"-Djava.io.tmpdir={log_folder}", *server.job_server_jvm_properties,
        "-jar", flink.flink_job_server_jar,
        "--flink-master", flink.flink_master, "--artifacts-dir", artifacts,
        "--job-port", PORT, "--artifact-port", str(server.artifact_port), "--expansion-port", "-1",
    ]  # fmt: skip


def _require(path: str | None, user: str, option: str, engine: str) -> None:
    if path and os.path.isfile(path):
        return
    raise UsageError(
        f"There is no {path}, which {user} needs." if path else f"{user} needs {engine}, and its place is unknown.",
        f"Run `make engines` in clicktower's folder, name the folder in CLICKTOWER_ENGINES, or give {option}.",
    )


def _is_loopback(name: str, options: PipelineOptions) -> bool:
    environment = options.view_as(PortableOptions).environment_type
    if environment or name == "PortableRunner":
        return environment == "LOOPBACK"
    return not on_a_cluster(name, options)


def _cache_bytes(options: PipelineOptions) -> int:
    return (options.view_as(WorkerOptions).max_cache_memory_usage_mb or 0) << 20


# The server process that takes a job for its runner: Prism itself, or the job server of Flink.
#
# It lives exactly as long as this process: it ends with the block, and if this process is killed, a pipe closes and it
# is killed too. It has a session of its own, so an interrupt typed at the terminal reaches only this process, which can
# still use the server to cancel the job.

_SUPERVISE = os.path.join(os.path.dirname(__file__), "supervise.sh")


@contextmanager
def job_server(command: Sequence[str], log: str, preload: str = "") -> Iterator[str]:
    """The address (localhost:port) of the server while the block runs. Its output goes to the file `log`.

    `preload`: a library to load into it (LD_PRELOAD). Raises TransientError if it does not start.
    """
    with closing(socket.socket()) as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    command = [word.replace(PORT, str(port)) for word in command]
    with open(log, "ab") as output:
        process = subprocess.Popen(
            ["sh", _SUPERVISE, *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | ({"LD_PRELOAD": preload} if preload else {}),
        )
    try:
        _wait_until_it_answers(process, port, command, log)
        yield f"localhost:{port}"
    finally:
        end_session(process, TERM_SECONDS)
        assert process.stdin
        process.stdin.close()


def _wait_until_it_answers(process: subprocess.Popen, port: int, command: Sequence[str], log: str) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection(("localhost", port), timeout=1):
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    ended = process.poll() is not None
    raise TransientError(
        f"{os.path.basename(command[0])} was started for the job and "
        + (f"ended with code {process.returncode}." if ended else f"does not answer after {START_SECONDS:.0f} s."),
        f"Read its output in {log}; start it by hand to see more: {' '.join(command)}.",
    )


# A job on a Flink cluster, as the cluster's REST API reports it.


@dataclass(frozen=True, slots=True)
class FlinkJob:
    """A job on a Flink cluster: `master`, http://host:port, and the name by which any process finds it."""

    master: str
    name: str

    def wait(self, tell: Callable[[str], None]) -> None:
        """Wait until the job no longer runs; a job that a killed client left behind goes on.

        Raises TransientError if no cluster answers, or if it stops answering while the job runs.
        """
        require_cluster(self.master)
        heard = time.monotonic()
        while True:
            try:
                if not self._running():
                    return
                heard = time.monotonic()
            except OSError:
                if time.monotonic() - heard > SILENCE_SECONDS:
                    raise TransientError(
                        f"The cluster that runs the job {self.name} has been silent for {SILENCE_SECONDS:.0f} s. The"
                        " job may go on there and commit its result.",
                        "Run the same command again when the cluster answers.",
                    ) from None
            tell(f"it runs on the cluster already, as {self.name}: waiting for it")
            time.sleep(1)

    def cancel(self) -> None:
        """Cancel the job and wait until it no longer runs.

        Raises OSError if the cluster does not answer, TimeoutError if the job does not end.
        """
        until = time.monotonic() + CANCEL_SECONDS
        while running := self._running():
            if time.monotonic() > until:
                raise TimeoutError(f"the job did not end in {CANCEL_SECONDS:.0f} s")
            for job in running:
                _ask(f"{self.master}/jobs/{job}?mode=cancel", "PATCH")
            time.sleep(1)

    def was_cancelled(self) -> bool:
        """Whether the cluster answers and reports the newest job of this name as cancelled."""
        with suppress(OSError):
            newest = max(self._all(), key=lambda job: job["start-time"], default={"state": ""})
            return newest["state"] in ("CANCELED", "CANCELLING")
        return False

    def _running(self) -> list[str]:
        return [job["jid"] for job in self._all() if job["state"] not in _ENDED_ON_FLINK]

    def _all(self) -> list[dict[str, Any]]:
        return [job for job in _ask(f"{self.master}/jobs/overview", "GET")["jobs"] if job["name"] == self.name]


def flink_job(name: str, options: PipelineOptions) -> FlinkJob | None:
    """The job on its Flink cluster; None if it does not run on one."""
    if name != "FlinkRunner" or not on_a_cluster(name, options):
        return None
    master = FlinkRunner.add_http_scheme(options.view_as(FlinkRunnerOptions).flink_master)
    return FlinkJob(master, options.view_as(GoogleCloudOptions).job_name)


def require_cluster(master: str) -> None:
    """Raise TransientError if no cluster with a task manager answers at `master` (http://host:port)."""
    try:
        has_room = bool(_ask(f"{master}/overview", "GET")["taskmanagers"])
        problem = "" if has_room else f"The Flink cluster at {master} has no task manager."
    except (OSError, ValueError, KeyError):
        problem = f"No Flink cluster answers at {master}."
    if problem:
        raise TransientError(
            problem, "Start the cluster (deploy/flink/start), or give the address of its page with --flink_master."
        )


def _ask(url: str, method: str) -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=CLUSTER_ANSWER_SECONDS) as answer:
        return json.load(answer)


# Worker processes that forked_workers forks, as an environment of Beam, like Beam's own environment of subprocesses.


_URN = "clicktower:env:forked:v1"
# Beam passes bytes and makes the handlers itself: these identify the environment.
_ENVIRONMENTS: dict[bytes, "ForkedEnvironment"] = {}


class ForkedEnvironment(Environment):
    """The environment of one job. The output of its workers goes to the file `log`."""

    def __init__(self, workers: ForkedWorkers, cache_bytes: int, log: str) -> None:
        super().__init__(capabilities=python_sdk_capabilities())
        self.workers, self.cache_bytes, self.log = workers, cache_bytes, log

    def to_runner_api_parameter(self, context: Any) -> tuple[str, bytes]:
        _ENVIRONMENTS[name := self.log.encode()] = self
        return _URN, name


class _PrivateServer(worker_handlers.GrpcServer):
    """The server that a runner's workers connect to: one unix socket, in a folder that only this user can enter.

    Beam's own listens on four ports of every interface, and serves any file that this user can read. No option chooses
    another address (https://github.com/apache/beam/issues/21087).
    """

    def __init__(self, state: Any, provision_info: Any, worker_manager: Any) -> None:
        self._folder = make_socket_folder()
        self.address = f"unix:{os.path.join(self._folder, 'runner')}"
        self.control_port = self.data_port = self.state_port = self.logging_port = 0  # _Handler sets the address
        self.control_handler = worker_handlers.BeamFnControlServicer(worker_manager)
        self.data_plane_handler = data_plane.BeamFnDataServicer(worker_handlers.DATA_BUFFER_TIME_LIMIT_MS)
        self._server = grpc.server(
            thread_pool_executor.shared_unbounded_instance(),
            options=[
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
                # Workers ask every 20 seconds whether it is alive, however long they compute.
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


worker_handlers.GrpcServer = _PrivateServer  # type: ignore[misc]  # where Beam looks for it


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
        """Do nothing: a worker ends with its connection."""

    def port_from_worker(self, port: int) -> str:
        assert isinstance(self._grpc_server, _PrivateServer)
        return self._grpc_server.address


# The same processes for engines that request workers on the machine that submits a job: Beam's LOOPBACK environment.
#
# Beam's own version is a thread of the submitting process, which prints every traceback to the terminal and shares one
# interpreter with all others, and a port that every machine of the network can reach. This one is open to this machine
# alone.


@contextmanager
def worker_pool(cache_bytes: int, log: str) -> Iterator[str]:
    """The address at which an engine requests workers. Their output goes to the file `log`."""
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
                fail=lambda error: None,  # the engine notices its end
            )
        except (OSError, ValueError):  # a call may outlive its server
            return beam_fn_api_pb2.StartWorkerResponse(error="the job has ended")
        return beam_fn_api_pb2.StartWorkerResponse()

    def StopWorker(self, request, context):
        """Do nothing: a worker ends with its connection."""
        return beam_fn_api_pb2.StopWorkerResponse()
