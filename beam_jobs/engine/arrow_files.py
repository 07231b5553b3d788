"""Arrow IPC files by URI, each written completely or not at all."""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, os_error_kind

BATCH_ROWS = 65_536  # rows of a record batch: the least that reading part of a file touches


def write_table(table: pa.Table, folder: str, name: str) -> str:
    """Write NAME.arrow below a folder; returns its URI."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks(), max_chunksize=BATCH_ROWS)
    uri = storage.join(folder, f"{name}.arrow")
    storage.write_atomic(uri, memoryview(sink.getvalue()))
    return uri


def write_tables(tables: Mapping[str, pa.Table], folder: str) -> tuple[str, ...]:
    """Write each table as NAME.arrow below a folder; returns the names of the files."""
    for name, table in tables.items():
        write_table(table, folder, name)
    return tuple(f"{name}.arrow" for name in tables)


def read_table(uri: str) -> pa.Table:
    """The table in a file that `write_table` wrote."""
    with storage.open_read(uri) as file:
        return pa.ipc.open_file(file).read_all()


def map_table(uri: str) -> pa.Table:
    """As `read_table`, memory-mapped for a local file: parallel workers share one copy."""
    if not storage.is_local(uri):
        return read_table(uri)
    return pa.ipc.open_file(pa.memory_map(storage.filesystem(uri)[1])).read_all()


@contextmanager
def writing_errors(where: str) -> Iterator[None]:
    """Turns OSErrors of writing into the StageError that a user reads."""
    try:
        yield
    except OSError as error:
        raise os_error_kind(error)(
            f"No file can be written below {where}: {error.strerror or str(error) or type(error).__name__}. Nothing"
            " was committed.",
            "Make space there, make the folder writable, or give another (--into; TMPDIR for temporary files); then"
            " run the same command again.",
        ) from None


# Tables travel between two steps as Arrow IPC streams, by value or by reference.
#
# By value the bytes themselves are the element, and the runner's own shuffle moves, spills and stores them: Flink and
# Dataflow are made for that. Runners that keep every element in memory (FnApiRunner, Prism) get references instead
# (engine_options.exchange_scratch): the bytes are in a scratch file, and a reference is its URI, their offset and their
# number. It is a plain tuple, which Beam's coders encode best.
#
# Scratch files have unique names, and are read only through a reference, so the remains of a bundle that ran twice are
# never seen. The creator of the scratch folder removes it.


Reference = tuple[str, int, int]
Record = bytes | Reference


def to_ipc(table: pa.Table) -> bytes:
    """The table as an Arrow IPC stream."""
    return _ipc_buffer(table).to_pybytes()


def from_ipc(records: Iterable[bytes | pa.Buffer]) -> pa.Table:
    """The rows of one or more Arrow IPC streams of one schema, in order, each column in one chunk."""
    tables = [pa.ipc.open_stream(record).read_all() for record in records]
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def put(tables: Sequence[pa.Table], scratch: str | None) -> list[Record]:
    """A record for each table: a reference into one new file below `scratch`, or without scratch the bytes themselves.

    Raises StageError if the file cannot be written completely.
    """
    if scratch is None:
        return [to_ipc(table) for table in tables]
    uri = storage.join(scratch, f"{uuid.uuid4().hex}.arrows")
    records: list[Record] = []
    with writing_errors(scratch), storage.open_new(uri) as file:
        begin = 0
        for table in tables:
            content = _ipc_buffer(table)
            file.write(content)
            records.append((uri, begin, content.size))
            begin += content.size
    return records


def get(records: Iterable[Record]) -> pa.Table:
    """The rows of records of one schema as one table, each column in one chunk; at least one record.

    Raises StageError if a scratch file is missing.
    """
    records = list(records)
    by_value = [record for record in records if isinstance(record, bytes)]
    by_reference = [record for record in records if not isinstance(record, bytes)]
    try:
        return from_ipc([*by_value, *storage.read_ranges(by_reference)])
    except OSError as error:
        raise StageError(
            f"Intermediate rows cannot be read back from {by_reference[0][0]}:"
            f" {error.strerror or type(error).__name__}. Nothing was committed.",
            "Let all workers see that folder, leave it alone while a job runs, and run the same command again.",
        ) from None


def num_bytes(record: Record) -> int:
    return len(record) if isinstance(record, bytes) else record[2]


def _ipc_buffer(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
