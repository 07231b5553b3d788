"""Several kinds of tables regrouped together by a common key: what `exchange` does for one kind.

    buckets = {"left": lefts, "right": rights} | JointExchange("Join by id", sides, num_buckets)

yields (bucket, {"left": pa.Table, "right": pa.Table}), where all rows of one key, of every kind, are in one bucket. The
same promises: whole keys, no order.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import apache_beam as beam
import pyarrow as pa

from beam_jobs.exchange import from_ipc, split_by_bucket, to_ipc


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """A kind of table: the column it is regrouped by, and its columns, for a bucket to which it has nothing."""

    key: str
    schema: pa.Schema


Bucket = tuple[int, dict[str, pa.Table]]  # the bucket's number, and of each kind its table


class JointExchange(beam.PTransform):
    """(bucket, name -> pa.Table) from a dict of PCollections of pa.Table, one Side for each name."""

    def __init__(self, label: str, sides: Mapping[str, Side], num_buckets: int) -> None:
        super().__init__(label)
        self._sides, self._num_buckets = dict(sides), num_buckets

    def expand(self, tables):  # Beam takes annotations for type hints, and knows none for a dict of PCollections
        records = {
            name: tables[name]
            | f"Cut {name} into records"
            >> beam.FlatMap(_records, side.key, self._num_buckets).with_output_types(tuple[int, bytes])
            for name, side in self._sides.items()
        }
        return records | "Shuffle" >> beam.CoGroupByKey() | "Join records" >> beam.Map(_joined, self._sides)


def _records(table: pa.Table, key: str, num_buckets: int) -> Iterator[tuple[int, bytes]]:
    if len(table):
        for bucket, rows in split_by_bucket(table, key, num_buckets):
            yield bucket, to_ipc(rows)


def _joined(gathered: tuple[int, Mapping[str, Iterable[bytes]]], sides: Mapping[str, Side]) -> Bucket:
    bucket, records = gathered
    return bucket, {name: from_ipc([*records[name], to_ipc(side.schema.empty_table())]) for name, side in sides.items()}
