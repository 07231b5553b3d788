"""SIGTERM ends a block as an exception does."""

import signal
import subprocess
import sys

import pytest

CODE = """
import signal, sys, time
from clicktower.schemas.process import sigterm_as_exit
{before}
try:
    with sigterm_as_exit():
        print("ready", flush=True)
        while True:
            time.sleep(0.01)  # a signal just before signal.pause() would never end it
finally:
    print("ended what was started")
"""


@pytest.mark.parametrize(("before", "code"), [("", 143), ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))", 7)])
def test_what_was_started_is_ended_and_who_handles_it_already_goes_on_to(before, code):
    command = [sys.executable, "-c", CODE.format(before=before)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.communicate()[0] == "ended what was started\n"
    assert process.returncode == code
