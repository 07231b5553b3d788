"""Lines of a log (LOG_ROW) -> joined to their searches (JOINED) -> added up (PARTIAL) -> the rows of a day.

The lines of a bucket of query ids are joined: repeats are dropped, and every event gets the query and client of its
search; an event whose search is not in the log is usable if it carries the query itself. Once the bots are known, the
remaining lines are added up by query, document and position: first in parts, then for a whole bucket of queries.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pkgutil import resolve_name

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clicktower.beam_jobs.compiled.log_library import first_rows, keyed_hashes, row_digest
from clicktower.beam_jobs.engine.arrow_files import Record, get, num_bytes, write_table
from clicktower.beam_jobs.engine.beam_stage import Tally
from clicktower.beam_jobs.ingest.bots import FATE_OF_RULE, NO_RULE, RULES, Bots, is_bot_user_agent, rule_of_lines
from clicktower.beam_jobs.ingest.person_key import hash_people
from clicktower.schemas.content_filters import is_wordless
from clicktower.schemas.search_log import COUNTS, DAY_FATES, EXPOSURES, KINDS, PEOPLE_CAP, QUERIES
from clicktower.schemas.shard import LogicalDigest
from clicktower.schemas.text_contract import normalise_column

SEARCH, IMPRESSION, CLICK, OTHER, CONVERSION = range(len(KINDS))
_REPEAT = -1  # instead of a kind
_NO_TIME = 2**63 - 1  # sorts last

# A line with a known, normalised query. `owns_query`: the query is its own, since it is a search, or an event without
# its search in the log; otherwise it comes from its search. `person` is the client of the line, or of the search if an
# event names none; `searcher` is the client of the line that has the query, and `names_bot` says whether its user agent
# is a bot's.
JOINED = pa.schema(
    {
        "kind": pa.int8(),
        "query": pa.dictionary(pa.int32(), pa.string()),
        "person": pa.uint64(),
        "searcher": pa.uint64(),
        "names_bot": pa.bool_(),
        "document_id": pa.string(),
        "position": pa.int32(),
        "time": pa.timestamp("ms", tz="UTC"),
        "weight": pa.int32(),
        "owns_query": pa.bool_(),
    }
)


def join_search_events(rows: pa.Table, key: bytes) -> tuple[pa.Table, Tally]:
    """JOINED rows, and the dropped lines by fate; from all LOG_ROW rows of some query ids.

    Of identical lines one is kept. `key` hashes the client ids.

    A query id may carry several searches: counters that begin anew with each client or session. A search line repeats
    the one before it of the same id and client if both have the same query; a line without a time comes last, and of
    equally early ones that with the smallest line hash first. An event joins the latest search of its id and client at
    or before its time, or else the earliest. If its client has no search of that id, it joins those of the only client
    that has. An event that could belong to searches with different queries is ambiguous. The tally counts the query ids
    with several searches.
    """
    dropped: Counter[str] = Counter()
    is_first = first_rows(rows["line_hash"].combine_chunks())
    dropped["repeat"] = int((~is_first).sum())

    kind = np.where(is_first, _kind_codes(rows["kind"]), _REPEAT)
    is_short = (kind == CLICK) & (rows["weight"].to_numpy() == 0)
    dropped["click_short"] = int(is_short.sum())
    is_event = (kind == IMPRESSION) | ((kind == CLICK) & ~is_short) | (kind == CONVERSION)
    has_document = _numpy(rows["document_id"].is_valid())
    dropped["other_action"] = int((kind == OTHER).sum())
    dropped["document_missing"] = int((is_event & ~has_document).sum())
    is_event &= has_document

    people = hash_people(rows["client_id"].combine_chunks(), key)
    queries = normalised_queries(rows["query"].combine_chunks())
    query_row, num_shared = rows_of_queries(rows, kind, is_event, people, queries)
    carries_query = is_event & _numpy(rows["query"].is_valid())
    here = np.arange(rows.num_rows)
    query_row = np.where((query_row < 0) & carries_query, here, query_row)
    is_chosen = (kind == SEARCH) & (query_row == here)
    dropped["search_repeated"] = int(((kind == SEARCH) & ~is_chosen).sum())
    dropped["search_unknown"] = int((is_event & (query_row == NO_SEARCH)).sum())
    dropped["search_ambiguous"] = int((is_event & (query_row == AMBIGUOUS)).sum())

    kept = np.flatnonzero(is_chosen | (is_event & (query_row >= 0)))
    lines = rows.select(["document_id", "position", "time", "weight"]).take(pa.array(kept))
    searches = pa.array(query_row[kept])
    searcher = people.take(searches)
    joined = pa.table(
        [
            pa.array(kind[kept], pa.int8()),
            queries.take(searches),
            pc.coalesce(people.take(pa.array(kept)), searcher),
            searcher,
            is_bot_user_agent(rows["user_agent"].combine_chunks()).take(searches),
            lines["document_id"],
            lines["position"],
            lines["time"],
            lines["weight"],
            pa.array(query_row[kept] == kept),
        ],
        schema=JOINED,
    )
    return joined, Tally(fates=+dropped, counts={SHARED_QUERY_IDS: num_shared})


NO_SEARCH, AMBIGUOUS = -1, -2  # instead of the row of a search
SHARED_QUERY_IDS = "shared_query_ids"  # in the counts of a Tally


def rows_of_queries(
    rows: pa.Table,
    kind: np.ndarray,
    is_event: np.ndarray,
    people: pa.Array,
    queries: pa.DictionaryArray,
    *,
    has_all_clients: bool = True,
) -> tuple[np.ndarray, int]:
    """(for each row the row of its search, its own if it is a search that stays; the number of query ids with several
    searches). `people`, `queries`: those of each row. `has_all_clients`: these are all searches of their query ids.
    """
    query_id = _numpy(rows["query_id"].combine_chunks().dictionary_encode().indices)
    searches = np.flatnonzero(kind == SEARCH)
    num_lines = np.bincount(query_id[searches], minlength=query_id.max(initial=-1) + 1)
    only = np.full(len(num_lines), NO_SEARCH)
    only[query_id[searches]] = searches
    query_row = only[query_id]
    if num_lines.max(initial=0) <= 1:
        return query_row, 0
    at = np.flatnonzero((num_lines > 1)[query_id] & (is_event | (kind == SEARCH)))
    taken = rows.select(["time", "line_hash"]).take(pa.array(at))
    joins, num_shared = _join_shared(
        is_search=kind[at] == SEARCH,
        query_id=query_id[at],
        person=_codes(people.take(pa.array(at))),
        query=_numpy(queries.indices.take(pa.array(at)).fill_null(-1)),
        time=_numpy(taken["time"].cast(pa.int64()).fill_null(_NO_TIME)),
        line_hash=taken["line_hash"],
        has_all_clients=has_all_clients,
    )
    query_row[at] = np.where(joins >= 0, at[joins], joins)
    return query_row, num_shared


def _join_shared(
    *,
    is_search: np.ndarray,
    query_id: np.ndarray,
    person: np.ndarray,
    query: np.ndarray,
    time: np.ndarray,
    line_hash: pa.ChunkedArray,
    has_all_clients: bool,
) -> tuple[np.ndarray, int]:
    """(for each line the number of its search, NO_SEARCH for a repeated search; the number of query ids with several
    searches), for lines of query ids with several search lines.

    `query_id`, `person` (0: nobody) and `query` are codes; `time` is in milliseconds, _NO_TIME for none.
    """
    pair = np.unique(query_id * (person.max(initial=0) + 1) + person, return_inverse=True)[1]

    order = pa.table({"time": time, "line_hash": line_hash})
    earliest_first = _numpy(pc.sort_indices(order, sort_keys=[("time", "ascending"), ("line_hash", "ascending")]))
    lines = earliest_first[is_search[earliest_first]]
    rank = np.arange(len(lines))
    by_pair = np.argsort(pair[lines], kind="stable")  # pairs are in the order of their ids
    lines, rank = lines[by_pair], rank[by_pair]
    stays = _is_new(pair[lines], query[lines])
    lines, rank = lines[stays], rank[stays]
    if has_all_clients:
        stays = ~_repeats_for_nobody(query_id[lines], person[lines], query[lines])
        lines, rank = lines[stays], rank[stays]
    result = np.full(len(query_id), NO_SEARCH)
    result[lines] = lines

    # The searches that stay, in groups of one id and client, within those of one id.
    begins_group, begins_id = _is_new(pair[lines]), _is_new(query_id[lines])
    group = np.cumsum(begins_group) - 1
    first, last = _spans(begins_group)
    first_of_id, last_of_id = _spans(begins_id)
    queries = query[lines]
    has_one_query = np.minimum.reduceat(queries, first_of_id) == np.maximum.reduceat(queries, first_of_id)
    earliest = lines[np.argsort(rank)][np.searchsorted(np.sort(rank), np.minimum.reduceat(rank, first_of_id))]

    events = np.flatnonzero(~is_search)
    number = np.searchsorted(query_id[lines[first_of_id]], query_id[events])  # of the id
    pairs = pair[lines[first]]
    own = np.minimum(np.searchsorted(pairs, pair[events]), len(pairs) - 1)
    has_own = (pairs[own] == pair[events]) & (person[events] > 0)
    its = np.where(has_own, own, group[first_of_id[number]])  # the group
    is_clear = has_own | (group[first_of_id] == group[last_of_id])[number]

    # Of the group the last search at or before the event, or else the first.
    moments = np.unique(time[lines])
    place = group * (len(moments) + 1) + np.searchsorted(moments, time[lines])
    until = its * (len(moments) + 1) + np.searchsorted(moments, time[events], side="right") - 1
    chosen = np.maximum(np.searchsorted(place, until, side="right") - 1, first[its])
    beside = np.stack([np.maximum(chosen - 1, first[its]), np.minimum(chosen + 1, last[its])])
    times = time[lines]
    is_tied = ((beside != chosen) & (times[beside] == times[chosen])).any(axis=0)
    lacks_time = (time[events] == _NO_TIME) | (times[last[its]] == _NO_TIME)
    is_clear &= (first[its] == last[its]) | ~(is_tied | lacks_time)
    result[events] = np.where(is_clear, lines[chosen], np.where(has_one_query[number], earliest[number], AMBIGUOUS))
    return result, int((first_of_id != last_of_id).sum())


def _repeats_for_nobody(query_id: np.ndarray, person: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Whether each search names no client, and the only client of its query id asks the same."""
    ids, _ = np.unique(np.stack([query_id, person])[:, person > 0], axis=1)
    num_people = np.bincount(ids, minlength=query_id.max(initial=-1) + 1)
    asked = query_id * (query.max(initial=0) + 1) + query
    return (person == 0) & (num_people[query_id] == 1) & np.isin(asked, asked[person > 0])


def _is_new(*columns: np.ndarray) -> np.ndarray:
    """Whether each row differs from the one before it."""
    differs = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return np.append(len(columns[0]) > 0, differs)[: len(columns[0])]


def _spans(begins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first and the last row of each run of rows, from whether each row begins one."""
    first = np.flatnonzero(begins)
    return first, np.append(first[1:], len(begins)) - 1


def _codes(people: pa.Array) -> np.ndarray:
    """Numbers from 1 for people, 0 for nobody."""
    codes = np.unique(people.fill_null(0).to_numpy(zero_copy_only=False), return_inverse=True)[1] + 1
    return np.where(_numpy(people.is_valid()), codes, 0)


def normalised_queries(queries: pa.Array) -> pa.DictionaryArray:
    """The normalised texts, each distinct one in the dictionary once."""
    spellings = queries.dictionary_encode()
    distinct = normalise_column(spellings.dictionary).dictionary_encode()
    return pa.DictionaryArray.from_arrays(distinct.indices.take(spellings.indices), distinct.dictionary)


def _kind_codes(kinds: pa.ChunkedArray) -> np.ndarray:
    """Indices into KINDS, for a dictionary in any order."""
    kinds = kinds.combine_chunks()
    meaning = np.array([KINDS.index(kind) for kind in kinds.dictionary.to_pylist()], np.int8)
    return meaning[_numpy(kinds.indices)]


def _numpy(array: pa.Array | pa.ChunkedArray) -> np.ndarray:
    return array.to_numpy(zero_copy_only=False) if isinstance(array, pa.Array) else array.to_numpy()


PART_BYTES = 256 << 20  # of records; the join holds a few times as much


def join_bucket(records: Sequence[Record], key: bytes) -> Iterable[tuple[pa.Table, Tally]]:
    """JOINED rows and their tally (join_search_events), in chunks, of all records of a bucket."""
    num_parts = -(-sum(map(num_bytes, records)) // PART_BYTES)
    if num_parts > 1:
        return resolve_name("clicktower.beam_jobs.ingest.large_buckets:join_in_parts")(records, num_parts, key)
    return [join_search_events(get(records), key)]


BOT_LINES = "bot_lines:"  # precedes the name of a rule in the counts of a Tally

# All kinds of rows in one exchange: a query's own rows have searches and people, an exposure's rows the rest, and those
# of who clicked a document and people.
PARTIAL = pa.schema(
    {
        "query": pa.string(),
        "document_id": pa.string(),
        "position": pa.int32(),
        "searches": pa.int64(),
        "impressions": pa.int64(),
        "clicks": pa.int64(),
        "conversions": pa.int64(),
        "weight": pa.int64(),
        "people": pa.list_(pa.uint64()),
    }
)


def aggregate_joined(joined: pa.Table, bots: Bots, *, pair_people: bool = False) -> tuple[pa.Table, Tally]:
    """PARTIAL rows of some JOINED lines, and the dropped lines: by fate, those of bots also by rule. With `pair_people`
    also rows of who clicked what.

    Empty queries are dropped here. Adult and spam queries stay in the private day: their lists are settings of build.
    """
    rule = rule_of_lines(joined, bots)
    lines_of_rule = np.bincount(rule, minlength=len(RULES)).tolist()
    dropped, caught = Counter[str](), Counter[str]()
    for name, lines in zip(RULES, lines_of_rule, strict=False):  # the rest are the lines of no rule
        dropped[FATE_OF_RULE[name]] += lines
        caught[BOT_LINES + name] += lines
    is_human = rule == NO_RULE

    encoded = joined["query"].combine_chunks()
    query, texts = encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary
    is_empty = np.array([is_wordless(text) for text in texts.to_pylist()], bool)[query]
    dropped["query_empty"] = int((is_human & is_empty).sum())
    is_kept = is_human & ~is_empty
    kept = joined.filter(pa.array(is_kept))
    partial = _partial_rows(kept, query[is_kept], texts)
    if pair_people:
        clicker_rows = resolve_name("clicktower.beam_jobs.ingest.pair_people:clicker_rows")
        partial = pa.concat_tables([partial, clicker_rows(kept, query[is_kept], texts)])
    return partial, Tally(fates=+dropped, counts=+caught)


def merge_bucket(partial: pa.Table) -> tuple[pa.Table, pa.Table]:
    """(QUERIES, EXPOSURES) in ascending order of their keys, from all PARTIAL rows of some queries."""
    is_query = partial["document_id"].is_null()
    of_query = partial.filter(is_query).sort_by("query")
    encoded = of_query["query"].combine_chunks().dictionary_encode()  # in order of appearance, so ascending
    group = encoded.indices.to_numpy(zero_copy_only=False)
    searches = np.zeros(len(encoded.dictionary), np.int64)
    np.add.at(searches, group, of_query["searches"].to_numpy())
    people = merge_people(group, of_query["people"].combine_chunks(), len(searches))
    queries = pa.table([encoded.dictionary, people, pa.array(searches)], schema=QUERIES)

    exposures = _exposures(partial.filter(pc.and_(pc.invert(is_query), partial["people"].is_null())))
    exposures = exposures.sort_by([(key, "ascending") for key in _EXPOSURE])
    return queries, exposures.select(EXPOSURES.names).combine_chunks().cast(EXPOSURES)


def count_lines(queries: pa.Table, exposures: pa.Table) -> dict[str, int]:
    """The lines behind the rows of a day, by the names of DAY_FATES."""
    counts = {name: exposures[name] if name in COUNTS else queries[name] for name in DAY_FATES}
    return {name: pc.sum(column).as_py() or 0 for name, column in counts.items()}


def logical_digest(queries: pa.Table, exposures: pa.Table) -> LogicalDigest:
    """The digest of a day's rows; of a query's people only their number, which no key changes."""
    digest = LogicalDigest()
    # No query or number contains a line end, and the column that may comes last.
    digest.merge(row_digest(queries["query"], pc.list_value_length(queries["people"]), queries["searches"]))
    numbers = [exposures[name] for name in ("position", *COUNTS)]
    digest.merge(row_digest(exposures["query"], *numbers, exposures["document_id"]))
    return digest


def _partial_rows(joined: pa.Table, query: np.ndarray, texts: pa.Array) -> pa.Table:
    """`query` holds each line's index into `texts`."""
    kind = joined["kind"].to_numpy()
    is_search = kind == SEARCH
    searches = np.bincount(query[is_search], minlength=len(texts))
    person = joined["person"].combine_chunks()
    owns_query = joined["owns_query"].to_numpy()  # an event that repeats its search's query adds nothing
    is_seen = owns_query & person.is_valid().to_numpy(zero_copy_only=False)
    seen = person.filter(pa.array(is_seen)).to_numpy(zero_copy_only=False)
    people = collect_people(query[is_seen], seen, len(texts))
    occurring = np.flatnonzero(np.bincount(query[owns_query], minlength=len(texts)))
    of_queries = pa.table(
        {
            "query": texts.take(pa.array(occurring)),
            "searches": searches[occurring],
            "people": people.take(pa.array(occurring)),
        }
    )
    events = pa.array(~is_search)
    lines = pa.table(
        {
            "query": query[~is_search],
            "document_id": joined["document_id"].filter(events),
            "position": joined["position"].filter(events),
            "impressions": (kind[~is_search] == IMPRESSION).astype(np.int64),
            "clicks": (kind[~is_search] == CLICK).astype(np.int64),
            "conversions": (kind[~is_search] == CONVERSION).astype(np.int64),
            "weight": joined["weight"].filter(events).cast(pa.int64()),
        }
    )
    exposures = _exposures(lines)
    exposures = exposures.set_column(0, "query", texts.take(exposures["query"].combine_chunks()))
    rows = pa.concat_tables([of_queries, exposures], promote_options="default")
    return rows.select(PARTIAL.names).cast(PARTIAL)


_EXPOSURE = ["query", "document_id", "position"]


def _exposures(rows: pa.Table) -> pa.Table:
    """The counts of each query, document and position."""
    sums = rows.group_by(_EXPOSURE).aggregate([(name, "sum") for name in COUNTS])
    return sums.rename_columns([*_EXPOSURE, *COUNTS])


# Sets of people as capped sets of keyed hashes: constant size for the most frequent query, exact up to the cap,
# mergeable.
#
# The smallest PEOPLE_CAP hashes of a union are the smallest of the sets' smallest, so merging in any order and any
# grouping gives the same as one pass over all lines.


def collect_people(groups: np.ndarray, people: np.ndarray, num_groups: int, cap: int = PEOPLE_CAP) -> pa.Array:
    """For each group 0..num_groups-1 the `cap` smallest distinct people, ascending, as list<uint64>.

    `groups` and `people` have equal length, one entry for each time a person occurs in a group.
    """
    order = np.lexsort((people, groups))
    groups, people = groups[order], people[order]
    if len(groups):
        is_new = np.append(True, (groups[1:] != groups[:-1]) | (people[1:] != people[:-1]))
        groups, people = groups[is_new], people[is_new]
    sizes = np.bincount(groups, minlength=num_groups)
    starts = np.cumsum(sizes) - sizes
    kept = np.arange(len(groups)) - starts[groups] < cap
    offsets = np.concatenate([[0], np.cumsum(np.minimum(sizes, cap))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(people[kept], pa.uint64()))


def merge_people(groups: np.ndarray, sets: pa.ListArray, num_groups: int, cap: int = PEOPLE_CAP) -> pa.Array:
    """For each group 0..num_groups-1 the union of its sets, capped, as list<uint64>; `groups` has one entry per set."""
    lengths = sets.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    members = sets.flatten().to_numpy(zero_copy_only=False).astype(np.uint64)
    return collect_people(np.repeat(groups, lengths), members, num_groups, cap)


# A sample of the lines of an ingest, by their keyed hashes, to recognise the same lines in another (line_samples):
# `line`, distinct, ascending, and `zeros`, how many zeros each began with before the key. It names nobody.


SAMPLED_BYTES = 64 << 20
SAMPLE = "lines"
_PERSON = b"clicktower-lines"  # BLAKE2b's personalisation: this use of the key and no other
ZERO_BITS = b"zero_bits"


def zero_bits_for(log_bytes: int) -> int:
    """The number of zeros that the hash of a sampled line begins with, for a log of this size (uncompressed)."""
    return (log_bytes // SAMPLED_BYTES).bit_length()


def sampled(line_hashes: pa.FixedSizeBinaryArray, zero_bits: int) -> bytes:
    """The first eight bytes of each hash (LOG_ROW's `line_hash`) that is in the sample, concatenated."""
    width = line_hashes.type.byte_width
    raw = np.frombuffer(line_hashes.buffers()[1], np.uint8)[line_hashes.offset * width :][: len(line_hashes) * width]
    first = raw.reshape(-1, width)[:, :8].copy().view(">u8").ravel()
    return first[first <= np.uint64((1 << 64 - zero_bits) - 1)].tobytes()


def write_sample(folder: str, hashes: bytes, zero_bits: int, key: bytes) -> None:
    """Write the sample of an ingest below `folder`, from the results of `sampled` for all its lines, in any order."""
    distinct = np.unique(np.frombuffer(hashes, ">u8"))
    zeros = 32 - np.frexp((distinct >> np.uint64(32)).astype(np.float64))[1]
    words = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(distinct), [None, pa.py_buffer(distinct.tobytes())])
    lines = keyed_hashes(words.cast(pa.binary()), key=key, person=_PERSON)
    order = np.argsort(lines)
    table = pa.table({"line": pa.array(lines[order]), "zeros": pa.array(zeros[order].astype(np.uint8))})
    write_table(table.replace_schema_metadata({ZERO_BITS: str(zero_bits).encode()}), folder, SAMPLE)
