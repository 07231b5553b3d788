"""A process and its machine: temporary folders that are removed even after a kill, its end by SIGTERM, compiled
libraries.
"""

import atexit
import ctypes
import fcntl
import importlib.machinery
import importlib.util
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = "clicktower-scratch-"
_KEPT_PREFIX = "clicktower-kept-"
_KEPT_SECONDS = 7 * 24 * 3600  # after which nobody needs it any more


def make_scratch() -> str:
    """The path of a new folder that is removed when this process ends, or after a kill by the next call.

    This process and its forks hold a lock on the folder while they live; folders without a holder are removed.
    """
    parent = tempfile.gettempdir()
    if os.path.basename(parent).startswith(_PREFIX):  # it belongs to another process, which may end first
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


def memory_bytes(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """The memory of this machine, or what the control groups (version 2) of this process allow of it, if that is
    less.
    """
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([there, *(limit for _, limit in limited_groups(groups, own))])


def limited_groups(groups: Path, own: Path) -> Iterator[tuple[Path, int]]:
    """The control group of this process and those above it, where they limit memory: (its folder, bytes)."""
    path = re.search(r"^0::/(.*)$", own.read_text(encoding="utf-8") if own.exists() else "", re.MULTILINE)
    folder = groups / (path[1] if path else "")
    while folder.is_relative_to(groups):  # a container sees its own group as the topmost
        limit = folder / "memory.max"
        if limit.exists() and (most := limit.read_text().strip()).isdigit():
            yield folder, int(most)
        folder = folder.parent


def use_scratch() -> None:
    """Put the temporary files of this process, and of all processes that it starts, in a scratch folder of its own."""
    tempfile.tempdir = os.environ["TMPDIR"] = make_scratch()


def kept_path(folder: str) -> str:
    """The path that a folder of temporary files has after `keep_folder`."""
    parent, name = os.path.split(folder)
    if os.path.basename(parent).startswith(_PREFIX):
        parent = os.path.dirname(parent)
    return os.path.join(parent, _KEPT_PREFIX + name)


def keep_folder(folder: str) -> None:
    """Let a temporary folder outlive this process; a call of `make_scratch` a week later removes it."""
    os.rename(folder, kept_path(folder))


def _remove(folder: str, owner: int) -> None:
    if os.getpid() == owner:  # not a fork that ends earlier
        shutil.rmtree(folder, ignore_errors=True)


def _remove_left_behind(parent: str) -> None:
    for name in os.listdir(parent):
        if name.startswith(_PREFIX):
            with suppress(OSError):  # another user's, in use, or already removed
                lock = os.open(os.path.join(parent, name), os.O_RDONLY | os.O_DIRECTORY)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(os.path.join(parent, name), ignore_errors=True)
                finally:
                    os.close(lock)
        elif name.startswith(_KEPT_PREFIX):
            with suppress(OSError):
                if os.stat(os.path.join(parent, name)).st_mtime < time.time() - _KEPT_SECONDS:
                    shutil.rmtree(os.path.join(parent, name), ignore_errors=True)


@contextmanager
def sigterm_as_exit() -> Iterator[None]:
    """Within the context, SIGTERM raises SystemExit, so that child processes end too, unless SIGTERM is already
    handled.

    Schedulers and shells end processes by SIGTERM.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def load_compiled(name: str, interface_of: str, interface: int) -> tuple[ctypes.CDLL | None, str]:
    """(the library of plain C functions compiled for a module `name`, or None; the reason for None).

    Its build is optional (pyproject.toml), so that an install without a compiler succeeds: all compiled code has a
    reference in Python. `interface_of`: its function that returns its interface version; a library with another version
    than `interface` is not used.
    """
    spec = importlib.util.find_spec(name)
    if spec is None or not isinstance(spec.loader, importlib.machinery.ExtensionFileLoader):
        return None, "nothing was compiled when clicktower was installed: there was no working C++ compiler"
    try:
        library = ctypes.CDLL(str(spec.origin))
        built = getattr(library, interface_of)()
    except (OSError, AttributeError) as error:
        return (
            None,
            f"the compiled library does not load ({str(error).splitlines()[0][:160]}): install clicktower again",
        )
    if built != interface:
        return None, f"the compiled library is of other sources (interface {built}, not {interface}): install again"
    return library, ""
