"""The privacy gate: how many distinct people issued a query over all days of the window.

A query's published form leaves the private aggregate only if at least k people issued it. A day keeps the smallest
PEOPLE_CAP person hashes of a query; the smallest PEOPLE_CAP of a union are in the union of the smallest, so the count
below is exact up to PEOPLE_CAP, however many people there were.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.day import PEOPLE_CAP

PEOPLE_COUNTED = pa.schema(
    [
        pa.field("query", pa.string(), nullable=False),
        pa.field("num_people", pa.int64(), nullable=False),  # PEOPLE_CAP stands for "at least as many"
        pa.field("searches", pa.int64(), nullable=False),
    ]
)


def count_people(queries: pa.Table) -> pa.Table:
    """PEOPLE_COUNTED: one row per query of schemas.day.QUERIES rows of any number of days, in order of appearance.

    All rows of a query must be there. People in several days count once, and a line without a client id is nobody.
    """
    encoded = pc.dictionary_encode(queries["query"].combine_chunks())
    num_queries = len(encoded.dictionary)
    code_of_row = encoded.indices.to_numpy()
    people = queries["people"].combine_chunks()
    issued = pa.table(
        {"query": code_of_row[pc.list_parent_indices(people).to_numpy()], "person": pc.list_flatten(people)}
    )
    distinct = issued.group_by(["query", "person"]).aggregate([])
    num_people = np.bincount(distinct["query"].to_numpy(), minlength=num_queries)
    searches = np.zeros(num_queries, np.int64)
    np.add.at(searches, code_of_row, queries["searches"].to_numpy())
    return pa.table([encoded.dictionary, np.minimum(num_people, PEOPLE_CAP), searches], schema=PEOPLE_COUNTED)
