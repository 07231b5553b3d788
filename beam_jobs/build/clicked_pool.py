"""A pool of clicked documents alone (`pool` of build): the rows that training pairs clicked, in their order."""

from collections.abc import Iterable

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import AsSingleton

from clicktower.beam_jobs.build.click_shards import CLICK_PAIRS
from clicktower.beam_jobs.engine.arrow_files import Record, get
from clicktower.beam_jobs.engine.beam_engine import relay_stage_errors


def rows_of_all(pairs: beam.PCollection) -> AsSingleton:
    """`clicked_rows` of all pairs, for a step beside them. `pairs`: records of CLICK_PAIRS."""
    return AsSingleton(
        pairs
        | "Find clicked rows" >> beam.Map(_clicked_rows)
        | "Unite clicked rows" >> beam.CombineGlobally(_unite_rows)
    )


def clicked_rows(pairs: pa.Table) -> np.ndarray:
    """The pool rows of the titles of training pairs, int32, ascending, without repeats.

    `pairs`: CLICK_PAIRS, all pairs of their queries. A query's pairs are what its exclusions are made of.
    """
    excluded = pairs["excluded"].filter(pc.invert(pairs["dev"])).combine_chunks()
    return np.unique(excluded.flatten().to_numpy())


def exclude_in(pairs: pa.Table, rows: np.ndarray) -> pa.Table:
    """CLICK_PAIRS that exclude places in `rows`, the rows that are left of the pool (int32, ascending)."""
    excluded = pairs["excluded"].combine_chunks()
    listed = excluded.flatten().to_numpy()
    places = np.searchsorted(rows, listed).astype(np.int32)
    is_left = np.isin(listed, rows)
    before = np.concatenate([[0], np.cumsum(is_left)])
    ends = np.cumsum(pc.fill_null(excluded.value_lengths(), 0).to_numpy())
    offsets = pa.array(np.concatenate([[0], before[ends]]), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, pa.array(places[is_left]), mask=excluded.is_null())
    return pairs.set_column(pairs.schema.get_field_index("excluded"), CLICK_PAIRS.field("excluded"), lists)


@relay_stage_errors
def _clicked_rows(record: Record) -> np.ndarray:
    return clicked_rows(get([record]))


def _unite_rows(rows: Iterable[np.ndarray]) -> np.ndarray:
    return np.unique(np.concatenate([np.zeros(0, np.int32), *rows]))
