"""The nightly deployment on a real Prefect server: start it, deploy, trigger, see the run completed through its API."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.end_to_end.shop import make_shop

ROOT = Path(__file__).parent.parent.parent
PREFECT = [str(Path(sys.executable).parent / "prefect")]


@pytest.fixture
def server(tmp_path) -> Iterator[dict[str, str]]:
    """The environment of a Prefect server on loopback with a database of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_WORKER_QUERY_SECONDS": "1",
    }
    command = [*PREFECT, "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with started(command, environment, tmp_path / "server.log"):
        wait_until(lambda: healthy(environment["PREFECT_API_URL"]), 120, "the server to answer")
        yield environment


@pytest.mark.engine
def test_the_nightly_deployment_runs_the_pipeline(server, tmp_path):
    shop = make_shop(tmp_path)
    prefect(server, "--no-prompt", "work-pool", "create", "clicktower", "--type", "process")
    prefect(server, "--no-prompt", "deploy", "--all", "--prefect-file", "deploy/prefect.yaml")
    api = httpx.Client(base_url=server["PREFECT_API_URL"], timeout=30)
    deployment = api.get("/deployments/name/clicktower/nightly").raise_for_status().json()
    assert [s["schedule"]["cron"] for s in deployment["schedules"]] == ["30 3 * * *"]

    with started([*PREFECT, "worker", "start", "--pool", "clicktower"], server, tmp_path / "worker.log"):
        trigger = {"parameters": {"config": str(shop / "pipeline.toml"), "data_date": "2026-09-01"}}
        url = f"/deployments/{deployment['id']}/create_flow_run"
        run = api.post(url, json=trigger).raise_for_status().json()

        def ended() -> str | None:
            state = api.get(f"/flow_runs/{run['id']}").raise_for_status().json()["state"]["type"]
            return state if state in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED") else None

        assert wait_until(ended, 300, "the run to end") == "COMPLETED", (tmp_path / "worker.log").read_text()[-3000:]

    names = ["build", "compare", "evaluate", "ingest", "publish", "report", "train"]
    query = {"flow_runs": {"id": {"any_": [run["id"]]}}}

    def tasks_completed() -> bool:  # task states lag behind the flow's
        tasks = api.post("/task_runs/filter", json=query).raise_for_status().json()
        return sorted(t["task_key"].split("-")[0] for t in tasks if t["state_type"] == "COMPLETED") == names

    assert wait_until(tasks_completed, 30, "the states of the tasks")
    assert (shop / "report.html").exists()
    assert (shop / "release/pointer.json").exists()


def prefect(environment: dict[str, str], *arguments: str) -> None:
    done = subprocess.run([*PREFECT, *arguments], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


def wait_until(condition, seconds: float, what: str):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.3)
    raise AssertionError(f"waited {seconds} s for {what}")


class started:
    """A process with all that it starts, for the length of a with block."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path) -> None:
        self._arguments = (command, environment, log)

    def __enter__(self) -> None:
        command, environment, log = self._arguments
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command, env=environment, cwd=ROOT, stdout=output, stderr=output, start_new_session=True
            )

    def __exit__(self, *_) -> None:
        for sign in (signal.SIGINT, signal.SIGKILL):
            try:
                os.killpg(self._process.pid, sign)
                self._process.wait(15)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
