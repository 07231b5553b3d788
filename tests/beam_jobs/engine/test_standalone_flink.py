"""A real Flink cluster of three processes: machines die, jobs are cancelled, clients go away."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from clicktower.schemas.errors import StageError
from clicktower.schemas.stage import find_finished, open_result
from tests.beam_jobs.engine.outcome import assert_holds_its_manifest_and_nothing_else, run_ingest
from tests.beam_jobs.engine.standalone_flink import Cluster
from tests.waiting import SECONDS

pytestmark = [pytest.mark.engine, pytest.mark.rehearsal, pytest.mark.several_machines]


def submit(shop: Path, store: Path, cluster: Cluster) -> subprocess.Popen:
    """`clicktower ingest` as a process of its own, as a user or a scheduler starts it."""
    cluster.expect_a_job()
    command = [
        sys.executable,
        "-m",
        "clicktower.flows.cli",
        "ingest",
        str(shop / "log"),
        "--into",
        str(store),
        "--json",
    ]
    return subprocess.Popen(
        [*command, "--", *cluster.options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def the_only_ingest(store: Path) -> Path:
    (folder,) = (store / "ingest").iterdir()
    return folder


def test_a_task_manager_is_killed_in_the_middle_of_a_job(cluster, shop, expected, tmp_path):
    for attempt in range(5):  # on a quick machine a job may end between the look and the kill
        store = tmp_path / str(attempt)
        client = submit(shop, store, cluster)
        killed = cluster.kill_the_task_manager_of(job := cluster.wait_until_halfway())
        output, errors = client.communicate(timeout=SECONDS)
        assert client.returncode == 0, errors
        if killed:
            break
    day = open_result(json.loads(output)["path"])
    assert cluster.ask(f"/jobs/{job}/exceptions")["exceptionHistory"]["entries"], "the job never noticed"
    cluster.start_task_managers()
    assert_holds_its_manifest_and_nothing_else(day)
    assert day.manifest.outcome.logical_digest == expected.day_digest


def test_a_job_cancelled_from_flinks_side_says_so_and_the_same_command_completes(cluster, shop, expected, tmp_path):
    client = submit(shop, tmp_path, cluster)
    cluster.cancel(cluster.wait_until_halfway())
    output, errors = client.communicate(timeout=SECONDS)
    assert client.returncode == 1, errors
    error = json.loads(output)["error"]
    assert "was cancelled from the runner's side" in error["problem"]
    assert "Run the same command again" in error["fix"]
    assert not list((tmp_path / "ingest").iterdir())
    assert all(line.startswith("ingest: ") for line in errors.splitlines())  # how far it was, and nothing else

    day = run_ingest(shop, tmp_path, ())  # the same request, wherever it runs
    assert_holds_its_manifest_and_nothing_else(day)
    assert day.manifest.outcome.logical_digest == expected.day_digest


def test_a_job_whose_client_lost_its_job_server_goes_on_and_the_next_client_waits_for_it(
    cluster, shop, expected, tmp_path
):
    """As one does whose client was killed: the job server ends with it (test_job_server)."""
    client = submit(shop, tmp_path, cluster)
    job = cluster.wait_until_halfway()
    (server,) = (one for one in psutil.Process(client.pid).children(recursive=True) if one.name() == "java")
    server.kill()
    output, errors = client.communicate(timeout=SECONDS)
    assert client.returncode == 1, errors
    assert "Run the same command again, which waits for it" in json.loads(output)["error"]["fix"]

    output, errors = submit(shop, tmp_path, cluster).communicate(timeout=SECONDS)
    again = json.loads(output)
    assert again["reused"], errors
    folder = the_only_ingest(tmp_path)
    named = [found["jid"] for found in cluster.jobs() if found["name"].startswith(f"clicktower-ingest-{folder.name}-")]
    assert named == [job], "one job, in the cluster's own list"
    day = open_result(str(folder))
    assert day.manifest.outcome.logical_digest == expected.day_digest
    assert_holds_its_manifest_and_nothing_else(day)
    assert find_finished(str(tmp_path), day.manifest.request)[1] == []


def test_a_client_that_is_told_to_end_takes_its_job_with_it(cluster, shop, tmp_path):
    client = submit(shop, tmp_path, cluster)
    job = cluster.wait_until_halfway()
    client.send_signal(signal.SIGTERM)
    _, errors = client.communicate(timeout=SECONDS)
    assert client.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in errors
    (ended,) = (found for found in cluster.jobs() if found["jid"] == job)
    assert ended["state"] == "CANCELED"
    assert not list((tmp_path / "ingest").iterdir())


def test_a_cluster_that_is_not_there_is_a_clear_error(flink, shop, tmp_path):
    with pytest.raises(StageError) as caught:
        run_ingest(shop, tmp_path, ["--runner=FlinkRunner", "--flink_master=127.0.0.1:1"])
    assert "No Flink cluster answers" in caught.value.problem
