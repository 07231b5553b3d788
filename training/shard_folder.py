"""Where a build's files can be memory-mapped."""

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from schemas import storage

_PREFIX = "clicktower-shards-"
_IN_USE = ".in-use"  # locked by the process that made the copy, as long as it lives


def local_folder(uri: str) -> str:
    """The folder itself where it is on this machine, else a copy that can be memory-mapped.

    The copy goes when this process ends; that of one that was killed, when the next one is made.
    """
    if storage.is_local(uri):
        return storage.filesystem(uri)[1]
    _remove_left_behind()
    copy = tempfile.mkdtemp(prefix=_PREFIX)
    fcntl.flock(os.open(f"{copy}/{_IN_USE}", os.O_RDWR | os.O_CREAT, 0o600), fcntl.LOCK_EX)
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    for name in storage.list_files(uri):
        os.makedirs(os.path.dirname(f"{copy}/{name}"), exist_ok=True)
        with storage.open_read(storage.join(uri, name)) as source, open(f"{copy}/{name}", "wb") as target:
            shutil.copyfileobj(source, target)
    return copy


def _remove_left_behind() -> None:
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_IN_USE}"):
        with suppress(OSError), lock.open("rb") as file:  # of somebody else, or in use
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent)
