"""Copies of shards that are not on this machine."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from clicktower.schemas import storage
from clicktower.training.trainer.shard_data import local_folder

KILLED = """
import os, signal, sys, tempfile
tempfile.tempdir = sys.argv[1]
from clicktower.schemas import storage
from clicktower.training.trainer.shard_data import local_folder
storage.write_atomic("memory://shards/train-00000/pairs.arrow", b"left behind")
print(local_folder("memory://shards"), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_copy_of_a_killed_process_goes_when_the_next_is_made_and_one_in_use_stays(tmp_path, monkeypatch):
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    left = Path(killed.stdout.strip())
    assert killed.returncode == -signal.SIGKILL
    assert (left / "train-00000/pairs.arrow").read_bytes() == b"left behind"

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    storage.write_atomic("memory://other-shards/train-00000/pairs.arrow", b"mine")
    first, second = (Path(local_folder("memory://other-shards")) for _ in range(2))
    assert not left.exists()
    for copy in (first, second):
        assert (copy / "train-00000/pairs.arrow").read_bytes() == b"mine"
