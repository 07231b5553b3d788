"""A Ray of this machine's own: nobody else can use it, and a start that takes too long, as on a slow machine."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from clicktower.schemas import process
from clicktower.schemas.errors import StageError
from clicktower.schemas.process import signals_raising

ray_cluster = pytest.importorskip("clicktower.training.trainer.ray_cluster")
TOO_SLOW = Exception("The current node timed out during startup. This could happen because ...")


@pytest.fixture
def starts(monkeypatch) -> list:
    """What comes of each start: an error, or None. Those that are left have not been tried."""
    left: list = []

    def start(**options) -> None:
        if error := left.pop(0):
            raise error

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray_cluster.ray, "init", start)
    return left


@pytest.mark.engine
def test_nobody_else_gets_into_a_ray_of_this_machine_and_its_sockets_fit_wherever_temporary_files_are(monkeypatch):
    """That nothing of it can be reached from other machines is looked at in every test of an engine."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with tempfile.TemporaryDirectory(dir="/tmp") as root:
        long = Path(root, "t" * (104 - len(root) - 1))
        long.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(long))
        monkeypatch.setenv("TMPDIR", str(long))
        with signals_raising(), ray_cluster.cluster(2):
            ray = ray_cluster.ray
            session = Path(ray._private.worker.global_worker.node.get_session_dir_path())
            token, address = os.environ["RAY_AUTH_TOKEN"], ray.get_runtime_context().gcs_address
            # Ray asks again and again, a second apart, whoever refuses it.
            stranger = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * len(token), "RAY_NUM_REDIS_GET_RETRIES": "1"}
            entering = [sys.executable, "-c", f"import ray; ray.init(address={address!r}); print('is in')"]
            entered = subprocess.run(entering, env=os.environ | stranger, capture_output=True, text=True, check=False)
            assert session.is_dir()
            assert is_handled(signal.SIGTERM)
        with signals_raising():
            with ray_cluster.cluster(0):
                pass
            assert is_handled(signal.SIGTERM), "Ray leaves it to the system"
    assert entered.returncode != 0
    assert "InvalidAuthToken" in entered.stderr
    assert "is in" not in entered.stdout
    assert "RAY_AUTH_TOKEN" not in os.environ
    assert not session.parent.exists()


def is_handled(number: signal.Signals) -> bool:
    """Whether this module's process handles a signal as Python was told to."""
    caught = re.search(r"SigCgt:\s*(\w+)", Path("/proc/self/status").read_text())
    return bool(caught and int(caught[1], 16) >> (number - 1) & 1) and signal.getsignal(number) is process._handle


def test_a_start_that_took_too_long_is_tried_again(starts):
    starts += [TOO_SLOW, TOO_SLOW, None]
    with ray_cluster.cluster(2):
        assert starts == []


def test_one_that_always_takes_too_long_is_an_error_that_says_what_to_do(starts):
    starts += [TOO_SLOW] * ray_cluster.STARTS
    with pytest.raises(StageError, match="RAY_ADDRESS"), ray_cluster.cluster(2):
        pass
    assert starts == []


def test_any_other_failure_is_raised_at_once(starts):
    starts += [ValueError("no such thing"), None]
    with pytest.raises(ValueError, match="no such thing"), ray_cluster.cluster(2):
        pass
    assert starts == [None]
