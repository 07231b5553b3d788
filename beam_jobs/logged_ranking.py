"""Cells -> the ranking that the search engine showed, as one more system to measure beside a model.

A document's place follows from its *exposure* for the query: 1 / log2(rank + 2), summed over its impressions. That
falls with the rank as the discount of NDCG does, also in a log that counts ranks from 0. Of two documents shown equally
often, the one shown higher is first; and one that a few people saw at the top does not pass one that everybody saw just
below it, as it would if mean ranks were compared. Only places leave: an exposure would tell how often something was
shown.
"""

import numpy as np
import pyarrow as pa

from beam_jobs.exposure_cells import numbered

# In ascending order of query id and place. `place`: 1 is shown most; equal exposures share the first of their places.
LOGGED = pa.schema(
    [
        pa.field("query_id", pa.string(), nullable=False),
        pa.field("document_id", pa.string(), nullable=False),
        pa.field("place", pa.int32(), nullable=False),
    ]
)


def logged_ranking(cells: pa.Table, judged: pa.Table, *, min_impressions: int) -> pa.Table:
    """LOGGED: of each query of `judged`, the documents that were shown for it at least `min_impressions` times.

    `cells`: beam_jobs.exposure_cells.CELLS, all those of their queries; `judged`: beam_jobs.judge_clicks.JUDGED.
    """
    pair, first = numbered(cells["query"], cells["document_id"])
    shown = cells["impressions"].to_numpy()
    exposure = np.bincount(pair, shown / np.log2(cells["rank"].to_numpy() + 2.0), minlength=len(first))
    is_seen = np.bincount(pair, shown, minlength=len(first)) >= min_impressions
    pairs = cells.take(pa.array(first)).select(["query", "document_id"]).append_column("exposure", pa.array(exposure))
    id_of = judged.select(["query", "query_id"]).group_by(["query", "query_id"]).aggregate([])
    keys = [("query_id", "ascending"), ("exposure", "descending"), ("document_id", "descending")]
    ranked = pairs.filter(pa.array(is_seen)).join(id_of, "query", join_type="inner").sort_by(keys).combine_chunks()

    query, start = numbered(ranked["query_id"])
    _, first_of_equals = numbered(ranked["query_id"], ranked["exposure"])
    row = np.arange(len(ranked))
    leader = first_of_equals[np.searchsorted(first_of_equals, row, side="right") - 1]
    place = leader - start[query] + 1
    return pa.table([ranked["query_id"], ranked["document_id"], pa.array(place, pa.int32())], schema=LOGGED)
