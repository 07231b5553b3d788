"""A bounded sample of a log, and what the functions of `ingest` and `build` make of it.

The sample is whole blocks from a few places, spread evenly over the files and over ranges of large plain ones; a
compressed file is read from its start. A small log is read whole.

Of a documents file it counts rows that are no documents, and texts that a program on the way spoilt.
"""

import secrets
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clicktower.beam_jobs.build.click_shards import REPORTED_K, REPORTED_PAIR_K, click_pairs
from clicktower.beam_jobs.build.titles import SHOWN_TITLED, plan_documents, read_documents_part, sum_positions
from clicktower.beam_jobs.engine.engine_options import with_local_workers
from clicktower.beam_jobs.ingest.bots import (
    BotRules,
    activity_of,
    client_statistics,
    detect_bots,
    find_crowds,
    merge_bots,
)
from clicktower.beam_jobs.ingest.day_rows import (
    CLICK,
    CONVERSION,
    IMPRESSION,
    SEARCH,
    SHARED_QUERY_IDS,
    aggregate_joined,
    count_lines,
    join_search_events,
    merge_bucket,
)
from clicktower.beam_jobs.ingest.pair_people import clickers_of, title_clickers
from clicktower.beam_jobs.ingest.person_key import KEY_BYTES
from clicktower.beam_jobs.sources.read_lines import BLANK, ReadingPlan, Unit
from clicktower.beam_jobs.sources.source import ParsedBlock, Source
from clicktower.schemas.documents import RowCounts, add_up_rows, mostly_unfit, repeated_ids, unfit_rows
from clicktower.schemas.errors import StageError
from clicktower.schemas.ledger import Ledger
from clicktower.schemas.search_log import COUNTS, DAY_FATES, EXPOSURES, KINDS, LOG_ROW, QUERIES, SIMULATED_APPLICATION
from clicktower.schemas.stage import Progress, silent
from clicktower.schemas.text_contract import normalise_column

_ENTITY = "&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,30});"
_REPLACEMENT = "\ufffd"  # what a decoder writes for bytes that are no letter


SAMPLE_LINES = 500_000
MAX_PLACES = 16
MAX_BLOCKS = 64  # of 4 MiB of text each
_LINES_PER_PLACE = 20_000  # a smaller place is not worth reading: a block has about as many
_SHOWN_PLACES = 3


@dataclass(kw_only=True, slots=True)
class Sample:
    """What has been read of a log so far. `errors` holds the files that cannot be read."""

    num_lines: int = 0
    stored_bytes: int = 0
    seconds: float = 0.0
    is_whole: bool = False
    batches: list[pa.RecordBatch] = field(default_factory=list)  # LOG_ROW
    places: set[Unit] = field(default_factory=set)
    action_lines: int = 0
    blank_lines: int = 0
    wrong_values: Counter[str] = field(default_factory=Counter)
    rejects: Counter[str] = field(default_factory=Counter)
    reject_places: dict[str, list[str]] = field(default_factory=dict)  # reason -> the first of them, file:offset
    errors: list[StageError] = field(default_factory=list)

    @property
    def unreadable_share(self) -> float:
        return self.rejects.total() / self.num_lines if self.num_lines else 0.0

    def rows(self) -> pa.Table:
        """LOG_ROW."""
        return pa.Table.from_batches(self.batches, LOG_ROW).unify_dictionaries().combine_chunks()

    def add(self, unit: Unit, block: ParsedBlock) -> None:
        """Add a block of a unit."""
        self.batches.append(block.rows)
        self.places.add(unit)
        self.num_lines += block.num_lines
        self.stored_bytes += block.stored_bytes
        self.action_lines += block.num_action_lines
        self.blank_lines += block.num_blank_lines
        self.wrong_values.update(block.wrong_values)
        self.rejects.update(block.reject_reasons)
        for offset, reason in zip(block.reject_offsets.tolist(), block.reject_reasons, strict=True):
            places = self.reject_places.setdefault(reason, [])
            if len(places) < _SHOWN_PLACES:
                places.append(f"{unit.file}:{offset}")


def draw_sample(
    source: Source, plan: ReadingPlan, *, sample_lines: int = SAMPLE_LINES, progress: Progress = silent
) -> Sample:
    """About `sample_lines` lines, at most one block more from each place: equally many from each place, and the rest of
    the budget from wherever reading stopped.
    """
    sample = Sample()
    blocks: dict[Unit, Iterator[ParsedBlock]] = {}
    ended: set[Unit] = set()

    def read(unit: Unit, budget: int) -> None:
        enough = min(sample.num_lines + budget, sample_lines)
        while sample.num_lines < enough and len(sample.batches) < MAX_BLOCKS and unit not in ended:
            begun = time.perf_counter()
            try:
                block = next(blocks.setdefault(unit, source.read(unit)), None)
            except StageError as error:
                sample.errors.append(error)
                block = None
            sample.seconds += time.perf_counter() - begun
            if block is None:
                ended.add(unit)
                return
            sample.add(unit, block)
            progress("reading a sample (lines)", min(sample.num_lines, sample_lines), sample_lines)

    num_places = min(MAX_PLACES, max(1, sample_lines // _LINES_PER_PLACE), len(plan.units))
    chosen = [plan.units[number * len(plan.units) // num_places] for number in range(num_places)]
    for unit in chosen:
        read(unit, -(-sample_lines // num_places))
    for unit in (*chosen, *plan.units):
        read(unit, sample_lines)
    ended |= {unit for unit, reader in blocks.items() if unit not in ended and next(reader, None) is None}
    sample.is_whole = len(ended) == len(plan.units) and not sample.errors
    sample.stored_bytes = plan.stored_bytes if sample.is_whole else min(sample.stored_bytes, plan.stored_bytes)
    return sample


# Statistics of a sample's rows, before anything is joined or dropped.


def lines_of(rows: pa.Table) -> dict[str, int]:
    """Lines by kind."""
    counts = Counter(rows["kind"].combine_chunks().dictionary_decode().to_pylist())
    return {kind: counts[kind] for kind in KINDS if counts[kind]}


def count_simulated(rows: pa.Table) -> int:
    application = rows["application"].combine_chunks().dictionary_decode()
    return pc.sum(pc.equal(application, SIMULATED_APPLICATION)).as_py() or 0


def clients_of(rows: pa.Table) -> dict[str, Any]:
    """`lines_with` a client id, how many are `distinct`, `largest_lines` of one client, `searches` of each (query
    ids).
    """
    with_client = rows.select(["client_id", "query_id"]).filter(rows["client_id"].is_valid())
    sizes = pc.struct_field(pc.value_counts(with_client["client_id"].combine_chunks()), "counts")
    num_pairs = with_client.group_by(["client_id", "query_id"]).aggregate([]).num_rows
    return {
        "lines_with": len(with_client),
        "distinct": len(sizes),
        "largest_lines": pc.max(sizes).as_py() or 0,
        "searches_each": num_pairs / len(sizes) if len(sizes) else 0.0,
    }


def times_of(rows: pa.Table) -> dict[str, Any]:
    """`first` and `last` (ISO 8601, UTC; None if no line has a time), and the number of `dates`."""
    moment = rows["time"].combine_chunks().drop_null().cast(pa.int64()).to_numpy()
    if not len(moment):
        return {"first": None, "last": None, "dates": 0}
    first, last = (datetime.fromtimestamp(each / 1000, UTC) for each in (int(moment.min()), int(moment.max())))
    form = "%Y-%m-%dT%H:%M:%SZ"
    dates = len(np.unique(moment // 86_400_000))
    return {"first": first.strftime(form), "last": last.strftime(form), "dates": dates}


def has_hours(rows: pa.Table) -> bool:
    """Whether a time is not midnight."""
    moment = rows["time"].combine_chunks().drop_null().cast(pa.int64()).to_numpy()
    return bool((moment % 86_400_000).any())


def joins_of(rows: pa.Table) -> dict[str, Any]:
    """How many events there are (`total`: impressions, clicks and conversions), how many of these `events` carry no
    query and so need their search, and for how many of them it is in the sample (`joined`, `share`).
    """
    column = rows["kind"].combine_chunks()
    kind = np.array([KINDS.index(name) for name in column.dictionary.to_pylist()], np.int8)[column.indices.to_numpy()]
    query_id = rows["query_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    carries = rows["query"].combine_chunks().is_valid().to_numpy(zero_copy_only=False)
    is_event = np.isin(kind, (IMPRESSION, CLICK, CONVERSION))
    needs = query_id[is_event & ~carries]
    events, joined = len(needs), int(np.isin(needs, query_id[kind == SEARCH]).sum())
    share = joined / events if events else 1.0
    return {"total": int(is_event.sum()), "events": events, "joined": joined, "share": share}


# The results of ingest and build for these rows.


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledDay:
    """The day made from a sample. `fates`: of its lines, by ingest; `seconds`: the time to process `joined_bytes` of
    rows.
    """

    queries: pa.Table  # search_log.QUERIES
    exposures: pa.Table  # search_log.EXPOSURES
    clickers: pa.Table  # search_log.CLICKERS
    fates: Counter[str]
    shared_query_ids: int
    seconds: float
    joined_bytes: int


def day_of_sample(rows: pa.Table, rules: BotRules) -> SampledDay:
    """The day made from LOG_ROW rows. People are hashed with a temporary key."""
    begun = time.perf_counter()
    joined, tally = join_search_events(rows, secrets.token_bytes(KEY_BYTES))
    fates, shared = Counter(tally.fates), tally.counts[SHARED_QUERY_IDS]
    bots, passers_by = detect_bots(client_statistics(joined), rules)
    bots = merge_bots([bots, find_crowds(passers_by, activity_of(passers_by), rules)])
    partial, tally = aggregate_joined(joined, bots, pair_people=True)
    fates.update(tally.fates)
    partial = partial.combine_chunks()
    queries, exposures = merge_bucket(partial)
    fates.update({DAY_FATES[name]: lines for name, lines in count_lines(queries, exposures).items()})
    return SampledDay(
        queries=queries.cast(QUERIES),
        exposures=exposures.cast(EXPOSURES),
        clickers=clickers_of(partial),
        fates=fates,
        shared_query_ids=shared,
        seconds=time.perf_counter() - begun,
        joined_bytes=joined.nbytes,
    )


def ledger_of(sample: Sample, day: SampledDay) -> Ledger:
    """The fate of every line of a sample. Raises StageError if they do not add up."""
    lines = {**sample.rejects, **day.fates, "action_line": sample.action_lines, BLANK: sample.blank_lines}
    return Ledger(total=sample.num_lines, lines=lines).check()


def titled_clicks(uri: str, exposures: pa.Table, progress: Progress = silent) -> tuple[pa.Table, dict[str, Any]]:
    """(`document_id` and normalised `title` of the documents in EXPOSURES that have one; facts: `num_documents`, how
    many have spoilt texts, if any, the `skipped` rows, and how many clicks are on a document with a title). The file is
    read once, and up to the places of skipped rows again; other titles are not kept.

    Raises UsageError and StageError, as reading documents does.
    """
    clicked_ids = pc.unique(exposures["document_id"].combine_chunks())
    parts = plan_documents(uri)
    tables = [pa.table({"document_id": pa.array([], pa.string()), "title": pa.array([], pa.string())})]
    spoilt, row_counts = Counter[str](), list[RowCounts]()
    for number, part in enumerate(parts):
        for block in read_documents_part(part):
            spoilt.update(_spoilt_texts(block.table))
            row_counts.append(block.rows)
            here = block.table.filter(pc.is_in(block.table["id"].combine_chunks(), value_set=clicked_ids))
            titles = normalise_column(here["title"].fill_null(""))
            has_word = pc.not_equal(titles, "")
            tables.append(pa.table({"document_id": here["id"], "title": titles}).filter(has_word))
        progress("reading the documents (parts)", number + 1, len(parts))
    all_rows = add_up_rows(row_counts)
    if error := mostly_unfit(uri, all_rows):
        raise error
    skipped = [
        {"reason": rows.reason, "rows": rows.count, "problem": rows.sentence, "fix": rows.fix}
        for rows in unfit_rows(uri, all_rows)
    ]
    titled = pa.concat_tables(tables).combine_chunks()
    if error := repeated_ids(uri, titled["document_id"], is_all=False):
        raise error
    on_titled = exposures["clicks"].filter(pc.is_in(exposures["document_id"], value_set=titled["document_id"]))
    return titled, {
        "num_documents": all_rows.documents,
        **+spoilt,
        **({"skipped": skipped} if skipped else {}),
        "clicks": pc.sum(exposures["clicks"]).as_py() or 0,
        "clicks_titled": pc.sum(on_titled).as_py() or 0,
    }


def _spoilt_texts(documents: pa.Table) -> dict[str, int]:
    """How many documents have texts that a program on the way spoilt, by what is wrong with them."""
    masks = {
        "entities": pc.match_substring_regex(documents["title"], _ENTITY),
        "broken_letters": pc.match_substring(documents["title"], _REPLACEMENT),
        "spaced_ids": pc.match_substring_regex(documents["id"], r"[\s\p{Z}]"),
    }
    return {name: pc.sum(mask).as_py() or 0 for name, mask in masks.items()}


def kept_at_k(day: SampledDay, titled: pa.Table | None, k: int) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    """What `build` would keep of a day, computed by its own function: (queries, clicks and pairs at each usual k and at
    this one; clicks and pairs at this k and each usual pair_k). k = 0 is no gate.

    `titled`: `document_id` and `title`, as of titled_clicks; by default every document has a title of its own.
    """
    shown = sum_positions(day.exposures)
    title = _titles_of(shown["document_id"], titled)
    columns = [shown["query"], title, np.full(len(shown), -1, np.int32), *(shown[name] for name in COUNTS)]
    shown_titled = pa.table(columns, schema=SHOWN_TITLED)
    ids = shown["document_id"].unique()
    people = title_clickers(day.clickers, pa.table({"document_id": ids, "title": _titles_of(ids, titled)}))
    _, tally = click_pairs(
        day.queries, shown_titled, frozenset(), k=k, split_salt="", dev_share=0.0, pair_people=people
    )
    kept = [
        {"k": each, **{name: tally.counts[f"{name}_at_{each}"] for name in ("queries", "clicks", "pairs")}}
        for each in sorted({*REPORTED_K, k})
    ]
    kept_pairs = [
        {"pair_k": each, **{name: tally.counts[f"{name}_at_pair_{each}"] for name in ("clicks", "pairs")}}
        for each in REPORTED_PAIR_K
    ]
    return kept, kept_pairs


def _titles_of(ids: pa.Array | pa.ChunkedArray, titled: pa.Table | None) -> pa.Array | pa.ChunkedArray:
    """Each document's title, null for none; without titles its id."""
    return ids if titled is None else titled["title"].take(pc.index_in(ids, value_set=titled["document_id"]))


# Estimates for the whole log on this machine: lines, time, memory, disk.
#
# The sample itself gives the time per line, on this machine under its current load. The constants below cover what the
# sample does not do: starting Beam, moving rows between steps, making shards. They were measured on 2026-11-21 on two
# shared x86-64 cores, in one process and in seconds of processor time, with UBI logs:
#
#     lines        ingest                  the sample's functions    build
#     2,000        2.8 s, 231 MB
#     541,918      8.9 s, 404 MB           4.4 s                     7.6 s for 252,346 exposures
#     3,251,508    18.3 s, 422 MB (of 6 equal parts, so five sixths are repeats, which cost less)


START_SECONDS = 3.5  # of a Beam job
EXCHANGE_FACTOR = 1.4  # a whole ingest over the same functions without regrouping rows
BUILD_SECONDS_PER_EXPOSURE = 1.6e-5  # a row of query, document and position, to shards
MEMORY_BASE_BYTES = 230 << 20  # a process that has started
MEMORY_WORKING_BYTES = 200 << 20  # what it holds of a log at most, a bucket at a time
MEMORY_PER_PROCESS_BYTES = 400 << 20  # of more than one: engine_options
SHARD_BYTES_PER_PAIR = 700  # BuildConfig: 100,000 pairs with four negatives are about 64 MiB


def estimate_whole(sample: Sample, day: SampledDay, pairs: int, plan: ReadingPlan) -> dict[str, Any]:
    """What ingest and build of the whole log would take. `pairs`: those of the sample.

    Day and shards grow more slowly than the log, so these are upper bounds.
    """
    times = plan.stored_bytes / max(sample.stored_bytes, 1)
    options = with_local_workers((), plan.estimated_bytes)
    processes = int(options[-1].rpartition("=")[2]) if options else 1
    work_seconds = (sample.seconds + day.seconds) * times
    working = min(MEMORY_WORKING_BYTES, 2 * plan.estimated_bytes)
    if processes > 1:
        working = MEMORY_PER_PROCESS_BYTES * processes
    rows_bytes = sum(batch.nbytes for batch in sample.batches)
    return {
        "lines": round(sample.num_lines * times),
        "text_bytes": plan.estimated_bytes,
        "processes": processes,
        "ingest_seconds": START_SECONDS + work_seconds * EXCHANGE_FACTOR / processes,
        "build_seconds": START_SECONDS + len(day.exposures) * times * BUILD_SECONDS_PER_EXPOSURE / processes,
        "memory_bytes": MEMORY_BASE_BYTES + working,
        # Between two steps rows are stored as Arrow files: those that were read, and those that were joined.
        "scratch_bytes": round((rows_bytes + day.joined_bytes) * times),
        "day_bytes": round((day.queries.nbytes + day.exposures.nbytes) * times),
        "shards_bytes": round(pairs * times) * SHARD_BYTES_PER_PAIR,
    }
