"""The join of a bucket of query ids that may not fit into memory: in parts, one after the other.

A search has a few dozen events and a bucket some ten thousand searches, unless somebody sends events without end under
one query id. No exchange can part these, since an event needs its search; so such a bucket is read again and again,
each time for the lines of one part: first for the search that stays of each query id, then for the events, against all
searches that stayed. Copies of a line are in one part, so they are still told.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.join_search_events import SEARCH, choose_searches, join_search_events
from beam_jobs.records import Record, get, num_bytes
from schemas.log_row import KINDS

PART_BYTES = 256 << 20  # of records; the join holds a few times as much


def join_in_parts(records: Sequence[Record], key: bytes) -> Iterator[tuple[pa.Table, Counter[str]]]:
    """JOINED rows and dropped lines by fate (join_search_events), some at a time, of all records of a bucket."""
    num_parts = -(-sum(map(num_bytes, records)) // PART_BYTES)
    if num_parts <= 1:
        yield join_search_events(get(records), key)
        return
    chosen, dropped = None, Counter[str]()
    for part in range(num_parts):
        chosen, more = choose_searches(_rows_of_part(records, part, num_parts, searches=True), chosen)
        dropped += more
    joined, _ = join_search_events(chosen, key)
    yield joined, dropped
    for part in range(num_parts):
        events = _rows_of_part(records, part, num_parts, searches=False)
        joined, dropped = join_search_events(pa.concat_tables([events, chosen]).unify_dictionaries(), key)
        yield joined.filter(pc.not_equal(joined["kind"], SEARCH)), dropped


def _rows_of_part(records: Sequence[Record], part: int, num_parts: int, *, searches: bool) -> pa.Table:
    """The searches, or all other lines, whose hash falls into a part."""
    found = []
    for record in records:
        rows = get([record])
        is_search = pc.equal(rows["kind"].cast(pa.string()), KINDS[SEARCH]).to_numpy()
        hashes = np.frombuffer(b"".join(rows["line_hash"].to_pylist()), np.uint64)[::2]  # 16 bytes each
        found.append(rows.filter(pa.array((is_search == searches) & (hashes % np.uint64(num_parts) == part))))
    return pa.concat_tables(found).unify_dictionaries().combine_chunks()
