"""deploy/ray/start and stop: a cluster is there when `start` returns, or nothing is and the reason is said."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from tests.ray_cluster import SCRIPTS, free_ports
from tests.waiting import runs, wait_until

PORTS = ("RAY_HEAD_PORT", "RAY_HEAD_DASHBOARD_PORT", "RAY_HEAD_CLIENT_PORT", "RAY_HEAD_AGENT_PORT")


@pytest.fixture
def ports() -> dict[str, str]:
    return dict(zip(PORTS, map(str, free_ports(4)), strict=True))


def script(name: str, *words: str, ports: dict[str, str]) -> subprocess.Popen:
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | ports
    return subprocess.Popen(
        [str(SCRIPTS / name), *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def processes(ports: dict[str, str]) -> list[psutil.Process]:
    """All of the cluster: each of Ray's processes is told the head's address."""
    address = f":{ports['RAY_HEAD_PORT']}"
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(address in word for word in process.info["cmdline"] or []) and runs(process.pid)
    ]


def cpus_of_nodes(token: Path, port: str) -> list[int]:
    """Of each node that the head counts as alive."""
    ask = f"import ray; ray.init('127.0.0.1:{port}', logging_level='ERROR'); "
    ask += "print(sorted(int(node['Resources'].get('CPU', 0)) for node in ray.nodes() if node['Alive']))"
    admitted = os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    done = subprocess.run([sys.executable, "-c", ask], env=admitted, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.several_machines
def test_start_returns_when_all_nodes_have_joined_and_stop_ends_them_and_may_be_said_twice(tmp_path, ports):
    def is_started() -> bool:  # on a busy machine a part of Ray gives up, and `start` says so
        return script("start", str(tmp_path), "2", ports=ports).wait() == 0

    wait_until(is_started)
    try:
        assert cpus_of_nodes(tmp_path / "token", ports["RAY_HEAD_PORT"]) == [0, 1, 1]
        again = script("start", str(tmp_path), "2", ports=ports)
        assert "End it first" in again.communicate()[0]
        assert again.returncode == 1
    finally:
        stops = [script("stop", str(tmp_path), ports=ports).wait() for _ in range(2)]
    assert stops == [0, 0]
    wait_until(lambda: not processes(ports), lambda: processes(ports))


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.several_machines
def test_a_head_that_ends_after_it_said_that_it_runs_is_a_failure_and_leaves_nothing(tmp_path, ports):
    started = script("start", str(tmp_path), "1", ports=ports)

    def ended_of_head() -> list[psutil.Process]:
        log = tmp_path / "head.log"
        if started.poll() is not None or not log.exists() or "Ray runtime started" not in log.read_text():
            return [] if started.poll() is None else [psutil.Process()]
        head = psutil.Process(int((tmp_path / "head.pid").read_text()))
        return [child for child in head.children(recursive=True) if "gcs_server" in child.name()]

    for process in wait_until(ended_of_head):
        if process != psutil.Process():  # or else Ray gave up by itself
            process.send_signal(signal.SIGKILL)
    said = started.communicate()[0]
    assert started.returncode == 1, said
    assert "has ended" in said
    assert "Nothing was left running." in said
    assert not list(tmp_path.glob("*.pid"))
    wait_until(lambda: not processes(ports), lambda: processes(ports))


@pytest.mark.parametrize("name", PORTS)
def test_a_taken_port_is_named_with_its_variable_before_anything_starts(name, tmp_path, ports):
    with socket.create_server(("127.0.0.1", int(ports[name]))):
        refused = script("start", str(tmp_path / "work"), ports=ports)
        said = refused.communicate()[0]
    assert refused.returncode == 1
    assert f"port {ports[name]} cannot be had" in said
    assert f"{name}=..." in said
    assert list((tmp_path / "work").iterdir()) == []


def test_stop_needs_no_ps_which_small_images_lack(tmp_path: Path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ps").symlink_to("/bin/false")
    node = subprocess.Popen(["ray start", "600"], executable=shutil.which("sleep"))
    (tmp_path / "node-1.pid").write_text(str(node.pid))
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    threading.Thread(target=node.wait).start()  # a parent reaps its child, or the process stays in the table
    assert script("stop", str(tmp_path), ports=environment).wait() == 0
    assert not runs(node.pid)


def test_stop_ends_no_foreign_process_of_a_number_that_was_given_anew(tmp_path: Path):
    (tmp_path / "head.pid").write_text(str(os.getpid()))
    assert script("stop", str(tmp_path), ports={}).wait() == 0
    assert list(tmp_path.iterdir()) == []
