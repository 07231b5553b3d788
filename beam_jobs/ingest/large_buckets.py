"""The join of a bucket of query ids that may not fit into memory: in parts, one after the other.

A search has a few dozen events and a bucket some ten thousand searches, unless a client sends events without end
under one query id. No exchange can divide these, since an event needs its search; so such a bucket is read
repeatedly, each time for the lines of one part: first for the searches that stay of some query ids and clients, then
for some of the events, against all those searches. Copies of a line are in one part, so they are still recognised.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clicktower.beam_jobs.compiled.log_library import first_rows, text_hashes
from clicktower.beam_jobs.engine.arrow_files import Record, get
from clicktower.beam_jobs.engine.beam_stage import Tally, add_up
from clicktower.beam_jobs.ingest.day_rows import SEARCH, join_search_events, normalised_queries, rows_of_queries
from clicktower.beam_jobs.ingest.person_key import hash_people
from clicktower.schemas.search_log import KINDS


def sole_searches(searches: pa.Table, key: bytes) -> tuple[pa.Table, Tally]:
    """The LOG_ROW rows of searches that stay, from all searches of some query ids and clients; the dropped lines."""
    is_first = first_rows(searches["line_hash"].combine_chunks())
    dropped = Counter(repeat=int((~is_first).sum()))
    rows = searches.filter(pa.array(is_first)).combine_chunks()
    query_row, _ = rows_of_queries(
        rows,
        np.full(len(rows), SEARCH),
        np.zeros(len(rows), bool),
        hash_people(rows["client_id"].combine_chunks(), key),
        normalised_queries(rows["query"].combine_chunks()),
        has_all_clients=False,
    )
    stays = query_row == np.arange(len(rows))
    dropped["search_repeated"] = int((~stays).sum())
    return rows.filter(pa.array(stays)), Tally(fates=+dropped)


def join_in_parts(records: Sequence[Record], num_parts: int, key: bytes) -> Iterator[tuple[pa.Table, Tally]]:
    """As day_rows.join_bucket, in several parts."""
    parts = [
        sole_searches(_rows_of_part(records, part, num_parts, key, searches=True), key) for part in range(num_parts)
    ]
    searches = pa.concat_tables([rows for rows, _ in parts]).unify_dictionaries()
    joined, tally = join_search_events(searches, key)
    yield joined, add_up([tally, *(dropped for _, dropped in parts)])
    for part in range(num_parts):
        events = _rows_of_part(records, part, num_parts, key, searches=False)
        joined, tally = join_search_events(pa.concat_tables([events, searches]).unify_dictionaries(), key)
        fates = {fate: lines for fate, lines in tally.fates.items() if fate != "search_repeated"}
        yield joined.filter(pc.not_equal(joined["kind"], SEARCH)), Tally(fates=fates)


def _rows_of_part(records: Sequence[Record], part: int, num_parts: int, key: bytes, *, searches: bool) -> pa.Table:
    """Of the searches those whose query id and client fall into a part; of all other lines those whose hash does."""
    batches = []
    for record in records:
        rows = get([record])
        rows = rows.filter(pc.equal(pc.equal(rows["kind"].cast(pa.string()), KINDS[SEARCH]), searches))
        if searches:
            people = hash_people(rows["client_id"].combine_chunks(), key).fill_null(0)
            hashes = text_hashes(rows["query_id"].combine_chunks()) ^ people.to_numpy(zero_copy_only=False)
        else:
            hashes = np.frombuffer(b"".join(rows["line_hash"].to_pylist()), np.uint64)[::2]  # 16 bytes each
        batches.append(rows.filter(pa.array(hashes % np.uint64(num_parts) == part)))
    return pa.concat_tables(batches).unify_dictionaries().combine_chunks()
