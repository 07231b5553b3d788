"""The one mechanism that regroups rows: tables -> small Arrow IPC records, keyed by bucket -> one table per bucket.

    buckets = tables | Exchange("Group by query", "query", num_buckets)     # yields (bucket, pa.Table)

All rows of one key are in one bucket. A shuffle thus moves a few records per table instead of a row at a time, and what
follows works on whole buckets with Arrow and NumPy kernels. Nothing is promised about the order of rows in a bucket:
whoever needs one sorts.
"""

from collections.abc import Iterable, Iterator
from zlib import crc32

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# A bucket is held in memory as a whole, a few times over: this many bytes of input each keep a worker below 1 GiB.
BUCKET_BYTES = 32 << 20
MAX_BUCKETS = 1 << 14


def num_buckets_for(num_bytes: int) -> int:
    """The number of buckets for an input of `num_bytes` uncompressed bytes: a power of two, at least 4."""
    wanted = max(4, -(-num_bytes // BUCKET_BYTES))
    return min(MAX_BUCKETS, 1 << (wanted - 1).bit_length())


def bucket_of(keys: pa.Array | pa.ChunkedArray, num_buckets: int) -> np.ndarray:
    """The bucket of each key, as int64 in [0, num_buckets).

    Strings by the CRC-32 of their UTF-8 bytes, integers by their value, both then mixed by splitmix64: the same in
    every process, on every machine, for ever. A null key is an empty string or a zero. `num_buckets` is a power of
    two.
    """
    if num_buckets & (num_buckets - 1) or num_buckets < 1:
        raise ValueError(f"num_buckets must be a power of two, not {num_buckets}")
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    if pa.types.is_integer(keys.type):
        hashes = pc.fill_null(keys, 0).to_numpy(zero_copy_only=False).astype(np.uint64)
    else:
        encoded = keys if pa.types.is_dictionary(keys.type) else keys.dictionary_encode()
        distinct = [crc32(key or b"") for key in encoded.dictionary.cast(pa.binary()).to_pylist()]
        codes = pc.fill_null(encoded.indices, len(distinct)).to_numpy(zero_copy_only=False)
        hashes = np.array([*distinct, crc32(b"")], np.uint64)[codes]
    return (_splitmix64(hashes) & np.uint64(num_buckets - 1)).astype(np.int64)


def split_by_bucket(table: pa.Table | pa.RecordBatch, key: str, num_buckets: int) -> Iterator[tuple[int, pa.Table]]:
    """(bucket, its rows) for each bucket that has rows, ascending; rows keep their order within a bucket."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    buckets = bucket_of(table[key], num_buckets)
    order = np.argsort(buckets, kind="stable")
    grouped = table.take(pa.array(order)).combine_chunks()
    present, starts, sizes = np.unique(buckets[order], return_index=True, return_counts=True)
    for bucket, start, size in zip(present.tolist(), starts.tolist(), sizes.tolist(), strict=True):
        yield bucket, grouped.slice(start, size)


def to_ipc(table: pa.Table) -> bytes:
    """The table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def from_ipc(records: Iterable[bytes]) -> pa.Table:
    """The tables of one or more Arrow IPC streams of one schema, one after the other, each column in one chunk."""
    tables = [pa.ipc.open_stream(record).read_all() for record in records]
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


class Exchange(beam.PTransform):
    """(bucket, pa.Table with all rows of that bucket) from pa.Table or pa.RecordBatch elements of one schema."""

    def __init__(self, label: str, key_column: str, num_buckets: int) -> None:
        super().__init__(label)
        self._key_column, self._num_buckets = key_column, num_buckets

    def expand(self, tables: beam.PCollection) -> beam.PCollection:
        key_column, num_buckets = self._key_column, self._num_buckets
        return (
            tables
            | "Cut into records" >> beam.FlatMap(_records, key_column, num_buckets).with_output_types(tuple[int, bytes])
            | "Shuffle" >> beam.GroupByKey()
            | "Join records" >> beam.MapTuple(_bucket_table)
        )


def _records(table: pa.Table | pa.RecordBatch, key: str, num_buckets: int) -> Iterator[tuple[int, bytes]]:
    for bucket, rows in split_by_bucket(table, key, num_buckets):
        yield bucket, to_ipc(rows)


def _bucket_table(bucket: int, records: Iterable[bytes]) -> tuple[int, pa.Table]:
    return bucket, from_ipc(records)


def _splitmix64(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # arithmetic is modulo 2^64
        mixed = values + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return mixed ^ (mixed >> np.uint64(31))
