"""Where a build's files can be memory-mapped."""

import atexit
import os
import shutil
import tempfile

from schemas import storage


def local_folder(uri: str) -> str:
    """The folder itself where it is on this machine, else a copy that can be memory-mapped."""
    if storage.is_local(uri):
        return storage.filesystem(uri)[1]
    copy = tempfile.mkdtemp(prefix="clicktower-shards-")
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    for name in storage.list_files(uri):
        os.makedirs(os.path.dirname(f"{copy}/{name}"), exist_ok=True)
        with storage.open_read(storage.join(uri, name)) as source, open(f"{copy}/{name}", "wb") as target:
            shutil.copyfileobj(source, target)
    return copy
