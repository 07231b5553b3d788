"""Job 4, build-labelled: labelled lines -> labelled shards, split so that no sentence is on both sides.

    lines -> exchange by their texts -> one row each: repeats and conflicts dropped
          -> ids and labels alone, as one bucket -> which sentences are held out, which classes there are
          -> rows of each split -> exchange by shard -> words, texts, labelled rows
          -> one last step: names for the folders that count, the ledger, the manifest

Reads files through the sources of ingest; writes schemas.labelled to STORE/build-labelled/DIGEST. Whatever the runner,
the number of workers, the file names and the order of the lines, the logical rows are the same.
"""

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pvalue import AsIter, TaggedOutput

from beam_jobs.build.build_job import Parts
from beam_jobs.build.shard_writer import FolderMade, index_words, joined_fields
from beam_jobs.compiled.hashes import row_digest
from beam_jobs.engine.arrow_files import Record, explained, get, map_table, put, write_table
from beam_jobs.engine.beam_engine import carries_errors
from beam_jobs.engine.exchange import Exchange, bucket_of
from beam_jobs.engine.progress import advance
from beam_jobs.engine.tally import Tally
from beam_jobs.labelled.labelled_commit import MAX_REJECTS, LabelledCommit, Rejects, commit_labelled
from beam_jobs.labelled.labelled_config import LabelledConfig, labelled_source
from beam_jobs.labelled.labelled_rows import KEYED, distinct, keyed
from beam_jobs.labelled.labelled_split import SplitDecision, decide, is_held_out
from beam_jobs.sources.read_lines import Unit
from beam_jobs.sources.source import Source
from schemas import storage
from schemas.labelled import LabelKind, labelled_schema

READING = "reading labelled lines (bytes)"
IDS = pa.schema([pa.field("sentence", pa.uint64(), nullable=False)])
SHARDED = KEYED.append(pa.field("shard", pa.int64(), nullable=False))
Result = Tally | Rejects | SplitDecision | FolderMade


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """What one worker reads in one go; `dev`: of the dev file."""

    unit: Unit
    dev: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledPlan:
    """What the job reads, and how it goes about it; `made` and `scratch` as in build_job."""

    parts: tuple[Part, ...]
    stored_bytes: int
    has_dev_file: bool
    made: str
    scratch: str | None
    num_buckets: int
    config: LabelledConfig
    told: str  # progress

    @property
    def steps(self) -> dict[str, int]:
        """The totals of what `told` is told."""
        return {READING: self.stored_bytes}


def labelled_pipeline(pipeline: beam.Pipeline, plan: LabelledPlan, commit: LabelledCommit) -> None:
    """The job, wired: distinct rows, the decision on the split, shards, commit."""
    lines = (
        pipeline
        | "What to read" >> Parts(plan.parts)
        | "Read lines" >> beam.FlatMap(_read, labelled_source(plan.config), plan).with_outputs("result", main="rows")
    )
    rows = (
        lines.rows
        | Exchange("By texts", "key", plan.num_buckets, plan.scratch)
        | "Drop repeats" >> beam.FlatMap(_distinct, plan.scratch).with_outputs("ids", "result", main="records")
    )
    decided = (
        rows.ids | Exchange("As one", "bucket", None, plan.scratch) | "Decide the split" >> beam.Map(_decide, plan)
    )
    split = rows.records | "Split" >> beam.FlatMap(_split, AsIter(decided), plan).with_outputs("result", main="rows")
    shards = (
        split.rows
        | Exchange("By shard", "shard", None, plan.scratch)
        | "Write shards" >> beam.Map(_write_shard, AsIter(decided), plan)
    )
    # As in build: only what reached the last step counts, whatever else retried bundles left behind.
    started = pipeline | "Start" >> beam.Create([Tally()])
    _ = (
        (started, lines.result, rows.result, decided, split.result, shards)
        | "Results" >> beam.Flatten()
        | "On one key" >> beam.Map(_on_one_key)
        | "Gather" >> beam.GroupByKey()
        | "Commit" >> beam.Map(_commit, commit)
    )


@carries_errors
def _read(part: Part, source: Source, plan: LabelledPlan) -> Iterator[Any]:
    for block in source.read(part.unit):
        if block.rows.num_rows:
            yield keyed(block.rows, ordered=plan.config.ordered, dev=part.dev)
        yield TaggedOutput("result", Tally(lines=block.num_lines, fates=Counter(block.reject_reasons)))
        if block.reject_reasons:
            places = zip(block.reject_offsets.tolist(), block.reject_reasons, strict=True)
            found = [(part.unit.file, offset, reason) for offset, reason in places if reason.startswith("unreadable")]
            yield TaggedOutput("result", Rejects(places=tuple(found[:MAX_REJECTS])))
        advance(plan.told, READING, block.stored_bytes)


@carries_errors
def _distinct(bucket: tuple[int, pa.Table], scratch: str | None) -> Iterator[Any]:
    rows, fates = distinct(bucket[1])
    yield TaggedOutput("result", Tally(fates=fates))
    if not len(rows):
        return
    yield from put([rows], scratch)
    ids = rows.select(["first_id", "second_id", "dev", "label"])
    yield TaggedOutput("ids", ids.append_column("bucket", pa.array(np.zeros(len(ids), np.int64))))


@carries_errors
def _decide(bucket: tuple[int, pa.Table], plan: LabelledPlan) -> SplitDecision:
    held_out, decision = decide(bucket[1], plan.config, has_dev_file=plan.has_dev_file)
    with explained(plan.made):
        uri = write_table(pa.table([held_out], schema=IDS), plan.made, f"dev-sentences-{uuid.uuid4().hex}")
    return replace(decision, dev_sentences=uri)


@carries_errors
def _split(record: Record, decisions: Iterable[SplitDecision], plan: LabelledPlan) -> Iterator[Any]:
    (decision,), rows = decisions, get([record])
    first, second, of_file = (rows[name].to_numpy(zero_copy_only=False) for name in ("first_id", "second_id", "dev"))
    in_dev = is_held_out(first, second, _open_ids(decision.dev_sentences))
    is_dev = of_file if plan.has_dev_file else in_dev
    is_known = _is_known(rows["label"], decision) if plan.config.label == "class" else np.ones(len(rows), bool)
    is_shared, is_untrained = in_dev & ~is_dev, is_dev & ~is_known
    is_kept = ~(is_shared | is_untrained)
    fates = {
        "sentence_in_dev": int(is_shared.sum()),
        "label_untrained": int(is_untrained.sum()),
        "labelled_train": int((is_kept & ~is_dev).sum()),
        "labelled_dev": int((is_kept & is_dev).sum()),
    }
    yield TaggedOutput("result", Tally(fates=fates))
    shard = np.zeros(len(rows), np.int64)
    for split, at in (("train", np.flatnonzero(~is_dev)), ("dev", np.flatnonzero(is_dev))):
        num_shards = 1 << max(0, (decision.num_rows[split] - 1) // plan.config.rows_per_shard).bit_length()
        shard[at] = 2 * bucket_of(rows["key"].take(at), num_shards) + (split == "dev")
    yield pa.table([*rows.columns, pa.array(shard)], schema=SHARDED).filter(pa.array(is_kept))


def _is_known(labels: pa.ChunkedArray, decision: SplitDecision) -> np.ndarray:
    known = set(decision.classes)
    return np.array([label in known for label in labels.to_pylist()], bool)


@carries_errors
def _write_shard(shard: tuple[int, pa.Table], decisions: Iterable[SplitDecision], plan: LabelledPlan) -> FolderMade:
    (decision,), (number, rows) = decisions, shard
    name = f"{'dev' if number % 2 else 'train'}-{number // 2:05d}"
    with explained(plan.made):
        return write_labelled_shard(
            rows,
            storage.join(plan.made, f"{name}-{uuid.uuid4().hex}"),  # a bundle may run twice
            name,
            label=plan.config.label,
            classes=decision.classes,
            table_rows=plan.config.table_rows,
        )


@lru_cache(maxsize=1)
def _open_ids(uri: str) -> np.ndarray:
    return map_table(uri)["sentence"].to_numpy()


def _on_one_key(result: Result) -> tuple[str, Result]:
    return "build-labelled", result


@carries_errors
def _commit(gathered: tuple[str, Iterable[Result]], commit: LabelledCommit) -> None:
    with explained(commit.folder):
        commit_labelled(list(gathered[1]), commit)


# Labelled rows -> the files of a shard (schemas.labelled), and the digest of its logical rows.


def write_labelled_shard(
    rows: pa.Table, folder: str, name: str, *, label: LabelKind, classes: tuple[str, ...], table_rows: int
) -> FolderMade:
    """Write the words, texts and labelled rows of one shard below `folder`, in the order of the rows' keys.

    rows: labelled_rows.KEYED, all of one split, each label one of `classes` or a number. What is written
    depends on these rows alone, not on their order.
    """
    is_pairs = rows["second"].null_count == 0
    sentences = ["first", "second"] if is_pairs else ["first"]
    order = np.lexsort([*(rows[each].to_numpy() for each in reversed(sentences)), rows["key"].to_numpy()])
    rows = rows.take(order).combine_chunks()
    every_text = pa.concat_arrays([chunk for each in sentences for chunk in rows[each].chunks])
    encoded = every_text.dictionary_encode()
    words, texts = index_words(encoded.dictionary, table_rows)
    names = rows["label"].to_pylist()
    if label == "class":
        number = {each: at for at, each in enumerate(classes)}
        labels = pa.array([number[each] for each in names], pa.int32())
    else:
        labels = pa.array(list(map(float, names)), pa.float64())
    schema = labelled_schema("pairs" if is_pairs else "texts", label)
    places = np.split(encoded.indices.to_numpy(), len(sentences))
    table = pa.table([*(pa.array(each, pa.int32()) for each in places), labels], schema=schema)
    for name_of_table, content in (("words", words), ("texts", texts), ("labelled", table)):
        write_table(content, folder, name_of_table)
    split = name.partition("-")[0]
    logical = joined_fields(split, *(rows[each] for each in (*sentences, "label")))
    return FolderMade(
        folder=folder,
        name=name,
        counts={"rows": len(table), "texts": len(texts), "words": len(words)},
        logical_digest=row_digest(logical),
    )
