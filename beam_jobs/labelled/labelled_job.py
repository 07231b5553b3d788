"""Job 4, build-labelled: labelled lines -> labelled shards, split so that no sentence is on both sides.

    lines -> exchange by their texts -> one row each: repeats and conflicts dropped
          -> ids and labels alone, as one bucket -> which sentences are held out, which classes there are
          -> rows of each split -> exchange by shard -> words, texts, labelled rows
          -> one last step: names for the folders that count, the ledger, the manifest

Reads files through the sources of ingest; writes schemas.shard to STORE/build-labelled/DIGEST. The logical rows do not
depend on the runner, the number of workers, file names or the order of lines.
"""

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import AsIter, TaggedOutput

from clicktower.beam_jobs.build.click_shards import index_words, joined_fields
from clicktower.beam_jobs.compiled.log_library import row_digest
from clicktower.beam_jobs.engine.arrow_files import (
    Record,
    get,
    map_table,
    put,
    write_table,
    write_tables,
    writing_errors,
)
from clicktower.beam_jobs.engine.beam_engine import relay_stage_errors
from clicktower.beam_jobs.engine.beam_stage import Attempt, FolderMade, Tally, add_up, advance, move_to_final_names
from clicktower.beam_jobs.engine.exchange import CommitAll, Exchange, bucket_of, read_parts
from clicktower.beam_jobs.labelled import labelled_rows
from clicktower.beam_jobs.sources.read_lines import BLANK
from clicktower.beam_jobs.sources.source import Source
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.labelled_shard import LABELLED_CATALOGUE, LABELLED_VERSION, labelled_schema
from clicktower.schemas.ledger import FATES, Ledger
from clicktower.schemas.manifest import Outcome, to_bytes
from clicktower.schemas.search_log import not_null
from clicktower.schemas.text_contract import CONTRACT_VERSION, UNICODE_VERSION

READING = "reading labelled lines (bytes)"
IDS = not_null(sentence=pa.uint64())
SHARDED = labelled_rows.KEYED.append(pa.field("shard", pa.int64(), nullable=False))
NUM_EXAMPLES, MAX_REJECTS = 5, 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Rejects:
    """Some unreadable lines: file, offset in it, fate."""

    places: tuple[tuple[str, int, str], ...]


Result = Tally | Rejects | labelled_rows.SplitDecision | FolderMade


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledJob:
    """One run of the pipeline: its inputs, and what its last step needs."""

    attempt: Attempt
    config: labelled_rows.LabelledConfig
    parts: tuple[labelled_rows.LabelledPart, ...]
    stored_bytes: int
    has_dev_file: bool

    @property
    def steps(self) -> dict[str, int]:
        """The total of the one step."""
        return {READING: self.stored_bytes}

    def build(self, pipeline: beam.Pipeline) -> None:
        """The whole graph: distinct rows, the decision on the split, shards, commit."""
        attempt = self.attempt
        lines = (
            pipeline
            | "What to read" >> read_parts(self.parts)
            | "Read lines"
            >> beam.FlatMap(_read, labelled_rows.labelled_source(self.config), self).with_outputs("result", main="rows")
        )
        rows = (
            lines.rows
            | Exchange("By texts", "key", attempt.num_buckets, attempt.scratch)
            | "Drop repeats" >> beam.FlatMap(_distinct, attempt.scratch).with_outputs("ids", "result", main="records")
        )
        decided = (
            rows.ids
            | Exchange("As one", "bucket", None, attempt.scratch)
            | "Decide the split" >> beam.Map(_decide, self)
        )
        split = rows.records | "Split" >> beam.FlatMap(_split, AsIter(decided), self).with_outputs(
            "result", main="rows"
        )
        shards = (
            split.rows
            | Exchange("By shard", "shard", None, attempt.scratch)
            | "Write shards" >> beam.Map(_write_shard, AsIter(decided), self)
        )
        results = (lines.result, rows.result, decided, split.result, shards)
        _ = results | CommitAll(self.commit, attempt.folder)

    def commit(self, results: Sequence[Result]) -> None:
        """Move the shards to their final names, write the catalogue and, last, the manifest.

        It can run again after a failure at any point. Raises StageError if too many lines are unreadable, none is left,
        there is nothing to train on, to hold out or to distinguish (`require_usable`), or the ledger does not add up.
        """
        if self.attempt.has_committed():
            return
        tally = add_up(result for result in results if isinstance(result, Tally))
        ledger = Ledger(total=tally.lines, lines=tally.fates)
        rejects = sorted(place for result in results if isinstance(result, Rejects) for place in result.places)
        decision = next((result for result in results if isinstance(result, labelled_rows.SplitDecision)), None)
        _require_readable(ledger, rejects, self)
        if decision is None:
            raise StageError(
                f"Of {ledger.total:,} labelled lines {_describe_fates(ledger, 'dropped')}, and none is left.",
                "Look at the files and at which columns are named.",
            )
        labelled_rows.require_usable(decision, self.config, has_dev_file=self.has_dev_file)
        folders = {result.name: result for result in results if isinstance(result, FolderMade)}
        shards = [folders[name] for name in sorted(folders)]
        attempt = self.attempt.folder
        digest = move_to_final_names(shards, attempt)
        listed = [dict(zip(("file", "offset", "fate"), place, strict=True)) for place in rejects[:MAX_REJECTS]]
        for name, content in ((LABELLED_CATALOGUE, _catalogue(shards, decision, self)), ("rejects.json", listed)):
            storage.write_atomic(storage.join(attempt, name), to_bytes(content))
        num_rows = Counter[str]()
        for shard in shards:
            num_rows[shard.split] += shard.counts["rows"]
        self.attempt.commit(
            Outcome(
                counts={
                    "train_rows": num_rows["train"],
                    "dev_rows": num_rows["dev"],
                    "classes": len(decision.classes),
                    "shards": len(shards),
                    **decision.counts,
                },
                metrics={
                    "unit": self.config.mapping.unit,
                    "label": self.config.label,
                    "classes": list(decision.classes),
                },
                ledger=ledger,
                logical_digest=digest.hexdigest(),
            )
        )


@relay_stage_errors
def _read(part: labelled_rows.LabelledPart, source: Source, job: LabelledJob) -> Iterator[Any]:
    for block in source.read(part.unit):
        if block.rows.num_rows:
            yield labelled_rows.add_keys(block.rows, ordered=job.config.ordered, dev=part.dev)
        fates = {**Counter(block.reject_reasons), BLANK: block.num_blank_lines}
        yield TaggedOutput("result", Tally(lines=block.num_lines, fates=fates))
        if block.reject_reasons:
            places = zip(block.reject_offsets.tolist(), block.reject_reasons, strict=True)
            rejected = [
                (part.unit.file, offset, reason) for offset, reason in places if reason.startswith("unreadable")
            ]
            yield TaggedOutput("result", Rejects(places=tuple(rejected[:MAX_REJECTS])))
        advance(job.attempt.notes, READING, block.stored_bytes)


@relay_stage_errors
def _distinct(bucket: tuple[int, pa.Table], scratch: str | None) -> Iterator[Any]:
    rows, fates = labelled_rows.distinct(bucket[1])
    yield TaggedOutput("result", Tally(fates=fates))
    if not len(rows):
        return
    yield from put([rows], scratch)
    ids = rows.select(["first_id", "second_id", "dev", "label"])
    yield TaggedOutput("ids", ids.append_column("bucket", pa.array(np.zeros(len(ids), np.int64))))


@relay_stage_errors
def _decide(bucket: tuple[int, pa.Table], job: LabelledJob) -> labelled_rows.SplitDecision:
    held_out, decision = labelled_rows.decide(bucket[1], job.config, has_dev_file=job.has_dev_file)
    with writing_errors(job.attempt.work_folder):
        uri = write_table(
            pa.table([held_out], schema=IDS), job.attempt.work_folder, f"dev-sentences-{uuid.uuid4().hex}"
        )
    return replace(decision, dev_sentences=uri)


@relay_stage_errors
def _split(record: Record, decisions: Iterable[labelled_rows.SplitDecision], job: LabelledJob) -> Iterator[Any]:
    (decision,), rows = decisions, get([record])
    first, second, of_file = (rows[name].to_numpy(zero_copy_only=False) for name in ("first_id", "second_id", "dev"))
    in_dev = labelled_rows.is_held_out(first, second, _open_ids(decision.dev_sentences))
    is_dev = of_file if job.has_dev_file else in_dev
    is_shared = in_dev & ~is_dev & (not (job.has_dev_file and job.config.keep_shared))
    is_untrained = np.zeros(len(rows), bool)
    if job.config.label == "class":
        classes = pa.array(decision.classes, pa.string())
        is_untrained = is_dev & ~pc.is_in(rows["label"], value_set=classes).to_numpy()
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
        num_shards = 1 << max(0, (decision.num_rows[split] - 1) // job.config.rows_per_shard).bit_length()
        shard[at] = 2 * bucket_of(rows["key"].take(at), num_shards) + (split == "dev")
    yield pa.table([*rows.columns, pa.array(shard)], schema=SHARDED).filter(pa.array(is_kept))


@relay_stage_errors
def _write_shard(
    shard: tuple[int, pa.Table], decisions: Iterable[labelled_rows.SplitDecision], job: LabelledJob
) -> FolderMade:
    """Write the words, texts and labelled rows of one shard, in the order of the rows' keys, for any order of
    arrival.
    """
    (decision,), (number, rows) = decisions, shard
    split = "dev" if number % 2 else "train"
    name = f"{split}-{number // 2:05d}"
    is_pairs = rows["second"].null_count == 0
    sentences = ["first", "second"] if is_pairs else ["first"]
    order = np.lexsort([*(rows[each].to_numpy() for each in reversed(sentences)), rows["key"].to_numpy()])
    rows = rows.take(order).combine_chunks()
    every_text = pa.concat_arrays([chunk for each in sentences for chunk in rows[each].chunks])
    encoded = every_text.dictionary_encode()
    words, texts = index_words(encoded.dictionary, job.config.table_rows)
    names = rows["label"].to_pylist()
    if job.config.label == "class":
        number_of = {each: at for at, each in enumerate(decision.classes)}
        labels = pa.array([number_of[each] for each in names], pa.int32())
    else:
        labels = pa.array(list(map(float, names)), pa.float64())
    schema = labelled_schema("pairs" if is_pairs else "texts", job.config.label)
    places = np.split(encoded.indices.to_numpy(), len(sentences))
    table = pa.table([*(pa.array(each, pa.int32()) for each in places), labels], schema=schema)
    folder = storage.join(job.attempt.work_folder, f"{name}-{uuid.uuid4().hex}")  # a bundle may run twice
    with writing_errors(job.attempt.work_folder):
        files = write_tables({"words": words, "texts": texts, "labelled": table}, folder)
    return FolderMade(
        folder=folder,
        name=name,
        files=files,
        counts={"rows": len(table), "texts": len(texts), "words": len(words)},
        logical_digest=row_digest(joined_fields(split, *(rows[each] for each in (*sentences, "label")))),
    )


@lru_cache(maxsize=1)
def _open_ids(uri: str) -> np.ndarray:
    return map_table(uri)["sentence"].to_numpy()


def _catalogue(shards: Sequence[FolderMade], decision: labelled_rows.SplitDecision, job: LabelledJob) -> dict:
    config = job.config
    split = "dev file" if job.has_dev_file else "keyed hash of components of sentences"
    return {
        "schema_version": LABELLED_VERSION,
        "text_contract": CONTRACT_VERSION,
        "unicode": UNICODE_VERSION,
        "table_rows": config.table_rows,
        "unit": job.config.mapping.unit,
        **{name: getattr(config, name) for name in ("label", "lowest", "highest", "ordered")},
        "classes": list(decision.classes),
        "split": {"by": split, "dev_share": config.dev_share, "split_salt": config.split_salt},
        "shards": [{"name": shard.name, "split": shard.split, **shard.counts} for shard in shards],
    }


def _require_readable(ledger: Ledger, rejects: Sequence[tuple[str, int, str]], job: LabelledJob) -> None:
    if not ledger.total:
        raise StageError("The files have no labelled line.", "Give a file with at least one line below its header.")
    share = job.config.max_unreadable_share
    if ledger.of_kind("unreadable") <= share * ledger.total:
        return
    places = ", ".join(f"{file}:{offset}" for file, offset, _ in rejects[:NUM_EXAMPLES])
    raise StageError(
        f"Of {ledger.total:,} labelled lines {_describe_fates(ledger, 'unreadable')}, for example at {places}"
        f" (file:byte); at most {share:.1%} may be. Nothing was kept.",
        "Look at these lines and at which columns are named; if you can spare them, raise max_unreadable_share.",
    )


def _describe_fates(ledger: Ledger, kind: str) -> str:
    """The fates of a kind with their lines, in words."""
    counts = sorted(((n, fate) for fate, n in ledger.lines.items() if FATES[fate][0] == kind), reverse=True)
    return ", ".join(f"{n:,} have the fate '{FATES[fate][1]}'" for n, fate in counts) or f"none was {kind}"
