"""JOINED lines -> rows per query, document and position: partial sums first, then the rows of a bucket of queries."""

from collections import Counter

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.bots import Bots, bot_fates
from beam_jobs.content_filters import content_fates
from beam_jobs.people import collect_people, merge_people
from schemas.day import EXPOSURES, QUERIES
from schemas.log_row import KINDS
from schemas.shard import LogicalDigest
from schemas.words import normalise

SEARCH, IMPRESSION, CLICK = (KINDS.index(kind) for kind in ("search", "impression", "click"))
_SUMS = ("searches", "impressions", "clicks")

# Rows of both kinds in one exchange: a query's own rows have no document, an exposure's rows no people.
PARTIAL = pa.schema(
    [
        pa.field("query", pa.string(), nullable=False),
        pa.field("document_id", pa.string()),
        pa.field("position", pa.int32(), nullable=False),
        pa.field("searches", pa.int64(), nullable=False),
        pa.field("impressions", pa.int64(), nullable=False),
        pa.field("clicks", pa.int64(), nullable=False),
        pa.field("people", pa.list_(pa.uint64())),
    ]
)


def aggregate_joined(
    joined: pa.Table, bots: Bots, adult_terms: tuple[str, ...] | None
) -> tuple[pa.Table, Counter[str]]:
    """PARTIAL rows of some JOINED lines, and the lines that were dropped, by fate."""
    named, behaves = bot_fates(joined, bots)
    dropped = Counter(bot_user_agent=int(named.sum()), bot_behaviour=int(behaves.sum()))
    joined = joined.filter(pa.array(~(named | behaves)))

    spellings = joined["query"].combine_chunks()
    distinct = pa.array([normalise(text) for text in spellings.dictionary.to_pylist()], pa.string()).dictionary_encode()
    query = distinct.indices.take(spellings.indices).to_numpy(zero_copy_only=False)
    fates = content_fates(distinct.dictionary.to_pylist(), adult_terms)
    for fate, lines in zip(fates, np.bincount(query, minlength=len(fates)).tolist(), strict=True):
        if fate is not None:
            dropped[fate] += lines
    is_kept = np.array([fate is None for fate in fates], bool)[query]
    return _partial_rows(joined.filter(pa.array(is_kept)), query[is_kept], distinct.dictionary), +dropped


def merge_bucket(partial: pa.Table) -> tuple[pa.Table, pa.Table]:
    """(QUERIES, EXPOSURES) in ascending order of their keys, from all PARTIAL rows of some queries.

    UBI has no dwell time: `dwell_ms` is -1.
    """
    is_query = partial["document_id"].is_null()
    of_query = partial.filter(is_query).sort_by("query")
    encoded = of_query["query"].combine_chunks().dictionary_encode()  # in order of appearance, so ascending
    group = encoded.indices.to_numpy(zero_copy_only=False)
    searches = np.zeros(len(encoded.dictionary), np.int64)
    np.add.at(searches, group, of_query["searches"].to_numpy())
    people = merge_people(group, of_query["people"].combine_chunks(), len(searches))
    queries = pa.table([encoded.dictionary, people, pa.array(searches)], schema=QUERIES)

    keys = ["query", "document_id", "position"]
    exposures = _sums(partial.filter(pc.invert(is_query)).select([*keys, "impressions", "clicks"]), keys)
    exposures = exposures.sort_by([(key, "ascending") for key in keys])
    exposures = exposures.append_column("dwell_ms", pa.array(np.full(exposures.num_rows, -1), pa.int64()))
    return queries, exposures.select(EXPOSURES.names).combine_chunks().cast(EXPOSURES)


def logical_digest(queries: pa.Table, exposures: pa.Table) -> LogicalDigest:
    """The digest of a day's rows; of a query's people only the number counts, which no key changes."""
    digest = LogicalDigest()
    num_people = pc.list_value_length(queries["people"]).to_pylist()
    rows = zip(queries["query"].to_pylist(), num_people, queries["searches"].to_pylist(), strict=True)
    digest.add(orjson.dumps(["query", *row]) for row in rows)
    digest.add(
        orjson.dumps(["exposure", *row]) for row in zip(*(column.to_pylist() for column in exposures), strict=True)
    )
    return digest


def _partial_rows(joined: pa.Table, query: np.ndarray, texts: pa.Array) -> pa.Table:
    """`query` holds each line's index into `texts`."""
    kind = joined["kind"].to_numpy()
    is_search = kind == SEARCH
    searches = np.bincount(query[is_search], minlength=len(texts))
    person = joined["person"].combine_chunks()
    is_seen = is_search & person.is_valid().to_numpy(zero_copy_only=False)
    seen = person.filter(pa.array(is_seen)).to_numpy(zero_copy_only=False)
    people = collect_people(query[is_seen], seen, len(texts))
    occurring = np.flatnonzero(searches)
    of_queries = pa.table(
        {
            "query": texts.take(pa.array(occurring)),
            "document_id": pa.nulls(len(occurring), pa.string()),
            "position": pa.array(np.full(len(occurring), -1), pa.int32()),
            "searches": pa.array(searches[occurring], pa.int64()),
            "impressions": pa.array(np.zeros(len(occurring)), pa.int64()),
            "clicks": pa.array(np.zeros(len(occurring)), pa.int64()),
            "people": people.take(pa.array(occurring)),
        },
        schema=PARTIAL,
    )
    events = pa.array(~is_search)
    kind = kind[~is_search]
    lines = pa.table(
        {
            "query": pa.array(query[~is_search]),
            "document_id": joined["document_id"].filter(events),
            "position": joined["position"].filter(events),
            "searches": pa.array(np.zeros(len(kind)), pa.int64()),
            "impressions": pa.array((kind == IMPRESSION).astype(np.int64)),
            "clicks": pa.array((kind == CLICK).astype(np.int64)),
        }
    )
    exposures = _sums(lines, ["query", "document_id", "position"])
    exposures = exposures.set_column(0, "query", texts.take(exposures["query"].combine_chunks()))
    exposures = exposures.append_column("people", pa.nulls(exposures.num_rows, pa.list_(pa.uint64())))
    return pa.concat_tables([of_queries, exposures.select(PARTIAL.names).cast(PARTIAL)])


def _sums(rows: pa.Table, keys: list[str]) -> pa.Table:
    values = [name for name in _SUMS if name in rows.column_names]
    return rows.group_by(keys).aggregate([(name, "sum") for name in values]).rename_columns([*keys, *values])
