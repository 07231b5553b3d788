"""A flow whose worker was killed has nobody any more who reads what it prints."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until

FLOW = """
import sys, time
from pathlib import Path
from rich.console import Console
from clicktower.flows.pipeline import survive_worker
survive_worker()
print("ready", flush=True)
sys.stdin.read()  # until the reader of the other two has gone too
time.sleep(0.2)
for _ in range(3):
    print("to nobody", flush=True)
    print("to nobody", file=sys.stderr)
    Console(stderr=True).print("to nobody")
Path(sys.argv[1]).touch()
"""


@pytest.mark.slow
def test_a_process_goes_on_when_nobody_reads_what_it_prints(tmp_path: Path):
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", FLOW, str(tmp_path / "end")], stdin=pipe, stdout=pipe, stderr=pipe
    ) as flow:
        flow.stdout.readline()
        for stream in (flow.stdout, flow.stderr, flow.stdin):
            stream.close()
        wait_until(lambda: flow.poll() is not None, "the process to end")
    assert flow.returncode == 0
    assert (tmp_path / "end").exists()
