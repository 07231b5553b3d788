"""The Ray cluster of a command: the connected one, the one of RAY_ADDRESS, or one that it starts.

A cluster that it starts is reachable from this machine only and requires its token, which is in the environment of its
processes and nowhere else. By default Ray opens its ports to every network, and writes the token to a file in the home
folder that others may read.
"""

import hashlib
import logging
import os
import secrets
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast

import ray
from ray._private import ray_constants
from ray._raylet import AuthenticationTokenLoader, Config  # type: ignore[attr-defined]  # compiled
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from clicktower.schemas.errors import StageError, TransientError
from clicktower.schemas.process import keeping_signal_handlers, make_socket_folder
from clicktower.schemas.stage import Progress
from clicktower.training.model.recipe import DeviceName

# Ray gives a node 30 seconds to start, with no option for more. A slow or busy machine may need another try, which
# finds in memory what the first one read from disk.
STARTS = 4


@contextmanager
def cluster(num_cpus: int) -> Iterator[None]:
    """Connect this process to a cluster. One that it starts has `num_cpus` CPUs and ends with the block.

    Raises ConnectionError if no head answers at RAY_ADDRESS, StageError if Ray does not start here.
    """
    if ray.is_initialized():
        yield
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if "RAY_ADDRESS" in os.environ:
        try:
            with keeping_signal_handlers():
                ray.init(**quiet)
        except RuntimeError as error:  # of many kinds, where no head answers
            raise ConnectionError(str(error)) from error
        try:
            yield
        finally:
            _shut_down()
        return
    folder = make_socket_folder()
    try:
        with _for_this_machine_alone():
            _start(num_cpus=num_cpus, _temp_dir=folder, **quiet)
            try:
                yield
            finally:
                _shut_down()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def cluster_lost_error(error: BaseException) -> TransientError:
    """The error for a cluster whose head, or node of this process, is gone."""
    return TransientError(
        f"The Ray cluster does not answer ({type(error).__name__}). The last checkpoint is kept.",
        "Check that its head runs (RAY_ADDRESS names it), then run the same command again to go on.",
    )


def device_of_cluster() -> DeviceName:
    """The device that `auto` means on the nodes of the cluster at RAY_ADDRESS: a GPU if a node has one, with the fused
    kernels if they pass their check on every such node. This process may have no GPU; if all GPUs are in use it waits
    for one, as training would. Raises TransientError.
    """
    try:
        with cluster(0):
            nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU")]
            questions = [
                ray.remote(_device_of_node).options(  # type: ignore[attr-defined]
                    num_cpus=0, num_gpus=0.001, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
                ).remote()
                for node in nodes
            ]  # fmt: skip
            answers = []
            for question in questions:
                with suppress(ray.exceptions.TaskUnschedulableError):  # its node has just gone
                    answers.append(ray.get(question))
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise cluster_lost_error(error) from None
    devices: tuple[DeviceName, ...] = ("cpu", "cuda-eager", "cuda")
    return next((device for device in devices if device in answers), "cpu")


def _device_of_node() -> DeviceName:
    from clicktower.training.trainer.gpu_check import (
        device_of_gpu,  # torch, which a process that only asks does not need
    )

    return device_of_gpu()


def on_this_node() -> dict[str, Any]:
    """Options of an actor on the node of this process, whose loss would end the process too."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return {"num_cpus": 0, "scheduling_strategy": here}


# Ray's processes read this from the environment, and this process read it when it imported Ray. ray.init takes neither
# an interface to listen on (https://github.com/ray-project/ray/issues/22732; it replaces 127.0.0.1 by an address of the
# network) nor a token (since https://github.com/ray-project/ray/pull/64755 it makes one for all clusters of a user), so
# ray_constants, Config and AuthenticationTokenLoader are set directly.
_NO_CLUSTER = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"


def is_of_this_machine_alone() -> bool:
    """Whether this process started its Ray cluster."""
    return not ray_constants.ENABLE_RAY_CLUSTER


@contextmanager
def _for_this_machine_alone() -> Iterator[None]:
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    settings = {
        _NO_CLUSTER: "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        # The network interface of torch's workers.
        "GLOO_SOCKET_IFNAME": loopback,
        "NCCL_SOCKET_IFNAME": loopback,
        # Ray Train asks Ray's web API whether a run lives. This cluster has none, and Ray would look for that of any
        # other on this machine: if its head was killed, each run would wait 12 seconds at its end.
        "RAY_API_SERVER_ADDRESS": "http://127.0.0.1:0",
    }
    before = {name: os.environ[name] for name in settings if name in os.environ}
    is_cluster, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False
    os.environ |= settings
    _read_environment()
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = is_cluster
        for name in settings:
            del os.environ[name]
        os.environ |= before
        _read_environment()


def _read_environment() -> None:
    """Make Ray read its token settings from the environment again; it caches them at import and first use."""
    Config.initialize("")
    AuthenticationTokenLoader.instance().reset_cache()


def _start(**options: Any) -> None:
    for start in range(1, STARTS + 1):
        try:
            with keeping_signal_handlers():
                ray.init(address="local", include_dashboard=False, **options)
            return
        except Exception as error:  # Ray raises no narrower kind
            ray.shutdown()
            if "timed out during startup" not in str(error):
                raise
            if start == STARTS:
                raise StageError(
                    f"Ray was not ready on this machine within 30 seconds, {STARTS} times.",
                    "Try again when the machine is less busy, or start Ray by hand and name it in RAY_ADDRESS.",
                ) from error


def _shut_down() -> None:
    """Disconnect. Ray's own way leaves SIGTERM to the system, which would end this process without a word."""
    with keeping_signal_handlers():
        ray.shutdown()


# The progress of a run on Ray: its first worker posts it, the process that started the run reads it. Free of torch,
# which the board's own process would take seconds to load.

POLL_SECONDS = 0.5


class _Board:
    """Where the first worker posts its progress for the process that started the run."""

    _progress: tuple | None = None

    def post(self, *progress: Any) -> None:
        self._progress = progress

    def read(self) -> tuple | None:
        return self._progress


@contextmanager
def board_of(checkpoints: str, progress: Progress) -> Iterator[Any]:
    """The run's board, whose name the cluster allows once: of two runs with one output the second waits for the first.

    If a run's own process was killed, the name is free once Ray has ended everything that belonged to it, so that its
    workers do not write checkpoints beside those of the next.
    """
    actor_class = cast(Any, ray.remote(**on_this_node())(_Board))
    name = f"clicktower-train-{hashlib.sha256(checkpoints.encode()).hexdigest()[:24]}"
    board = None
    while board is None:
        try:
            board = actor_class.options(name=name, namespace="clicktower").remote()
        except ValueError:  # the name is taken
            progress("the workers of a run that was killed are being ended: waiting", 0, None)
            time.sleep(POLL_SECONDS)
    try:
        yield board
    finally:
        with suppress(ray.exceptions.RayError):  # the head is gone, and with it the board
            ray.kill(board)


@contextmanager
def relayed(board: Any, progress: Progress) -> Iterator[None]:
    """Within the context a thread passes on the posted figures."""
    stop, last = threading.Event(), None

    def relay() -> None:
        nonlocal last
        with suppress(ray.exceptions.RayError):
            posted = ray.get(board.read.remote())
            if posted and posted != last:
                last = posted
                progress(*posted)

    def relay_all() -> None:
        while not stop.wait(POLL_SECONDS):
            relay()
        relay()

    thread = threading.Thread(target=relay_all, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
