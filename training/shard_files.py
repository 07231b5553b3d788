"""The files of the shards, held against the build's manifest: a model of other files would bear their digest.

Every worker compares every byte before it trains and again before the model is written, and after each epoch what the
file system says of each file; where that changed, the bytes. A run that is taken up again starts with the first.
"""

import os
from collections.abc import Sequence

from schemas.errors import StageError
from schemas.manifest import OutputFile, damaged_files


class ShardFiles:
    """`folder`: where this worker reads them, on its own machine. `files`: what the build wrote, relative to it."""

    def __init__(self, folder: str, files: Sequence[OutputFile]) -> None:
        self.folder, self._files = folder, files
        self._seen: dict[str, tuple[int, ...]] = {}

    def compare(self, when: str) -> None:
        """Compare every byte. `when`: "before training" and the like. Raises StageError that names the files."""
        self._compare(self._files, when)
        self._seen = {file.path: self._look(file) for file in self._files}

    def look(self, when: str) -> None:
        """Compare the files that the file system says were touched since. Raises StageError that names them."""
        self._compare([file for file in self._files if self._look(file) != self._seen[file.path]], when)

    def _compare(self, files: Sequence[OutputFile], when: str) -> None:
        if found := damaged_files(self.folder, files, hashes=True):
            more = f"; and {len(found) - 3:,} more" if len(found) > 3 else ""
            raise StageError(
                asked=f"the folder of shards {self.folder} was compared with the build's manifest {when}",
                found="of its files, " + "; ".join(found[:3]) + more,
                follows="the model would be of other shards than it says",
                do="put the files back, or run `clicktower build` again; the same command goes on from its checkpoint",
            )

    def _look(self, file: OutputFile) -> tuple[int, ...]:
        try:
            found = os.stat(f"{self.folder}/{file.path}")
        except OSError:
            return ()
        return found.st_size, found.st_mtime_ns, found.st_ino
