"""Arrow IPC files by URI: written under their name at once, or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from schemas import storage
from schemas.errors import os_error_kind

BATCH_ROWS = 65_536  # rows of a record batch: the least that a reader of a part of a file touches


def write_table(table: pa.Table, folder: str, name: str) -> str:
    """Write NAME.arrow below a folder; its URI."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks(), max_chunksize=BATCH_ROWS)
    uri = storage.join(folder, f"{name}.arrow")
    storage.write_atomic(uri, memoryview(sink.getvalue()))
    return uri


def read_table(uri: str) -> pa.Table:
    """The table in a file of this form."""
    with storage.open_read(uri) as file:
        return pa.ipc.open_file(file).read_all()


def map_table(uri: str) -> pa.Table:
    """The same, memory-mapped where the file is on this machine: workers side by side share one copy."""
    if not storage.is_local(uri):
        return read_table(uri)
    return pa.ipc.open_file(pa.memory_map(storage.filesystem(uri)[1])).read_all()


@contextmanager
def explained(where: str) -> Iterator[None]:
    """OSErrors of writing as the StageError a user reads."""
    try:
        yield
    except OSError as error:
        raise os_error_kind(error)(
            asked=f"files were to be written below {where}",
            found=f"the system says: {error.strerror or type(error).__name__}",
            follows="nothing was committed, and what was begun has been removed",
            do="make space there, or make the folder writable, or give another store; then run the same command again",
        ) from None
