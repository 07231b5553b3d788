"""The rule that nothing of a test listens to other machines, tried on what does."""

import os
import subprocess
import sys

import pytest

from tests.sockets import MARK, MAY_LISTEN, listeners
from tests.waiting import wait_until

LISTEN = """
import socket, sys
listening = socket.create_server((sys.argv[1], 0))
print(listening.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_only_what_this_process_started_is_found_and_not_what_may_listen():
    ours = ("0.0.0.0", {})
    others = [("127.0.0.1", {}), ("0.0.0.0", {MARK: "another"}), ("0.0.0.0", {MAY_LISTEN: "1"})]
    started, ports = [], []
    try:
        with listeners() as found:
            for address, environment in (*others, ours):  # ours last: by then the others were looked at
                command = [sys.executable, "-c", LISTEN, address]
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | environment
                )
                started.append(process)
                ports.append(process.stdout.readline().strip())
            wait_until(lambda: found, "our own to be found")
        assert [place.split()[0] for place in found] == [f"0.0.0.0:{ports[-1]}"]
    finally:
        for process in started:
            process.communicate()
