"""What Beam and the engines say while a job runs goes to files, not to the terminal: what matters is an exception."""

import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from schemas.errors import StageError

OWN = "beam.log"
LISTENER_SECONDS = 5.0


@dataclass(kw_only=True, slots=True)
class EngineLog:
    """The folder of these files, for this user's eyes: a traceback may quote data. It goes, unless it is kept."""

    folder: str
    keep: bool = False

    def keep_what_others_said(self) -> bool:
        """Keep the folder, and True, where a process other than this one wrote into it."""
        others = (name for name in os.listdir(self.folder) if name.endswith(".log") and name != OWN)
        self.keep = any(os.path.getsize(os.path.join(self.folder, name)) for name in others)
        return self.keep


@contextmanager
def engine_log() -> Iterator[EngineLog]:
    """A log for one job. Where an unexpected exception leaves the block it is kept, and named in the exception.

    Beam logs to its own loggers, to the root (what a runner reports) and to one for each server; each exception with
    its traceback at every level that it passes.
    """
    log = EngineLog(folder=tempfile.mkdtemp(prefix="clicktower-engine-"))
    handler = logging.FileHandler(os.path.join(log.folder, OWN), delay=True, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    others, root.handlers = root.handlers, [handler]
    hook, threading.excepthook = threading.excepthook, _to_the_log
    try:
        yield log
    except Exception as error:
        if not isinstance(error, StageError) and log.keep_what_others_said():
            error.add_note(f"What the engine said is in {log.folder}.")
        raise
    finally:
        _wait_for_listeners()
        threading.excepthook, root.handlers = hook, others
        handler.close()
        if not log.keep:
            shutil.rmtree(log.folder, ignore_errors=True)


def _to_the_log(arguments: threading.ExceptHookArgs) -> None:
    """Beam's threads that listen to a server fail when it ends; nobody is to be told on the terminal."""
    logging.getLogger(__name__).warning("%s in thread %s", arguments.exc_type.__name__, arguments.thread)


def _wait_for_listeners() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("wait_until_finish"):
            thread.join(LISTENER_SECONDS)
