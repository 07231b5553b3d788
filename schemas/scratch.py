"""Temporary folders that are removed even if their process is killed."""

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress

_PREFIX = "clicktower-scratch-"


def make_scratch() -> str:
    """The path of a new folder that is removed when this process ends, or, where it is killed, by the next call.

    This process and its forks hold a lock on the folder as long as they live; folders that nobody holds are removed.
    """
    parent = tempfile.gettempdir()
    if os.path.basename(parent).startswith(_PREFIX):  # another process's, which this one may outlive
        parent = os.path.dirname(parent)
    _remove_left_behind(parent)
    while True:
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        with suppress(OSError):  # one that was removed before it was locked
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.exists(folder):
                break
            os.close(lock)
    atexit.register(_remove, folder, os.getpid())
    return folder


def use_scratch() -> None:
    """Let temporary files of this process, and of all that it starts, be made in a scratch folder of its own."""
    tempfile.tempdir = os.environ["TMPDIR"] = make_scratch()


def kept(folder: str) -> str:
    """The path that a folder of temporary files has after `keep`."""
    scratch, name = os.path.split(folder)
    beside = os.path.basename(scratch).startswith(_PREFIX)
    return os.path.join(os.path.dirname(scratch), name) if beside else folder


def keep(folder: str) -> None:
    """Let a folder of temporary files outlive this process."""
    os.rename(folder, kept(folder))


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # and not a fork that ends earlier
        shutil.rmtree(folder, ignore_errors=True)


def _remove_left_behind(parent: str) -> None:
    for name in os.listdir(parent):
        if name.startswith(_PREFIX):
            with suppress(OSError):  # of somebody else, in use, or gone meanwhile
                lock = os.open(os.path.join(parent, name), os.O_RDONLY | os.O_DIRECTORY)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(os.path.join(parent, name), ignore_errors=True)
                finally:
                    os.close(lock)
