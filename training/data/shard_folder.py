"""The local files of a build: memory-mapped, copied where necessary, and checked against the manifest."""

import io
import os
import shutil
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas import storage
from schemas.errors import StageError, UsageError
from schemas.manifest import OutputFile, damaged_files
from schemas.process import make_scratch
from schemas.shard import TEXTS, open_table
from schemas.stage import open_result


def local_folder(uri: str) -> str:
    """The folder itself if it is on this machine, otherwise a local copy that can be memory-mapped.

    The copy goes when this process ends; that of one that was killed, when the next one is made.
    """
    if storage.is_local(uri):
        return storage.filesystem(uri)[1]
    copy = make_scratch()
    for name in storage.list_files(uri):
        os.makedirs(os.path.dirname(f"{copy}/{name}"), exist_ok=True)
        with storage.open_read(storage.join(uri, name)) as source, open(f"{copy}/{name}", "wb") as target:
            shutil.copyfileobj(source, target)
    return copy


# The files of the shards are checked against the build's manifest, because the model bears its digest.
#
# Every worker compares every byte before it trains and again before the model is written, and after each epoch what the
# file system says of each file; where that changed, the bytes. A run that is taken up again starts with the first.


class ShardFiles:
    """`folder`: where this worker reads them, on its own machine. `files`: what the build wrote, relative to it."""

    def __init__(self, folder: str, files: Sequence[OutputFile]) -> None:
        self.folder, self._files = folder, files
        self._seen: dict[str, tuple[int, ...]] = {}

    def compare(self, when: str) -> None:
        """Check every byte. `when`: "before training" and the like. Raises StageError that names the files."""
        self._compare(self._files, when)
        self._seen = {file.path: self._look(file) for file in self._files}

    def look(self, when: str) -> None:
        """Check the files that the file system reports as touched since. Raises StageError that names them."""
        self._compare([file for file in self._files if self._look(file) != self._seen[file.path]], when)

    def _compare(self, files: Sequence[OutputFile], when: str) -> None:
        if found := damaged_files(self.folder, files, hashes=True):
            more = f"; and {len(found) - 3:,} more" if len(found) > 3 else ""
            raise StageError(
                asked=f"the folder of shards {self.folder} was compared with the build's manifest {when}",
                found="of its files, " + "; ".join(found[:3]) + more,
                follows="the model would be trained on other shards than it states",
                do="put the files back, or run `clicktower build` again; the same command continues from there",
            )

    def _look(self, file: OutputFile) -> tuple[int, ...]:
        try:
            found = os.stat(f"{self.folder}/{file.path}")
        except OSError:
            return ()
        return found.st_size, found.st_mtime_ns, found.st_ino


# The texts that training can meet, for an encoder of another kind to read (text_vectors).


def write_texts(shards: str, to: str) -> int:
    """Write each text of a build's training shards and pool once, normalised, as the column `text` of a Parquet file.

    Returns their number. Existing files are not overwritten. Raises UsageError and StageError.
    """
    built = open_result(shards)
    if (stage := built.manifest.request.stage) != "build":
        raise UsageError(
            asked=f"the texts of the click shards in {shards} were to be listed",
            found=f"it is the output of {stage}",
            do="give the folder that `clicktower build` printed",
        )
    folder = local_folder(built.data)
    names = {file.path.split("/")[-2] for file in built.manifest.files if file.path.endswith("/texts.arrow")}
    taught = sorted(name for name in names if not name.startswith("dev"))
    texts = pa.chunked_array(
        [chunk for name in taught for chunk in open_table(f"{folder}/{name}/texts.arrow", TEXTS)["text"].chunks],
        pa.string(),
    )
    distinct = pc.unique(texts)
    buffer = io.BytesIO()
    pq.write_table(pa.table({"text": distinct}), buffer)
    if not storage.write_new(to, buffer.getvalue()):
        raise UsageError(
            asked=f"texts were to be written to {to}",
            found="it is there already",
            follows="an existing file would be lost",
            do="give another --to, or remove it",
        )
    return len(distinct)
