"""A process and its machine: temporary folders that are removed even after a kill, its end by a signal, compiled
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
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from clicktower.schemas.errors import StageError

_PREFIX = "clicktower-scratch-"
_KEPT_PREFIX = "clicktower-kept-"
_KEPT_SECONDS = 7 * 24 * 3600  # after which nobody needs it any more
_MOST_PARENT = 14  # bytes of a path, of the 107 of a socket's: a scratch folder's name takes 28, Ray's own part 64


def make_scratch(parent: str | None = None) -> str:
    """The path of a new folder that is removed when this process ends, or after a kill by the next call.

    This process and its forks hold a lock on the folder while they live; folders without a holder are removed.
    `parent`: the folder that it is in, by default that of temporary files.
    """
    parent = parent or _temporary()
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
    _own_scratch.append(folder)
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


def make_socket_folder() -> str:
    """The path of a new scratch folder for unix sockets, which only this user can enter; in /tmp where the path of
    temporary files is too long for theirs.
    """
    parent = _temporary()
    return make_scratch(parent if len(os.fsencode(parent)) <= _MOST_PARENT else "/tmp")


def use_scratch() -> None:
    """Put the temporary files of this process, and of all processes that it starts, in a scratch folder of its own."""
    tempfile.tempdir = os.environ["TMPDIR"] = make_scratch()


def kept_path(folder: str) -> str:
    """The path that a folder of temporary files has after `keep_folder`."""
    parent, name = os.path.split(folder)
    return os.path.join(_without_scratch(parent), _KEPT_PREFIX + name)


def keep_folder(folder: str) -> None:
    """Let a temporary folder outlive this process; a call of `make_scratch` a week later removes it."""
    os.rename(folder, kept_path(folder))


def _temporary() -> str:
    return _without_scratch(tempfile.gettempdir())


def _without_scratch(folder: str) -> str:
    """The folder, or that around it if it belongs to another process, which may end first."""
    return os.path.dirname(folder) if os.path.basename(folder).startswith(_PREFIX) else folder


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


# The end of a process by a signal: Ctrl-C is SIGINT; schedulers and shells end processes by SIGTERM.
#
# It raises an exception in the main thread, so that child processes and an engine's jobs end too. An engine may lose
# that exception or turn it into an error of its own, so the signal is noted, and whoever handles an error asks for it.
# A command also ends where the exception is lost, the main thread is inside compiled code, or the interpreter waits for
# a thread that never ends (Beam's state sampler, if the exception hit its owner): the system writes the signal's number
# into a pipe, and a thread reads it.

END_SECONDS = 15.0  # a flow gives its stage 20 (flows.submit), Prefect's worker gives the flow 30
THREADS_SECONDS = 3.0  # for other threads, after the main thread
_EXCEPTION_BY_DEFAULT = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
_asked_by: signal.Signals | None = None
_has_raised = _is_held = False
_main_ends = threading.Event()
_own_scratch = list[str]()


def asked_to_end_by() -> signal.Signals | None:
    """The signal by which this process was asked to end, if it was."""
    return _asked_by


def raise_if_asked_to_end() -> None:
    """After SIGINT raise KeyboardInterrupt, after SIGTERM SystemExit with the code that a shell expects."""
    if _asked_by == signal.SIGINT:
        raise KeyboardInterrupt
    if _asked_by:
        sys.exit(128 + _asked_by)


def end_at_signals(last_words: Callable[[signal.Signals], object]) -> None:
    """From now on SIGTERM and SIGINT end this process, a command, within END_SECONDS: by an exception (see
    `signals_raising`) that leads to `end_process`, or at once after that time and a call of `last_words` with the
    signal.
    """
    if not _handle_signals():
        return
    read, write = os.pipe()
    os.set_blocking(write, False)

    def watch() -> None:
        while True:
            number = os.read(read, 1)[0]
            if number in _EXCEPTION_BY_DEFAULT:  # others have handlers too
                _note(number)
                if _main_ends.wait(END_SECONDS):
                    time.sleep(THREADS_SECONDS)
                else:
                    last_words(signal.Signals(number))
                for folder in _own_scratch:
                    shutil.rmtree(folder, ignore_errors=True)
                os._exit(128 + number)

    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    threading.Thread(target=watch, name="signals", daemon=True).start()


def end_process(code: int) -> NoReturn:
    """Exit from the main thread; after a signal within THREADS_SECONDS, whatever other threads do."""
    _main_ends.set()
    sys.exit(code)


@contextmanager
def signals_raising() -> Iterator[None]:
    """Within the context SIGTERM and SIGINT raise, as `raise_if_asked_to_end` does, also in place of an engine's error
    that comes after. A second signal changes nothing. One that somebody else handles is left alone.
    """
    global _asked_by, _has_raised
    before = _handle_signals()
    try:
        yield
    except BaseException as error:
        if not isinstance(error, StageError):  # it may say that a job goes on
            raise_if_asked_to_end()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if before:  # otherwise the process goes on to end
            _asked_by, _has_raised = None, False


@contextmanager
def signals_held() -> Iterator[None]:
    """Within the context SIGTERM and SIGINT wait for a call of `raise_if_asked_to_end`.

    An exception raised at an arbitrary place can get lost: Python prints and drops those from the callback of a weak
    reference, and processes and pipes have such callbacks.
    """
    global _is_held
    with signals_raising():
        _is_held = True
        try:
            yield
        finally:
            _is_held = False


@contextmanager
def keeping_signal_handlers() -> Iterator[None]:
    """Undo at the end of the context what a library does about SIGTERM and SIGINT, also what Python does not see."""
    before = {number: signal.getsignal(number) for number in _EXCEPTION_BY_DEFAULT}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, handler)


def _handle_signals() -> dict[signal.Signals, Any]:
    """Handle each signal that nobody else does; returns the handlers from before. None outside of the main thread."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {
        number: signal.signal(number, _handle)
        for number, by_default in _EXCEPTION_BY_DEFAULT.items()
        if signal.getsignal(number) == by_default
    }


def _handle(number: int, frame: object) -> None:
    global _has_raised
    _note(number)
    if not _is_held and not _has_raised:
        _has_raised = True
        raise_if_asked_to_end()


def _note(number: int) -> None:
    global _asked_by
    _asked_by = _asked_by or signal.Signals(number)


def end_session(process: subprocess.Popen, seconds: float) -> None:
    """End a process that began a session, and all in it: by SIGTERM, after so many seconds by SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):  # the second one also ends what the process leaves behind
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            process.wait(seconds)


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
