"""Job 2, build: days + documents -> shards.

    documents -> exchange by title -> the first document of each title -> numbered, as many as the pool may have
              -> exchange by document, with the titles that buckets of queries ask for -.
    exposures ---------------------------------------------------------------------------+-> exchange by query
    people of queries -------------------------------------------------------------------'
              -> content filters, judged queries, privacy gate, split, pairs
              -> the pool of negatives: all numbered documents, or those that training pairs clicked -.
              -> exchange by shard -> negatives from the pool, words, texts <--------------------------'
              -> one last step: names for the folders that count, the ledger, the manifest

Reads the days of a window (schemas.search_log) and the documents file; writes schemas.shard to STORE/build/DIGEST. The
logical rows do not depend on the runner, the number of workers or how the days are split into files.
"""

import json
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import AsDict, AsIter, AsSingleton, TaggedOutput

from clicktower.beam_jobs.build import titles
from clicktower.beam_jobs.build.build_stage import BuildConfig
from clicktower.beam_jobs.build.click_shards import (
    CLICK_PAIRS,
    REPORTED_K,
    REPORTED_PAIR_K,
    click_pairs,
    write_pool,
    write_shard,
)
from clicktower.beam_jobs.build.titles import DocumentsPart, read_documents_part
from clicktower.beam_jobs.engine.arrow_files import Record, get, map_table, put, write_table, writing_errors
from clicktower.beam_jobs.engine.beam_engine import relay_stage_errors
from clicktower.beam_jobs.engine.beam_stage import Attempt, FolderMade, Tally, add_up, advance, move_to_final_names
from clicktower.beam_jobs.engine.exchange import Bucket, CommitAll, Exchange, JointExchange, Side, bucket_of, read_parts
from clicktower.beam_jobs.ingest.days import DayFile, read_day_file
from clicktower.schemas import shard, storage
from clicktower.schemas.documents import (
    RowCounts,
    add_up_rows,
    mostly_unfit,
    no_title,
    repeated_ids,
    skipped_rows,
    unfit_rows,
)
from clicktower.schemas.judgments import read_queries
from clicktower.schemas.ledger import Ledger, continue_with
from clicktower.schemas.manifest import Outcome
from clicktower.schemas.search_log import CLICKERS, QUERIES
from clicktower.schemas.text_contract import CONTRACT_VERSION, UNICODE_VERSION, comparison_forms, normalise_column

READING, PAIRING = "reading the days (files)", "pairing queries with titles (buckets)"
# Pairs with the number of their shard: twice its index within its split, plus one for dev.
SHARDED = CLICK_PAIRS.append(pa.field("shard", pa.int64()))


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildJob:
    """One run of the pipeline: its inputs, and what its last step needs."""

    attempt: Attempt
    config: BuildConfig
    queries: tuple[DayFile, ...]  # of search_log.QUERIES
    exposures: tuple[DayFile, ...]  # of search_log.EXPOSURES
    documents: str
    documents_parts: tuple[DocumentsPart, ...]
    clickers: tuple[DayFile, ...]  # of search_log.CLICKERS; none if pair_k is 1
    judged_queries: str | None
    adult_terms: tuple[str, ...]
    ledger: Ledger  # of all days together
    labels: Mapping[str, Any]
    window: Mapping[str, Any]  # the dates that were read (days.OpenDays)

    @property
    def steps(self) -> dict[str, int]:
        """The totals of each step."""
        return {
            READING: len(self.queries) + len(self.exposures) + len(self.clickers),
            PAIRING: self.attempt.num_buckets,
        }

    def build(self, pipeline: beam.Pipeline) -> None:
        """The whole graph: the pool, titles by document, pairs by query behind the gate, shards, commit."""
        attempt, num_buckets, scratch = self.attempt, self.attempt.num_buckets, self.attempt.scratch
        queries = (
            pipeline
            | "Query files" >> read_parts(self.queries)
            | "Read queries" >> beam.Map(_read_day_rows, attempt.notes)
        )
        shown = (
            pipeline
            | "Exposure files" >> read_parts(self.exposures)
            | "Read exposures" >> beam.Map(_read_shown, attempt.notes)
        )
        judged = (
            pipeline
            | "Judged files" >> read_parts([self.judged_queries] if self.judged_queries else [])
            | "Read judged" >> beam.Map(_read_judged)
        )

        documents = (
            pipeline
            | "Document files" >> read_parts(self.documents_parts)
            | "Read documents" >> beam.FlatMap(_read_documents).with_outputs("tally", "counts", main="rows")
        )
        rows = documents.counts | "Count rows" >> beam.CombineGlobally(add_up_rows)
        grouped = (
            documents.rows
            | Exchange("By title", "title", num_buckets, scratch)
            | "Find first of title" >> beam.FlatMap(_group_by_title, scratch).with_outputs("ranges", main="records")
        )
        num_in_range = grouped.ranges | "Count documents" >> beam.CombineGlobally(_add_ranges)
        numbered = (
            grouped.records
            | "Choose for the pool" >> beam.Map(_pool_candidates, AsSingleton(num_in_range), self.config.pool_size)
            | Exchange("As one pool", "hash", 1, scratch)
            | "Number the pool" >> beam.Map(_number_pool, AsSingleton(rows), self)
        )
        titled = grouped.records | "Number by the pool" >> beam.Map(_find_pool_rows, AsIter(numbered))

        by_document = {
            "wanted": Side(key="document_id", schema=titles.WANTED),
            "titled": Side(key="document_id", schema=titles.TITLED),
        }
        answered = (
            {"wanted": shown | "Ask for titles" >> beam.Map(_wanted_titles, num_buckets), "titled": titled}
            | JointExchange("By document", by_document, num_buckets, scratch)
            | "Answer with titles" >> beam.FlatMap(_answer_titles, self.documents).with_outputs("tally", main="rows")
        )

        by_query = {
            "queries": Side(key="query", schema=QUERIES),
            "shown": Side(key="query", schema=titles.SHOWN),
            "answered": Side(key="bucket", schema=titles.ANSWERED, holds_bucket=True),
        }
        sides = {"queries": queries, "shown": shown, "answered": answered.rows}
        if self.clickers:
            by_query["clickers"] = Side(key="query", schema=CLICKERS)
            sides["clickers"] = (
                pipeline
                | "Clicker files" >> read_parts(self.clickers)
                | "Read clickers" >> beam.Map(_read_day_rows, attempt.notes)
            )
        pairs = (
            sides
            | JointExchange("By query", by_query, num_buckets, scratch)
            | "Pair behind the gate"
            >> beam.FlatMap(
                _pair, AsSingleton(judged, frozenset()), self.config, self.adult_terms, scratch, attempt.notes
            ).with_outputs("tally", "size", main="records")
        )

        clicked = None
        if self.config.pool == "clicked":
            from clicktower.beam_jobs.build.clicked_pool import rows_of_all

            clicked = rows_of_all(pairs.records)
        pool = numbered | "Write the pool" >> beam.Map(_write_pool, self, clicked)

        num_pairs = pairs.size | "Count pairs" >> beam.CombinePerKey(sum)
        shards = (
            pairs.records
            | "Number by shard" >> beam.Map(_number_by_shard, self.config.pairs_per_shard, AsDict(num_pairs))
            | Exchange("By shard", "shard", None, scratch)
            | "Write shards" >> beam.Map(_write_shard, self, AsIter(numbered), clicked)
        )

        results = (documents.tally, rows, answered.tally, pairs.tally, pool, shards)
        _ = results | CommitAll(partial(commit_build, job=self), attempt.folder)


@relay_stage_errors
def _read_day_rows(file: DayFile, notes: str) -> pa.Table:
    table = read_day_file(file)
    advance(notes, READING, 1)
    return table


@relay_stage_errors
def _read_shown(file: DayFile, notes: str) -> pa.Table:
    table = titles.sum_positions(read_day_file(file))
    advance(notes, READING, 1)
    return table


@relay_stage_errors
def _read_judged(uri: str) -> frozenset[str]:
    texts = normalise_column(pa.array(read_queries(uri).values(), pa.string()))
    return frozenset(comparison_forms(texts).to_pylist())


@relay_stage_errors
def _read_documents(part: DocumentsPart) -> Iterator[Any]:
    for block in read_documents_part(part):
        hashed = titles.hashed_documents(block.table)
        yield hashed
        counts = {"documents": len(block.table), "documents_with_title": len(hashed)}
        yield TaggedOutput("tally", Tally(counts=counts))
        yield TaggedOutput("counts", block.rows)


@relay_stage_errors
def _group_by_title(bucket: tuple[int, pa.Table], scratch: str | None) -> Iterator[Any]:
    grouped = titles.group_by_title(bucket[1])
    yield from put([grouped], scratch)
    yield TaggedOutput("ranges", titles.count_hash_ranges(grouped))


def _add_ranges(counts: Iterable[np.ndarray]) -> np.ndarray:
    return sum(counts, np.zeros(titles.HASH_RANGES, np.int64))


@relay_stage_errors
def _pool_candidates(grouped: Record, num_in_range: np.ndarray, pool_size: int) -> pa.Table:
    return titles.pool_candidates(get([grouped]), num_in_range, pool_size)


@relay_stage_errors
def _number_pool(bucket: tuple[int, pa.Table], rows: RowCounts, job: BuildJob) -> str:
    if error := mostly_unfit(job.documents, rows):
        raise error
    with writing_errors(job.attempt.work_folder):
        pool = titles.pool_of(bucket[1], job.config.pool_size)
        return write_table(pool, job.attempt.work_folder, f"pool-rows-{uuid.uuid4().hex}")


@relay_stage_errors
def _find_pool_rows(grouped: Record, numbered: Iterable[str]) -> pa.Table:
    return titles.find_pool_rows(get([grouped]), _numbered_documents(*numbered))


def _wanted_titles(shown: pa.Table, num_buckets: int) -> pa.Table:
    return titles.wanted_titles(shown, bucket_of(shown["query"], num_buckets))


@relay_stage_errors
def _answer_titles(bucket: Bucket, documents: str) -> Iterator[Any]:
    _, tables = bucket
    if error := repeated_ids(documents, tables["titled"]["document_id"], is_all=False):
        raise error
    rows, num_clicked, num_titled = titles.answer_titles(tables["wanted"], tables["titled"])
    yield rows
    yield TaggedOutput("tally", Tally(counts={"clicked_documents": num_clicked, "titled_documents": num_titled}))


def _pair(
    bucket: Bucket,
    judged: frozenset[str],
    config: BuildConfig,
    adult_terms: tuple[str, ...],
    scratch: str | None,
    notes: str,
) -> Iterator[Any]:
    _, tables = bucket
    pair_people = None
    if "clickers" in tables:
        from clicktower.beam_jobs.ingest.pair_people import title_clickers

        pair_people = title_clickers(tables["clickers"], tables["answered"])
    pairs, tally = click_pairs(
        tables["queries"],
        titles.title_rows(tables["shown"], tables["answered"]),
        judged,
        k=config.k,
        split_salt=config.split_salt,
        dev_share=config.dev_share,
        adult_terms=adult_terms,
        pair_k=config.pair_k,
        pair_people=pair_people,
    )
    yield from put([pairs], scratch)
    yield TaggedOutput("tally", tally)
    num_dev = pc.sum(pairs["dev"]).as_py() or 0
    for split, number in (("train", len(pairs) - num_dev), ("dev", num_dev)):
        if number:
            yield TaggedOutput("size", (split, number))
    advance(notes, PAIRING, 1)


@relay_stage_errors
def _write_pool(numbered: str, job: BuildJob, clicked: np.ndarray | None) -> FolderMade:
    with writing_errors(job.attempt.work_folder):
        return write_pool(
            _open_pool([numbered], clicked),
            storage.join(job.attempt.work_folder, f"pool-{uuid.uuid4().hex}"),
            "pool",
            table_rows=job.config.table_rows,
        )


@relay_stage_errors
def _number_by_shard(record: Record, pairs_per_shard: int, num_pairs: dict[str, int]) -> pa.Table:
    """SHARDED: as many shards as the pairs of a split fill; all pairs of a query are in one."""
    pairs = get([record])
    is_dev = pairs["dev"].to_numpy()
    shard = np.zeros(len(pairs), np.int64)
    for split, rows in (("train", np.flatnonzero(~is_dev)), ("dev", np.flatnonzero(is_dev))):
        if len(rows):
            num_shards = 1 << max(0, (num_pairs[split] - 1) // pairs_per_shard).bit_length()
            shard[rows] = 2 * bucket_of(pairs["query"].take(rows), num_shards) + (split == "dev")
    return pa.table([*pairs.columns, pa.array(shard)], schema=SHARDED)


@relay_stage_errors
def _write_shard(
    shard: tuple[int, pa.Table], job: BuildJob, numbered: Iterable[str], clicked: np.ndarray | None
) -> FolderMade:
    number, pairs = shard
    if clicked is not None:
        from clicktower.beam_jobs.build.clicked_pool import exclude_in

        pairs = exclude_in(pairs, clicked)
    name = f"{'dev' if number % 2 else 'train'}-{number // 2:05d}"
    with writing_errors(job.attempt.work_folder):
        return write_shard(
            pairs,
            _open_pool(numbered, clicked),
            storage.join(job.attempt.work_folder, f"{name}-{uuid.uuid4().hex}"),  # a bundle may run twice
            name,
            num_negatives=job.config.num_negatives,
            seed=job.config.seed,
            table_rows=job.config.table_rows,
        )


def _open_pool(numbered: Iterable[str], clicked: np.ndarray | None) -> pa.Table:
    documents = _numbered_documents(*numbered)
    return documents if clicked is None else documents.take(pa.array(clicked))


@lru_cache(maxsize=1)
def _numbered_documents(uri: str) -> pa.Table:
    return map_table(uri).combine_chunks()


def commit_build(results: Sequence[Tally | FolderMade | RowCounts], job: BuildJob) -> None:
    """Move the shards to their final names, write the catalogue and, last, the manifest.

    It can run again after a failure at any point. Raises StageError if no document has a title, no click is usable,
    no training pair is left, or the ledger does not add up.
    """
    if job.attempt.has_committed():
        return
    tally = add_up(result for result in results if isinstance(result, Tally))
    counts, config = Counter(tally.counts), job.config
    folders = {result.name: result for result in results if isinstance(result, FolderMade)}
    pool = folders.pop("pool", None)
    shards = [folders[name] for name in sorted(folders)]
    rows = add_up_rows(result for result in results if isinstance(result, RowCounts))
    if pool is None:
        raise mostly_unfit(job.documents, rows) or no_title(job.documents, rows.documents)
    if counts["clicked_documents"] and not counts["titled_documents"]:
        from clicktower.beam_jobs.build.nothing_left import no_clicked_title

        raise no_clicked_title(counts["clicked_documents"])
    # What would remain at k and at other k: queries of the log, clicks on titled documents, and pairs. Judged queries
    # are not counted; k = 0 is the log without a gate.
    left = {
        k: {unit: counts[f"{unit}_at_{k}"] for unit in ("queries", "clicks", "pairs")}
        for k in sorted({*REPORTED_K, config.k})
    }
    left_at_pair_k = {
        pair_k: {unit: counts[f"{unit}_at_pair_{pair_k}"] for unit in ("clicks", "pairs")}
        for pair_k in sorted({*REPORTED_PAIR_K, config.pair_k} if config.pair_k > 1 else ())
    }
    of_splits = {
        f"{split}_{unit}": sum(entry.counts[unit] for entry in shards if entry.split == split)
        for unit in ("pairs", "queries")
        for split in ("train", "dev")
    }
    ledger = continue_with(job.ledger, tally.fates)
    if not of_splits["train_pairs"]:
        from clicktower.beam_jobs.build.nothing_left import nothing_to_train_on

        raise nothing_to_train_on(left, left_at_pair_k, ledger, k=config.k, pair_k=config.pair_k)

    attempt = job.attempt.folder
    digest = move_to_final_names((*shards, pool), attempt)
    named = ("table_rows", "num_negatives", "k", "split_salt", "dev_share", "seed")
    catalogue = {
        "schema_version": shard.SCHEMA_VERSION,
        "text_contract": CONTRACT_VERSION,
        "unicode": UNICODE_VERSION,
        **{name: getattr(config, name) for name in named},
        "pool": {"name": pool.name, **pool.counts},
        "shards": [{"name": entry.name, "split": entry.split, **entry.counts} for entry in shards],
        "labels": dict(job.labels),
    }
    storage.write_atomic(storage.join(attempt, "catalogue.json"), json.dumps(catalogue, indent=1).encode())
    ungated = left[0]
    at = left[config.k] | left_at_pair_k.get(config.pair_k, {})
    and_pair_k = f" and pair_k = {config.pair_k}" if config.pair_k > 1 else ""
    job.attempt.commit(
        Outcome(
            counts={
                **of_splits,
                "pool_documents": pool.counts["documents"],
                "documents": counts["documents"],
                "documents_without_title": counts["documents"] - counts["documents_with_title"],
                "clicked_documents": counts["clicked_documents"],
                "clicked_documents_without_title": counts["clicked_documents"] - counts["titled_documents"],
                "shards": len(shards),
                **({"documents_skipped": rows.skipped} if rows.skipped else {}),
            },
            metrics={
                "privacy_gate": f"k = {config.k}{and_pair_k} keeps {at['clicks']:,} of {ungated['clicks']:,}"
                f" clicks ({at['pairs']:,} of {ungated['pairs']:,} pairs; {at['queries']:,} of {ungated['queries']:,}"
                " queries)",
                "left_at_k": [{"k": k, **row} for k, row in left.items()],
                **(
                    {"left_at_pair_k": [{"pair_k": k, **row} for k, row in left_at_pair_k.items()]}
                    if and_pair_k
                    else {}
                ),
                "window": dict(job.window),
                **skipped_rows(unfit_rows(job.documents, rows)),
            },
            labels=job.labels,
            ledger=ledger,
            logical_digest=digest.hexdigest(),
        )
    )
