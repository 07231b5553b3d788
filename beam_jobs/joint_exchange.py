"""Several kinds of tables regrouped together by a common key: what `exchange` does for one kind.

    buckets = {"left": lefts, "right": rights} | JointExchange("Join by id", sides, num_buckets, scratch)

yields (bucket, {"left": pa.Table, "right": pa.Table}), where all rows of one key, of every kind, are in one bucket. The
same promises: whole keys, no order.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import apache_beam as beam
import pyarrow as pa

from beam_jobs.engine import carries_errors
from beam_jobs.exchange import CutIntoRecords
from beam_jobs.records import Record, get, to_ipc


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """A kind of table: the column it is regrouped by, and its columns, for a bucket to which it has nothing.

    `holds_bucket`: the column holds the number of the bucket, and not a key to be hashed.
    """

    key: str
    schema: pa.Schema
    holds_bucket: bool = False


Bucket = tuple[int, dict[str, pa.Table]]  # the bucket's number, and of each kind its table


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


@carries_errors
def _joined(gathered: tuple[int, Mapping[str, Iterable[Record]]], sides: Mapping[str, Side]) -> Bucket:
    bucket, records = gathered
    return bucket, {name: get([*records[name], to_ipc(side.schema.empty_table())]) for name, side in sides.items()}
