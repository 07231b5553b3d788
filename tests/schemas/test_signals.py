"""SIGTERM and SIGINT end a block or a command, whatever becomes of the exception that they raise."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from clicktower.schemas import process
from tests.waiting import wait_until

HEAD = """
import hashlib, signal, sys, time
from clicktower.schemas import process

def wait():
    print("ready", flush=True)
    while True:
        time.sleep(0.01)  # a signal just before signal.pause() would never end it

def engine():
    try:
        wait()
    except BaseException:
        raise RuntimeError("as Beam does") from None

class Lost:
    def __del__(self):  # Python prints and drops what is raised here
        wait()

def compiled():  # no handler of Python's runs
    print("ready", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000_000)
"""
BLOCK = """
try:
    with process.signals_raising():
        {block}
finally:
    print("ended what was started", process.asked_to_end_by())
"""
COMMAND = """
process.END_SECONDS = 0.1
process.end_at_signals(lambda number: print("last words", number.name, flush=True))
{block}
while True:
    time.sleep(0.01)
"""


def ended(code: str, number: signal.Signals) -> tuple[int, str]:
    """(exit code, what it printed) of a Python program that is sent a signal when it is ready."""
    command = [sys.executable, "-c", HEAD + code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as program:
        assert program.stdout.readline() == "ready\n"
        if "compiled()" in code:  # it says so just before it enters compiled code, and then works
            begun = psutil.Process(program.pid)
            before = begun.cpu_times().user
            wait_until(lambda: begun.cpu_times().user > before + 0.1)
        program.send_signal(number)
        printed = program.communicate()[0]
    return program.returncode, printed


@pytest.mark.parametrize("block", ["wait()", "engine()"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_what_was_started_is_ended_also_where_an_engine_makes_an_error_of_the_interrupt(block, number, code):
    assert ended(BLOCK.format(block=block), number) == (code, "ended what was started None\n")


def test_a_thread_that_never_ends_does_not_hold_a_command(tmp_path):
    code = """
import threading
process.THREADS_SECONDS = 0.1
process.end_at_signals(print)
print(process.make_scratch(), file=open("scratch", "w"))
threading.Thread(target=threading.Event().wait).start()
try:
    wait()
except SystemExit:
    print("the exception came", flush=True)
process.end_process(1)
"""
    code = f"import os\nos.chdir({str(tmp_path)!r})\n{code}"
    assert ended(code, signal.SIGTERM) == (143, "the exception came\n")
    assert not Path((tmp_path / "scratch").read_text().strip()).exists()


def test_who_handles_a_signal_already_goes_on_to():
    own = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))"
    assert ended(own + BLOCK.format(block="wait()"), signal.SIGTERM)[0] == 7


@pytest.mark.parametrize("block", ["Lost()", "compiled()"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_command_ends_also_where_the_interrupt_is_lost_or_must_wait(block, number):
    assert ended(COMMAND.format(block=block), number) == (128 + number, f"last words {number.name}\n")


def test_a_held_signal_waits_to_be_asked_for():
    block = """
with process.signals_held():
    print("ready", flush=True)
    while not process.asked_to_end_by():
        time.sleep(0.01)
    print("not yet")
    process.raise_if_asked_to_end()
"""
    assert ended(block, signal.SIGTERM) == (143, "not yet\n")


@pytest.mark.parametrize("length", [20, 104])
def test_a_socket_of_an_engine_has_room_whatever_the_folder_of_temporary_files(length, monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as root:
        long = Path(root, "t" * (length - len(root) - 1))
        long.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(long))
        folder = Path(process.make_socket_folder())
        assert folder.stat().st_mode & 0o777 == 0o700
        session = folder / "session_2026-11-30_12-43-01_123456_1234567" / "sockets"  # Ray's
        session.mkdir(parents=True)
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(session / "plasma_store"))
        process._remove(str(folder), os.getpid())
