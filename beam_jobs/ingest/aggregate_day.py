"""JOINED lines -> rows per query, document and position: partial sums first, then the rows of a bucket of queries."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.compiled.log_library import row_digest
from beam_jobs.engine.beam_stage import Tally
from beam_jobs.ingest.bots import NO_RULE, RULES, Bots, rule_of_lines
from beam_jobs.ingest.content_filters import says_nothing
from beam_jobs.ingest.person_key import collect_people, merge_people
from schemas.day import EXPOSURES, QUERIES
from schemas.search_log import KINDS
from schemas.shard import LogicalDigest

SEARCH, IMPRESSION, CLICK = (KINDS.index(kind) for kind in ("search", "impression", "click"))
_SUMS = ("searches", "impressions", "clicks")
BOT_LINES = "bot_lines:"  # before the name of a rule: what a Tally counts its lines under

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


def aggregate_joined(joined: pa.Table, bots: Bots) -> tuple[pa.Table, Tally]:
    """PARTIAL rows of some JOINED lines, and the lines that were dropped: by fate, those of bots also by rule.

    Empty queries go here. Adult and spam queries stay in the private day: their lists are settings of build.
    """
    rule = rule_of_lines(joined, bots)
    lines_of_rule = np.bincount(rule, minlength=len(RULES)).tolist()
    dropped, caught = Counter[str](), Counter[str]()
    for known, lines in zip(RULES, lines_of_rule, strict=False):  # what follows are the lines of no rule
        dropped[known.fate] += lines
        caught[BOT_LINES + known.name] += lines
    is_human = rule == NO_RULE

    encoded = joined["query"].combine_chunks()
    query, texts = encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary
    is_empty = np.array([says_nothing(text) for text in texts.to_pylist()], bool)[query]
    dropped["query_empty"] = int((is_human & is_empty).sum())
    is_kept = is_human & ~is_empty
    partial = _partial_rows(joined.filter(pa.array(is_kept)), query[is_kept], texts)
    return partial, Tally(fates=+dropped, counts=+caught)


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
    # No query holds a line end, no number does, and what may hold one comes last.
    digest.merge(row_digest(queries["query"], pc.list_value_length(queries["people"]), queries["searches"]))
    numbers = [exposures[name] for name in ("position", "impressions", "clicks", "dwell_ms")]
    digest.merge(row_digest(exposures["query"], *numbers, exposures["document_id"]))
    return digest


def _partial_rows(joined: pa.Table, query: np.ndarray, texts: pa.Array) -> pa.Table:
    """`query` holds each line's index into `texts`."""
    kind = joined["kind"].to_numpy()
    is_search = kind == SEARCH
    searches = np.bincount(query[is_search], minlength=len(texts))
    person = joined["person"].combine_chunks()
    owns_query = joined["owns_query"].to_numpy()  # an event that repeats its search's query tells nothing new
    is_seen = owns_query & person.is_valid().to_numpy(zero_copy_only=False)
    seen = person.filter(pa.array(is_seen)).to_numpy(zero_copy_only=False)
    people = collect_people(query[is_seen], seen, len(texts))
    occurring = np.flatnonzero(np.bincount(query[owns_query], minlength=len(texts)))
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
