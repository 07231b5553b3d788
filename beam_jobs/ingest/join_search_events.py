"""The rows of a bucket of query ids: repeats dropped, and every event given the query and client of its search.

An event whose search is not in the log can still be used if it carries the query itself.
"""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.compiled.log_library import first_rows
from beam_jobs.ingest import bots
from beam_jobs.ingest.person_key import hash_people
from schemas.search_log import KINDS
from schemas.text_contract import normalise_column

SEARCH, IMPRESSION, CLICK, OTHER = (KINDS.index(kind) for kind in ("search", "impression", "click", "other"))
_REPEAT = -1  # in the place of a kind
_NO_TIME = 2**63 - 1  # sorts last

# A line whose query is known, and normalised. `owns_query`: it has the query from itself, being a
# search, or an event without its search in the log; all others have it from their search. `person` is the client of the
# line, or of the search where an event names none; `searcher` is the client of the line that the query is from,
# `names_bot` that its user agent is a bot's.
JOINED = pa.schema(
    [
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("query", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("person", pa.uint64()),
        pa.field("searcher", pa.uint64()),
        pa.field("names_bot", pa.bool_(), nullable=False),
        pa.field("document_id", pa.string()),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("time", pa.timestamp("ms", tz="UTC")),
        pa.field("owns_query", pa.bool_(), nullable=False),
    ]
)


def join_search_events(rows: pa.Table, key: bytes) -> tuple[pa.Table, Counter[str]]:
    """JOINED rows, and the lines that were dropped, by fate; from all LOG_ROW rows of some query ids.

    Of identical lines one stays. Of several different search lines of one query id the earliest stays, and among
    equally early ones (or without a time: these come last) the one with the smallest line hash. `key` hashes the
    client ids.
    """
    dropped: Counter[str] = Counter()
    is_first = first_rows(_one_chunk(rows["line_hash"]))
    dropped["repeat"] = int((~is_first).sum())

    kind = np.where(is_first, _kind_codes(rows["kind"]), _REPEAT)
    is_event = (kind == IMPRESSION) | (kind == CLICK)
    has_document = _numpy(rows["document_id"].is_valid())
    dropped["other_action"] = int((kind == OTHER).sum())
    dropped["document_missing"] = int((is_event & ~has_document).sum())

    query_id = _numpy(_one_chunk(rows["query_id"]).dictionary_encode().indices)
    here = np.arange(rows.num_rows)
    search_of_query_id = _chosen_search(rows, kind, query_id)
    asked = search_of_query_id[query_id]  # the row that each row's query is from, -1 none
    carries_query = is_event & has_document & _numpy(rows["query"].is_valid())
    asked = np.where((asked < 0) & carries_query, here, asked)
    is_chosen = (kind == SEARCH) & (asked == here)
    dropped["search_repeated"] = int(((kind == SEARCH) & ~is_chosen).sum())
    is_event &= has_document
    dropped["search_unknown"] = int((is_event & (asked < 0)).sum())

    kept = np.flatnonzero(is_chosen | (is_event & (asked >= 0)))
    lines = rows.select(["document_id", "position", "time"]).take(pa.array(kept))
    searches = pa.array(asked[kept])
    client = _one_chunk(rows["client_id"])
    people = hash_people(client, key)
    searcher = people.take(searches)
    joined = pa.table(
        [
            pa.array(kind[kept], pa.int8()),
            _normalised(_one_chunk(rows["query"])).take(searches),
            pc.coalesce(people.take(pa.array(kept)), searcher),
            searcher,
            bots.is_bot_user_agent(_one_chunk(rows["user_agent"])).take(searches),
            lines["document_id"],
            lines["position"],
            lines["time"],
            pa.array(asked[kept] == kept),
        ],
        schema=JOINED,
    )
    return joined, +dropped


def choose_searches(searches: pa.Table, chosen: pa.Table | None) -> tuple[pa.Table, Counter[str]]:
    """Of some LOG_ROW rows of searches, and of those `chosen` before, the one of each query id that stays; the dropped.

    In parts, for `join_search_events` to be handed the rows that stayed: no line is in two parts.
    """
    is_first = first_rows(_one_chunk(searches["line_hash"]))
    dropped = Counter(repeat=int((~is_first).sum()))
    rows = searches.filter(pa.array(is_first))
    if chosen is not None:
        rows = pa.concat_tables([chosen, rows]).unify_dictionaries().combine_chunks()
    query_id = _numpy(_one_chunk(rows["query_id"]).dictionary_encode().indices)
    staying = _chosen_search(rows, np.full(len(rows), SEARCH), query_id)
    dropped["search_repeated"] = len(rows) - len(staying)
    return rows.take(pa.array(staying)), +dropped


def _normalised(queries: pa.Array) -> pa.DictionaryArray:
    """The texts normalised, each distinct one in the dictionary once."""
    spellings = queries.dictionary_encode()
    distinct = normalise_column(spellings.dictionary).dictionary_encode()
    return pa.DictionaryArray.from_arrays(distinct.indices.take(spellings.indices), distinct.dictionary)


def _chosen_search(rows: pa.Table, kind: np.ndarray, query_id: np.ndarray) -> np.ndarray:
    """For each query id the row of the search line that stays, -1 where there is none."""
    chosen = np.full(query_id.max(initial=-1) + 1, -1, np.int64)
    searches = np.flatnonzero(kind == SEARCH)
    lines = pa.table(
        {
            "time": pc.fill_null(rows["time"].cast(pa.int64()), _NO_TIME).take(pa.array(searches)),
            "line_hash": rows["line_hash"].take(pa.array(searches)),
        }
    )
    in_order = pc.sort_indices(lines, sort_keys=[("time", "ascending"), ("line_hash", "ascending")])
    latest_first = searches[_numpy(in_order)][::-1]
    chosen[query_id[latest_first]] = latest_first  # the last assignment counts: the earliest
    return chosen


def _kind_codes(kinds: pa.ChunkedArray) -> np.ndarray:
    """Indices into KINDS, whatever order the dictionary came in."""
    kinds = _one_chunk(kinds)
    meaning = np.array([KINDS.index(kind) for kind in kinds.dictionary.to_pylist()], np.int8)
    return meaning[_numpy(kinds.indices)]


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()


def _numpy(array: pa.Array | pa.ChunkedArray) -> np.ndarray:
    return array.to_numpy(zero_copy_only=False) if isinstance(array, pa.Array) else array.to_numpy()
