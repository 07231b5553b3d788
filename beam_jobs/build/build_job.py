"""Job 2, build: days + documents -> shards.

    documents -> exchange by title -> the first document of each title -> the pool of negatives, numbered
              -> exchange by document, with the titles that buckets of queries ask for -.
    exposures ---------------------------------------------------------------------------+-> exchange by query
    people of queries, judged queries ---------------------------------------------------'
              -> content filters, privacy gate, split, pairs -> exchange by shard -> negatives, words, texts, pairs
              -> one last step: names for the folders that count, the ledger, the manifest

Reads schemas.day from the ingests of a window and the documents file; writes schemas.shard to STORE/build/DIGEST.
Whatever the runner, the number of workers and the cut of the days, the logical rows are the same.
"""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import AsDict, AsIter, AsSingleton, TaggedOutput

from beam_jobs.build import titles
from beam_jobs.build.build_commit import BuildCommit, commit_build
from beam_jobs.build.build_config import BuildConfig
from beam_jobs.build.click_pairs import CLICK_PAIRS, click_pairs
from beam_jobs.build.shard_writer import FolderMade, write_pool, write_shard
from beam_jobs.build.titles import DocumentsPart, read_documents_part
from beam_jobs.engine.arrow_files import Record, explained, get, map_table, put, write_table
from beam_jobs.engine.beam_engine import carries_errors
from beam_jobs.engine.exchange import Bucket, Exchange, JointExchange, Side, bucket_of
from beam_jobs.engine.progress import advance
from beam_jobs.engine.tally import Tally
from beam_jobs.ingest.days import DayFile, read_day_file
from schemas import storage
from schemas.day import QUERIES
from schemas.documents import repeated_ids
from schemas.judgments import read_queries
from schemas.words import normalise

READING, PAIRING = "reading the days (files)", "pairing queries with titles (buckets)"
JUDGED = pa.schema([pa.field("query", pa.string(), nullable=False)])
# Pairs with the number of their shard: twice its place among those of its split, plus one for dev.
SHARDED = CLICK_PAIRS.append(pa.field("shard", pa.int64(), nullable=False))


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildPlan:
    """What the job reads, and how it goes about it.

    `made`: where workers write, under names of their own, until the last step chooses. `scratch`: where rows wait
    between two steps, or None for the runner's own shuffle (arrow_files).
    """

    queries: tuple[DayFile, ...]  # of day.QUERIES
    exposures: tuple[DayFile, ...]  # of day.EXPOSURES
    documents: str
    documents_parts: tuple[DocumentsPart, ...]
    judged_queries: str | None
    made: str
    scratch: str | None
    num_buckets: int
    config: BuildConfig
    adult_terms: tuple[str, ...]
    told: str  # progress

    @property
    def steps(self) -> dict[str, int]:
        """The totals of what `told` is told."""
        return {READING: len(self.queries) + len(self.exposures), PAIRING: self.num_buckets}


def shards_pipeline(pipeline: beam.Pipeline, plan: BuildPlan, commit: BuildCommit) -> None:
    """The job, wired: the pool, titles by document, pairs by query behind the gate, shards, commit."""
    num_buckets, scratch = plan.num_buckets, plan.scratch
    queries = pipeline | "Query files" >> Parts(plan.queries) | "Read queries" >> beam.Map(_read_queries, plan.told)
    shown = pipeline | "Exposure files" >> Parts(plan.exposures) | "Read exposures" >> beam.Map(_read_shown, plan.told)
    judged = pipeline | "Judged files" >> Parts(plan.judged_queries or ()) | "Read judged" >> beam.Map(_read_judged)

    documents = (
        pipeline
        | "Document files" >> Parts(plan.documents_parts)
        | "Read documents" >> beam.FlatMap(_read_documents).with_outputs("tally", main="rows")
    )
    grouped = (
        documents.rows
        | Exchange("By title", "title", num_buckets, scratch)
        | "Find first of title" >> beam.FlatMap(_group_by_title, scratch).with_outputs("ranges", main="records")
    )
    num_in_range = grouped.ranges | "Count documents" >> beam.CombineGlobally(_add_ranges)
    pool = (
        grouped.records
        | "Choose for the pool" >> beam.Map(_pool_candidates, AsSingleton(num_in_range), plan.config.pool_size)
        | Exchange("As one pool", "hash", 1, scratch)
        | "Write the pool" >> beam.FlatMap(_write_pool, plan).with_outputs("uri", main="made")
    )
    titled = grouped.records | "Number by the pool" >> beam.Map(_find_pool_rows, AsIter(pool.uri))

    by_document = {
        "wanted": Side(key="document_id", schema=titles.WANTED),
        "titled": Side(key="document_id", schema=titles.TITLED),
    }
    answered = (
        {"wanted": shown | "Ask for titles" >> beam.Map(_wanted_titles, num_buckets), "titled": titled}
        | JointExchange("By document", by_document, num_buckets, scratch)
        | "Answer with titles" >> beam.FlatMap(_answer_titles, plan.documents).with_outputs("tally", main="rows")
    )

    by_query = {
        "queries": Side(key="query", schema=QUERIES),
        "shown": Side(key="query", schema=titles.SHOWN),
        "judged": Side(key="query", schema=JUDGED),
        "answered": Side(key="bucket", schema=titles.ANSWERED, holds_bucket=True),
    }
    pairs = (
        {"queries": queries, "shown": shown, "judged": judged, "answered": answered.rows}
        | JointExchange("By query", by_query, num_buckets, scratch)
        | "Pair behind the gate"
        >> beam.FlatMap(_pair, plan.config, plan.adult_terms, scratch, plan.told).with_outputs(
            "tally", "size", main="records"
        )
    )

    num_pairs = pairs.size | "Count pairs" >> beam.CombinePerKey(sum)
    shards = (
        pairs.records
        | "Number by shard" >> beam.Map(_number_by_shard, plan.config.pairs_per_shard, AsDict(num_pairs))
        | Exchange("By shard", "shard", None, scratch)
        | "Write shards" >> beam.Map(_write_shard, plan, AsIter(pool.uri))
    )

    # The last step is one element: only the results that reached it count, whatever else retried bundles left behind.
    started = pipeline | "Start" >> beam.Create([Tally()])
    _ = (
        (started, documents.tally, answered.tally, pairs.tally, pool.made, shards)
        | "Results" >> beam.Flatten()
        | "On one key" >> beam.Map(_on_one_key)
        | "Gather" >> beam.GroupByKey()
        | "Commit" >> beam.Map(_commit, commit)
    )


class Parts(beam.PTransform):
    """Parts of the input as elements, spread over the workers."""

    def __init__(self, parts: str | Sequence[Any]) -> None:
        super().__init__()
        self._parts = [parts] if isinstance(parts, str) else list(parts)

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        return pipeline | beam.Create(self._parts) | beam.Reshuffle()


@carries_errors
def _read_queries(file: DayFile, told: str) -> pa.Table:
    table = read_day_file(file)
    advance(told, READING, 1)
    return table


@carries_errors
def _read_shown(file: DayFile, told: str) -> pa.Table:
    table = titles.sum_positions(read_day_file(file))
    advance(told, READING, 1)
    return table


@carries_errors
def _read_judged(uri: str) -> pa.Table:
    judged = sorted({normalise(text) for text in read_queries(uri).values()})
    return pa.table([judged], schema=JUDGED)


@carries_errors
def _read_documents(part: DocumentsPart) -> Iterator[Any]:
    for table in read_documents_part(part):
        hashed = titles.hashed_documents(table)
        yield hashed
        yield TaggedOutput("tally", Tally(counts={"documents": len(table), "documents_with_title": len(hashed)}))


@carries_errors
def _group_by_title(bucket: tuple[int, pa.Table], scratch: str | None) -> Iterator[Any]:
    grouped = titles.group_by_title(bucket[1])
    yield from put([grouped], scratch)
    yield TaggedOutput("ranges", titles.count_hash_ranges(grouped))


def _add_ranges(counts: Iterable[np.ndarray]) -> np.ndarray:
    return sum(counts, np.zeros(titles.HASH_RANGES, np.int64))


@carries_errors
def _pool_candidates(grouped: Record, num_in_range: np.ndarray, pool_size: int) -> pa.Table:
    return titles.pool_candidates(get([grouped]), num_in_range, pool_size)


@carries_errors
def _write_pool(bucket: tuple[int, pa.Table], plan: BuildPlan) -> Iterator[Any]:
    pool, attempt = titles.pool_of(bucket[1], plan.config.pool_size), uuid.uuid4().hex
    with explained(plan.made):
        yield TaggedOutput("uri", write_table(pool, plan.made, f"pool-rows-{attempt}"))
        yield write_pool(pool, storage.join(plan.made, f"pool-{attempt}"), "pool", table_rows=plan.config.table_rows)


@carries_errors
def _find_pool_rows(grouped: Record, pool: Iterable[str]) -> pa.Table:
    return titles.find_pool_rows(get([grouped]), _open_pool(*pool))


def _wanted_titles(shown: pa.Table, num_buckets: int) -> pa.Table:
    return titles.wanted_titles(shown, bucket_of(shown["query"], num_buckets))


@carries_errors
def _answer_titles(bucket: Bucket, documents: str) -> Iterator[Any]:
    _, tables = bucket
    if error := repeated_ids(documents, tables["titled"]["document_id"], is_all=False):
        raise error
    rows, num_clicked, num_titled = titles.answer_titles(tables["wanted"], tables["titled"])
    yield rows
    yield TaggedOutput("tally", Tally(counts={"clicked_documents": num_clicked, "titled_documents": num_titled}))


def _pair(
    bucket: Bucket, config: BuildConfig, adult_terms: tuple[str, ...], scratch: str | None, told: str
) -> Iterator[Any]:
    _, tables = bucket
    pairs, tally = click_pairs(
        tables["queries"],
        titles.title_rows(tables["shown"], tables["answered"]),
        tables["judged"]["query"].combine_chunks(),
        k=config.k,
        split_salt=config.split_salt,
        dev_share=config.dev_share,
        adult_terms=adult_terms,
    )
    yield from put([pairs], scratch)
    yield TaggedOutput("tally", tally)
    num_dev = pc.sum(pairs["dev"]).as_py() or 0
    for split, number in (("train", len(pairs) - num_dev), ("dev", num_dev)):
        if number:
            yield TaggedOutput("size", (split, number))
    advance(told, PAIRING, 1)


@carries_errors
def _number_by_shard(record: Record, pairs_per_shard: int, num_pairs: dict[str, int]) -> pa.Table:
    """SHARDED: as many shards as the pairs of a split fill, all pairs of a query in one."""
    pairs = get([record])
    is_dev = pairs["dev"].to_numpy()
    shard = np.zeros(len(pairs), np.int64)
    for split, rows in (("train", np.flatnonzero(~is_dev)), ("dev", np.flatnonzero(is_dev))):
        if len(rows):
            num_shards = 1 << max(0, (num_pairs[split] - 1) // pairs_per_shard).bit_length()
            shard[rows] = 2 * bucket_of(pairs["query"].take(rows), num_shards) + (split == "dev")
    return pa.table([*pairs.columns, pa.array(shard)], schema=SHARDED)


@carries_errors
def _write_shard(shard: tuple[int, pa.Table], plan: BuildPlan, pool: Iterable[str]) -> FolderMade:
    number, pairs = shard
    name = f"{'dev' if number % 2 else 'train'}-{number // 2:05d}"
    with explained(plan.made):
        return write_shard(
            pairs,
            _open_pool(*pool),
            storage.join(plan.made, f"{name}-{uuid.uuid4().hex}"),  # a bundle may run twice
            name,
            num_negatives=plan.config.num_negatives,
            seed=plan.config.seed,
            table_rows=plan.config.table_rows,
        )


@lru_cache(maxsize=1)
def _open_pool(uri: str) -> pa.Table:
    return map_table(uri).combine_chunks()


def _on_one_key(result: Tally | FolderMade) -> tuple[str, Tally | FolderMade]:
    return "build", result


@carries_errors
def _commit(gathered: tuple[str, Iterable[Tally | FolderMade]], commit: BuildCommit) -> None:
    with explained(commit.folder):
        commit_build(list(gathered[1]), commit)
