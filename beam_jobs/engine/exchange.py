"""The one mechanism that regroups rows: tables -> small Arrow IPC records, keyed by bucket -> one table per bucket.

    buckets = tables | Exchange("Group by query", "query", num_buckets, scratch)     # yields (bucket, pa.Table)

All rows of a key are in one bucket. So a shuffle moves a few records per table instead of one row at a time, and the
next step works on whole buckets with Arrow and NumPy kernels. The order of rows in a bucket is arbitrary: a step that
needs an order sorts. With a `scratch` folder records travel by reference (arrow_files).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from clicktower.beam_jobs.compiled.log_library import NO_TEXT, text_hashes
from clicktower.beam_jobs.engine.arrow_files import Record, get, put, to_ipc, writing_errors
from clicktower.beam_jobs.engine.beam_engine import relay_stage_errors
from clicktower.schemas.shard import absorb

# A bucket is in memory as a whole, several times: with this many bytes of input each, a worker stays below 1 GiB.
BUCKET_BYTES = 32 << 20
MAX_BUCKETS = 1 << 14  # a bucket's number is an int16
# Rows are collected up to this size before they are split, so that a record is worth its overhead of about a kilobyte,
# and a scratch file its name.
GATHER_BYTES = 48 << 20


def num_buckets_for(num_bytes: int) -> int:
    """The number of buckets for an input of `num_bytes` uncompressed bytes: a power of two, at least 4."""
    number = max(4, -(-num_bytes // BUCKET_BYTES))
    return min(MAX_BUCKETS, 1 << (number - 1).bit_length())


def bucket_of(keys: pa.Array | pa.ChunkedArray, num_buckets: int) -> np.ndarray:
    """The bucket of each key, as int64 in [0, num_buckets).

    Strings by the CRC-32 of their UTF-8 bytes, integers by their value, both then mixed by splitmix64: the same in
    every process, on every machine, in every version. A null key counts as an empty string or a zero. `num_buckets` is
    a power of two.
    """
    if num_buckets & (num_buckets - 1) or num_buckets < 1:
        raise ValueError(f"num_buckets must be a power of two, not {num_buckets}")
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    if pa.types.is_integer(keys.type):
        hashes = pc.fill_null(keys, 0).to_numpy(zero_copy_only=False).astype(np.uint64)
    elif pa.types.is_dictionary(keys.type):
        distinct = np.append(text_hashes(keys.dictionary), NO_TEXT)
        hashes = distinct[pc.fill_null(keys.indices, len(distinct) - 1).to_numpy(zero_copy_only=False)]
    else:
        hashes = text_hashes(keys)
    return (absorb(hashes, 0) & np.uint64(num_buckets - 1)).astype(np.int64)


def split_by_bucket(table: pa.Table, key: str, num_buckets: int | None) -> Iterator[tuple[int, pa.Table]]:
    """(bucket, its rows) for each bucket that has rows, ascending; rows keep their order within a bucket.

    Without `num_buckets` the key column holds bucket numbers.
    """
    if not len(table):
        return
    buckets = table[key].to_numpy() if num_buckets is None else bucket_of(table[key], num_buckets)
    order = np.argsort(buckets.astype(np.int16), kind="stable")  # numbers this short are sorted by counting
    grouped = table.unify_dictionaries().combine_chunks().take(pa.array(order))
    sizes = np.bincount(buckets)
    starts = np.cumsum(sizes) - sizes
    for bucket in np.flatnonzero(sizes).tolist():
        yield bucket, grouped.slice(starts[bucket], sizes[bucket])


class ExchangeRecords(beam.PTransform):
    """(bucket, its records) from pa.Table or pa.RecordBatch elements of one schema; `arrow_files.get` reads them.

    For a step that cannot hold a whole bucket: see `Exchange`.
    """

    def __init__(self, label: str, key_column: str, num_buckets: int | None, scratch: str | None) -> None:
        super().__init__(label)
        self._cut = CutIntoRecords(key_column, num_buckets, scratch)

    def expand(self, tables: beam.PCollection) -> beam.PCollection:
        cut = tables | "Cut into records" >> beam.ParDo(self._cut).with_output_types(tuple[int, Record])
        return cut | "Shuffle" >> beam.GroupByKey()


class Exchange(ExchangeRecords):
    """(bucket, pa.Table with all rows of that bucket) from pa.Table or pa.RecordBatch elements of one schema."""

    def expand(self, tables: beam.PCollection) -> beam.PCollection:
        return super().expand(tables) | "Join records" >> beam.MapTuple(_bucket_table)


class CutIntoRecords(beam.DoFn):
    """(bucket, record) from tables, many tables at a time."""

    def __init__(self, key_column: str, num_buckets: int | None, scratch: str | None) -> None:
        self._key_column, self._num_buckets, self._scratch = key_column, num_buckets, scratch

    def start_bundle(self) -> None:
        self._gathered: list[pa.Table] = []
        self._gathered_bytes = 0

    @relay_stage_errors
    def process(self, table: pa.Table | pa.RecordBatch) -> Iterator[tuple[int, Record]]:
        table = table if isinstance(table, pa.Table) else pa.Table.from_batches([table])
        self._gathered.append(table)
        self._gathered_bytes += table.nbytes
        if self._gathered_bytes >= GATHER_BYTES:
            yield from self._records()

    @relay_stage_errors
    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._gathered:
            yield from map(GlobalWindows.windowed_value, self._records())

    def _records(self) -> list[tuple[int, Record]]:
        gathered = pa.concat_tables(self._gathered)
        self.start_bundle()
        cut = list(split_by_bucket(gathered, self._key_column, self._num_buckets))
        del gathered
        return list(zip((bucket for bucket, _ in cut), put([rows for _, rows in cut], self._scratch), strict=True))


@relay_stage_errors
def _bucket_table(bucket: int, records: Iterable[Record]) -> tuple[int, pa.Table]:
    return bucket, get(records)


# Several kinds of tables, regrouped by a common key: what `Exchange` does for one kind.
#
#     buckets = {"left": lefts, "right": rights} | JointExchange("Join by id", sides, num_buckets, scratch)
#
# yields (bucket, {"left": pa.Table, "right": pa.Table}): all rows of a key, of every kind, are in one bucket. As there,
# keys are whole and the order is arbitrary.


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """A kind of table: the column that regroups it, and its columns, for a bucket without rows of this kind.

    `holds_bucket`: the column holds bucket numbers instead of keys to hash.
    """

    key: str
    schema: pa.Schema
    holds_bucket: bool = False


Bucket = tuple[int, dict[str, pa.Table]]  # the bucket's number, and its table of each kind


class JointExchange(beam.PTransform):
    """(bucket, name -> pa.Table) from a dict of PCollections of pa.Table, one Side for each name."""

    def __init__(self, label: str, sides: Mapping[str, Side], num_buckets: int, scratch: str | None) -> None:
        super().__init__(label)
        self._sides, self._num_buckets, self._scratch = dict(sides), num_buckets, scratch

    def expand(self, tables):  # Beam takes annotations for type hints, and knows none for a dict of PCollections
        records = {
            name: tables[name]
            | f"Cut {name} into records"
            >> beam.ParDo(
                CutIntoRecords(side.key, None if side.holds_bucket else self._num_buckets, self._scratch)
            ).with_output_types(tuple[int, Record])
            for name, side in self._sides.items()
        }
        return records | "Shuffle" >> beam.CoGroupByKey() | "Join records" >> beam.Map(_joined, self._sides)


@relay_stage_errors
def _joined(gathered: tuple[int, Mapping[str, Iterable[Record]]], sides: Mapping[str, Side]) -> Bucket:
    bucket, records = gathered
    return bucket, {name: get([*records[name], to_ipc(side.schema.empty_table())]) for name, side in sides.items()}


class CommitAll(beam.PTransform):
    """The last step of a job: hands `commit` a list of all results, the elements of several PCollections.

    The list is one element, so only results that reached it count, not what retried bundles left behind.
    """

    def __init__(self, commit: Callable[[list[Any]], None], folder: str) -> None:
        super().__init__("Commit")
        self._commit, self._folder = commit, folder

    def expand(self, results):  # Beam takes annotations for type hints, and knows none for a tuple of PCollections
        once = results[0].pipeline | "Once" >> beam.Create([None])
        return (
            (once, *results)
            | "All results" >> beam.Flatten()
            | "On one key" >> beam.WithKeys(0)
            | "Gather" >> beam.GroupByKey()
            | "Write the manifest" >> beam.Map(_commit_all, self._commit, self._folder)
        )


@relay_stage_errors
def _commit_all(gathered: tuple[int, Iterable[Any]], commit: Callable[[list[Any]], None], folder: str) -> None:
    with writing_errors(folder):
        commit([result for result in gathered[1] if result is not None])


def read_parts(parts: Sequence[Any]) -> beam.PTransform:
    """Parts of the input as elements, spread over the workers."""
    return beam.Create(list(parts)) | beam.Reshuffle()
