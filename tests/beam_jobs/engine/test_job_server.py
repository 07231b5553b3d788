"""The server beside a job lives exactly as long as the process that submits it."""

import signal
import socket
import subprocess
import sys

import psutil
import pytest

from clicktower.beam_jobs.engine.engine_start import PORT, job_server
from clicktower.schemas.errors import StageError
from tests.waiting import SECONDS, runs, wait_until

pytestmark = pytest.mark.slow

# Answers on its port, writes its process id, and ends for nothing but a signal.
SERVER = [
    sys.executable,
    "-c",
    "import os, signal, socket, sys\n"
    "listener = socket.create_server(('localhost', int(sys.argv[1])))\n"
    "print(os.getpid(), flush=True)\n"
    "signal.pause()",
    PORT,
]
CLIENT = """
import sys, time
from clicktower.beam_jobs.engine.engine_start import job_server
with job_server(sys.argv[2:], sys.argv[1]) as endpoint:
    print(endpoint, flush=True)
    time.sleep(60)
"""


def test_it_answers_within_the_block_and_ends_with_it(tmp_path):
    log = tmp_path / "log"
    with job_server(SERVER, str(log)) as endpoint:
        host, port = endpoint.split(":")
        socket.create_connection((host, int(port)), timeout=SECONDS).close()
        pid = int(log.read_text())
        assert runs(pid)
    wait_until(lambda: not runs(pid), "the server to end")


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT])
def test_it_does_not_outlive_its_client(tmp_path, sign):
    log = tmp_path / "log"
    with subprocess.Popen([sys.executable, "-c", CLIENT, str(log), *SERVER], stdout=subprocess.PIPE) as client:
        assert client.stdout
        client.stdout.readline()
        pid = int(log.read_text())
        client.send_signal(sign)
    wait_until(lambda: not runs(pid), "the server to end")


def test_it_ends_where_all_that_watch_over_it_are_killed(tmp_path):
    log = tmp_path / "log"
    with job_server(SERVER, str(log)):
        pid = int(log.read_text())
        shell = psutil.Process(pid).parent()
        for one in [shell, *shell.children(recursive=True)]:
            if one.pid != pid:
                one.kill()
        wait_until(lambda: not runs(pid), "the server to end")


def test_one_that_does_not_start_is_an_error_that_names_its_log(tmp_path):
    log = str(tmp_path / "log")
    with (
        pytest.raises(StageError, match="code 3") as caught,
        job_server([sys.executable, "-c", "raise SystemExit(3)"], log),
    ):
        pass
    assert log in caught.value.fix
