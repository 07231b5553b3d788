"""Job 2, build: days + documents -> shards.

Reads schemas.day from the ingests of a window and the documents file; writes schemas.shard to STORE/build/DIGEST. On
the way: titles are joined by document id, people are counted over all days, the privacy gate closes, queries are split
by a keyed hash, negatives are drawn from the pool. Whatever the runner, the number of workers and the cut of the days,
the logical rows are the same.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import AsDict, TaggedOutput

from beam_jobs.arrow_files import explained, read_table
from beam_jobs.build_commit import Commit, commit_build
from beam_jobs.build_config import BuildConfig
from beam_jobs.click_pairs import click_pairs
from beam_jobs.days import read_day_file
from beam_jobs.engine import carries_errors
from beam_jobs.exchange import from_ipc, split_by_bucket, to_ipc
from beam_jobs.joint_exchange import Bucket, JointExchange, Side
from beam_jobs.progress import advance
from beam_jobs.shard_writer import FolderMade, write_shard
from beam_jobs.tally import Tally
from beam_jobs.titles import SHOWN, SHOWN_TITLED, TITLED, join_titles, sum_positions
from schemas import storage
from schemas.day import QUERIES

JUDGED = pa.schema([pa.field("query", pa.string(), nullable=False)])


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """Where the job's tables are (URIs of Arrow files), and how it goes about them."""

    queries: tuple[str, ...]  # schemas.day.QUERIES
    exposures: tuple[str, ...]  # schemas.day.EXPOSURES
    titled: tuple[str, ...]  # beam_jobs.titles.TITLED
    judged: tuple[str, ...]  # JUDGED
    pool: str  # TITLED, one file in pool order
    scratch: str
    num_buckets: int
    config: BuildConfig
    token: str = ""  # beam_jobs.progress


def shards_pipeline(pipeline: beam.Pipeline, plan: Plan, commit: Commit) -> None:
    """The job, wired: read, join titles by document, gate and pair by query, write by shard, commit."""
    config = plan.config
    queries = pipeline | "Query files" >> Files(plan.queries) | "Read queries" >> beam.Map(_read_queries, plan.token)
    shown = pipeline | "Exposure files" >> Files(plan.exposures) | "Read exposures" >> beam.Map(_read_shown, plan.token)
    titled = pipeline | "Title files" >> Files(plan.titled) | "Read titles" >> beam.Map(_read_table)
    judged = pipeline | "Judged files" >> Files(plan.judged) | "Read judged" >> beam.Map(_read_table)

    by_document = {"shown": Side(key="document_id", schema=SHOWN), "titled": Side(key="document_id", schema=TITLED)}
    joined = (
        {"shown": shown, "titled": titled}
        | JointExchange("By document", by_document, plan.num_buckets)
        | "Join titles" >> beam.FlatMap(_join_titles).with_outputs("tally", main="rows")
    )

    by_query = {
        "queries": Side(key="query", schema=QUERIES),
        "shown": Side(key="query", schema=SHOWN_TITLED),
        "judged": Side(key="query", schema=JUDGED),
    }
    pairs = (
        {"queries": queries, "shown": joined.rows, "judged": judged}
        | JointExchange("By query", by_query, plan.num_buckets)
        | "Pair behind the gate" >> beam.FlatMap(_pair, config).with_outputs("tally", "size", main="rows")
    )

    num_pairs = pairs.size | "Count pairs" >> beam.CombinePerKey(sum)
    shards = (
        pairs.rows
        | "Cut into shards" >> beam.FlatMap(_by_shard, config.pairs_per_shard, AsDict(num_pairs))
        | "By shard" >> beam.GroupByKey()
        | "Write shards" >> beam.Map(_write_shard, plan)
    )

    # The last step is one element: only the results that reached it count, whatever else retried bundles left behind.
    started = pipeline | "Start" >> beam.Create([Tally()])
    _ = (
        (started, joined.tally, pairs.tally, shards)
        | "Results" >> beam.Flatten()
        | "On one key" >> beam.Map(_on_one_key)
        | "Gather" >> beam.GroupByKey()
        | "Commit" >> beam.Map(_commit, commit)
    )


class Files(beam.PTransform):
    """URIs as elements, spread over the workers."""

    def __init__(self, uris: Sequence[str]) -> None:
        super().__init__()
        self._uris = list(uris)

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        return pipeline | beam.Create(self._uris) | beam.Reshuffle()


@carries_errors
def _read_queries(uri: str, token: str) -> pa.Table:
    table = read_day_file(uri)
    advance(token, 1)
    return table


@carries_errors
def _read_shown(uri: str, token: str) -> pa.Table:
    table = sum_positions(read_day_file(uri))
    advance(token, 1)
    return table


@carries_errors
def _read_table(uri: str) -> pa.Table:
    return read_table(uri)


def _join_titles(bucket: Bucket) -> Iterator[Any]:
    _, tables = bucket
    rows, num_clicked, num_titled = join_titles(tables["shown"], tables["titled"])
    yield rows
    yield TaggedOutput("tally", Tally(counts={"clicked_documents": num_clicked, "titled_documents": num_titled}))


def _pair(bucket: Bucket, config: BuildConfig) -> Iterator[Any]:
    _, tables = bucket
    pairs, tally = click_pairs(
        tables["queries"],
        tables["shown"],
        tables["judged"]["query"].combine_chunks(),
        k=config.k,
        split_salt=config.split_salt,
        dev_share=config.dev_share,
    )
    yield pairs
    yield TaggedOutput("tally", tally)
    for split, rows in _splits(pairs):
        yield TaggedOutput("size", (split, len(rows)))


def _by_shard(pairs: pa.Table, pairs_per_shard: int, num_pairs: dict[str, int]) -> Iterator[tuple[str, bytes]]:
    """(shard, its pairs): as many shards as the pairs of a split fill, all pairs of a query in one."""
    for split, rows in _splits(pairs):
        num_shards = 1 << max(0, (num_pairs[split] - 1) // pairs_per_shard).bit_length()
        for shard, rows_of_shard in split_by_bucket(rows, "query", num_shards):
            yield f"{split}-{shard:05d}", to_ipc(rows_of_shard)


def _splits(pairs: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    for split, of_split in (("train", pc.invert(pairs["dev"])), ("dev", pairs["dev"])):
        rows = pairs.filter(of_split)
        if len(rows):
            yield split, rows


@carries_errors
def _write_shard(shard: tuple[str, Iterable[bytes]], plan: Plan) -> FolderMade:
    name, records = shard
    with explained(plan.scratch):
        return write_shard(
            from_ipc(records),
            _read_pool(plan.pool),
            storage.join(plan.scratch, f"{name}-{uuid.uuid4().hex}"),  # a bundle may run twice
            name,
            num_negatives=plan.config.num_negatives,
            seed=plan.config.seed,
            table_rows=plan.config.table_rows,
        )


@lru_cache(maxsize=1)
def _read_pool(uri: str) -> pa.Table:
    return read_table(uri)


def _on_one_key(result: Tally | FolderMade) -> tuple[str, Tally | FolderMade]:
    return "build", result


@carries_errors
def _commit(gathered: tuple[str, Iterable[Tally | FolderMade]], commit: Commit) -> None:
    with explained(commit.folder):
        commit_build(list(gathered[1]), commit)
