"""A folder whose files grow while a run goes on, wherever the folder is."""

import os
import tempfile

from schemas import storage


class LiveFolder:
    """Files are written below `path`, on this machine. On another file system they arrive with `close`."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._scratch = None if storage.is_local(uri) else tempfile.TemporaryDirectory(prefix="clicktower-")
        self.path = self._scratch.name if self._scratch else storage.filesystem(uri)[1]
        os.makedirs(self.path, exist_ok=True)

    def close(self) -> None:
        """Carry the files to where they belong."""
        if not self._scratch:
            return
        for name in storage.list_files(self.path):
            with open(f"{self.path}/{name}", "rb") as file:
                storage.write_atomic(storage.join(self._uri, name), file.read())
        self._scratch.cleanup()
