"""Job 1: a search log -> the private daily aggregate (schemas.search_log), under STORE/ingest/DIGEST.

    files -> blocks of lines -> LOG_ROW batches
          -> exchange by query id  -> repeats dropped, events joined to searches, erased people left out
          -> exchange by client    -> bots, broadcast; passers-by -> exchange by query -> crowds of bots, broadcast
          -> partial sums -> exchange by query -> queries-*.arrow, exposures-*.arrow
    unreadable lines -> exchange by place -> rejects-*.arrow
          -> one last step: names for the files that count, the ledger, the manifest

Every line has exactly one fate. If several apply, the first in this order counts: unreadable, blank, bulk action line,
a time far from the day, exact repeat, other action, no document, repeated search, unknown or ambiguous search, erased,
bot (by user agent, then by behaviour, as one of a crowd, unsure), query without a word, kept. No fate depends on the
order of lines, on files or on workers.

A line is erased with a person of the store's list (erased_people) if its client is that person, or if its query is the
text of that person's search: then it is an event without a client, or one of somebody else that has no query any more.
Such lines leave right after the join, so nothing later sees them: neither bots, nor people, nor rows.
"""

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.pvalue import AsSingleton, TaggedOutput

from clicktower.beam_jobs.compiled.log_library import first_rows
from clicktower.beam_jobs.engine.arrow_files import Record, get, put, write_table, write_tables, writing_errors
from clicktower.beam_jobs.engine.beam_engine import relay_stage_errors
from clicktower.beam_jobs.engine.beam_stage import Attempt, FolderMade, Tally, add_up, advance, move_to_final_names
from clicktower.beam_jobs.engine.exchange import CommitAll, Exchange, ExchangeRecords, read_parts
from clicktower.beam_jobs.ingest import days, erased_people
from clicktower.beam_jobs.ingest.bots import (
    RULES,
    Activity,
    BotRules,
    Bots,
    activity_of,
    client_statistics,
    detect_bots,
    find_crowds,
    merge_activity,
    merge_bots,
)
from clicktower.beam_jobs.ingest.day_rows import (
    BOT_LINES,
    SHARED_QUERY_IDS,
    aggregate_joined,
    count_lines,
    join_bucket,
    logical_digest,
    merge_bucket,
    sampled,
    write_sample,
    zero_bits_for,
)
from clicktower.beam_jobs.ingest.days import parse_date
from clicktower.beam_jobs.ingest.erased_people import ErasedPeople, open_list, without_people
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, open_source
from clicktower.beam_jobs.ingest.person_key import worker_key
from clicktower.beam_jobs.sources.read_lines import BLANK, ReadingPlan, Unit
from clicktower.beam_jobs.sources.source import ParsedBlock, Source, file_by_file
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, TransientError
from clicktower.schemas.ledger import Ledger
from clicktower.schemas.manifest import Outcome
from clicktower.schemas.search_log import DAY_FATES, REJECT, SIMULATED_APPLICATION
from clicktower.schemas.shard import LogicalDigest
from clicktower.schemas.stage import open_result
from clicktower.schemas.storage import join

READING, JOINING, ADDING_UP, WRITING = (
    "reading the log (bytes)",
    "joining events to searches (buckets)",
    "adding up (buckets)",
    "writing the day (buckets)",
)
TALLIES, REJECTS, PASSERS_BY, ACTIVITY = "tallies", "rejects", "passers_by", "activity"
MAX_REJECT_BUCKETS = 64
Result = Tally | Bots | FolderMade


@dataclass(frozen=True, kw_only=True, slots=True)
class IngestJob:
    """One run of the pipeline.

    `key_ids`: of all keys that the log is ingested under, one after the other; `key_id` is that of this run.
    `erased`: the list of erased people as the job began. `states`: of the plan's files, taken before they were read
    (storage.state).
    """

    attempt: Attempt
    config: IngestConfig
    plan: ReadingPlan
    key_path: str
    key_id: str
    key_ids: tuple[str, ...]
    erased: ErasedPeople
    states: Mapping[str, str]

    @property
    def zero_bits(self) -> int:
        """Of the sample of lines (day_rows.write_sample)."""
        return zero_bits_for(self.plan.estimated_bytes)

    @property
    def steps(self) -> dict[str, int]:
        """The total of each step."""
        return {
            READING: self.plan.stored_bytes,
            **dict.fromkeys((JOINING, ADDING_UP, WRITING), self.attempt.num_buckets),
        }

    def build(self, pipeline: beam.Pipeline) -> None:
        """The whole graph, in the order of the data."""
        attempt, config = self.attempt, self.config
        source = file_by_file(open_source(config), self.plan, config.max_unreadable_share)
        num_buckets, scratch, folder, notes = attempt.num_buckets, attempt.scratch, attempt.work_folder, attempt.notes
        lines = (
            pipeline
            | "What to read" >> read_parts(self.plan.units)
            | "Read lines"
            >> beam.FlatMap(_read, source, config.date, attempt.started, notes, self.zero_bits).with_outputs(
                TALLIES, REJECTS, main="rows"
            )
        )
        rejects = (
            lines.rejects
            | Exchange("Group rejects", "offset", min(num_buckets, MAX_REJECT_BUCKETS), scratch)
            | "Write rejects" >> beam.Map(_write_rejects, folder)
        )
        joined = (
            lines.rows
            | ExchangeRecords("Group by query id", "query_id", num_buckets, scratch)
            | "Join events to searches"
            >> beam.FlatMap(_join, self.key_path, self.key_id, self.erased, scratch, notes).with_outputs(
                TALLIES, main="joined"
            )
        )
        clients = (
            joined.joined
            | "Count per client" >> beam.Map(_count_clients)
            | Exchange("Group by client", "person", num_buckets, scratch)
            | "Tell bots" >> beam.FlatMap(_detect_bots, config.bots).with_outputs(PASSERS_BY, ACTIVITY, main="bots")
        )
        activity = clients[ACTIVITY] | "Activity of all" >> beam.CombineGlobally(merge_activity)
        crowds = (
            clients[PASSERS_BY]
            | Exchange("Group passers-by by query", "query", num_buckets, scratch)
            | "Tell crowds" >> beam.Map(_detect_crowds, AsSingleton(activity), config.bots)
        )
        bots = (clients.bots, crowds) | "All bots" >> beam.Flatten() | "As one list" >> beam.CombineGlobally(merge_bots)
        partial = joined.joined | "Filter and add up" >> beam.FlatMap(
            _aggregate, AsSingleton(bots), config.pair_people, notes
        ).with_outputs(TALLIES, main="partial")
        buckets = (
            partial.partial
            | Exchange("Group by query", "query", num_buckets, scratch)
            | "Write the day" >> beam.Map(_write_bucket, folder, config.pair_people, notes)
        )
        results = (lines.tallies, joined.tallies, partial.tallies, rejects, bots, buckets)
        _ = results | CommitAll(self.commit, attempt.folder)

    def commit(self, results: Sequence[Result]) -> None:
        """Commit the day, and add it to its date; if people were erased meanwhile, that is left to the caller."""
        commit_day(results, self)
        folder, store = self.attempt.folder.rpartition("/")[0], self.attempt.folder.rsplit("/", 3)[0]
        with suppress(StageError, OSError):  # the day is committed; the caller does the rest too, and gets the error
            counts = erased_people.take_place(open_result(folder)) == folder
            if counts and open_list(store, self.key_path).digest == self.erased.digest:
                erased_people.end_commit(folder)
                if dates := days.of_date(self.attempt.request):
                    dates.register(store, self.attempt.request, replace_day=self.config.replace_day, keys=self.key_ids)


# The types of elements. A function with tagged outputs returns Any: Beam takes annotations for the types of its main
# output.


@relay_stage_errors
def _read(unit: Unit, source: Source, date: str | None, started: float, notes: str, zero_bits: int) -> Iterator[Any]:
    for parsed in source.read(unit):
        rows = plausible_rows(parsed.rows, date)
        distinct = distinct_rows(rows)
        yield TaggedOutput(TALLIES, _tally_of(parsed, rows, distinct, started, zero_bits))
        if parsed.reject_reasons:
            offsets, reasons = pa.array(parsed.reject_offsets), pa.array(parsed.reject_reasons)
            files = pa.array([unit.file] * len(offsets))
            yield TaggedOutput(REJECTS, pa.table([files, offsets, reasons], schema=REJECT))
        if distinct.num_rows:
            yield distinct
        advance(notes, READING, parsed.stored_bytes)


@relay_stage_errors
def _join(
    bucket: tuple[int, Iterable[Record]],
    key_path: str,
    key_id: str,
    erased: ErasedPeople,
    scratch: str | None,
    notes: str,
) -> Iterator[Any]:
    records = list(bucket[1])
    people = erased.among(records, key_path, key_id)
    for joined, tally in join_bucket(records, worker_key(key_path, key_id)):
        kept, num_erased = without_people(joined, people)
        yield TaggedOutput(TALLIES, add_up([tally, Tally(fates={"erased": num_erased})]))
        yield from put([kept], scratch)
    advance(notes, JOINING, 1)


@relay_stage_errors
def _count_clients(joined: Record) -> pa.Table:
    return client_statistics(get([joined]))


def _detect_bots(bucket: tuple[int, pa.Table], rules: BotRules) -> Iterator[Any]:
    bots, passers_by = detect_bots(bucket[1], rules)
    yield bots
    yield TaggedOutput(PASSERS_BY, passers_by)
    yield TaggedOutput(ACTIVITY, activity_of(passers_by))


def _detect_crowds(bucket: tuple[int, pa.Table], activity: Activity, rules: BotRules) -> Bots:
    return find_crowds(bucket[1], activity, rules)


@relay_stage_errors
def _aggregate(joined: Record, bots: Bots, pair_people: bool, notes: str) -> Iterator[Any]:
    partial, dropped = aggregate_joined(get([joined]), bots, pair_people=pair_people)
    yield TaggedOutput(TALLIES, dropped)
    yield partial
    advance(notes, ADDING_UP, 1)


@relay_stage_errors
def _write_bucket(bucket: tuple[int, pa.Table], output: str, pair_people: bool, notes: str) -> FolderMade:
    """Write the files of a bucket."""
    number, partial = bucket
    queries, exposures = merge_bucket(partial)
    folder = join(output, f"day-{number:05d}-{uuid.uuid4().hex}")  # a bundle may run twice
    tables = {f"queries-{number:05d}": queries, f"exposures-{number:05d}": exposures}
    if pair_people:
        from clicktower.beam_jobs.ingest.pair_people import clickers_digest, clickers_of

        tables[f"clickers-{number:05d}"] = clickers_of(partial)
    with writing_errors(folder), ThreadPoolExecutor(2) as disk:  # the rows are digested while it writes
        written = [disk.submit(write_table, table, folder, name) for name, table in tables.items()]
        digest = logical_digest(queries, exposures)
        if pair_people:
            digest.merge(clickers_digest(tables[f"clickers-{number:05d}"]))
        for bucket_file in written:
            bucket_file.result()
    advance(notes, WRITING, 1)
    return FolderMade(
        folder=folder,
        name=f"day-{number:05d}",
        files=tuple(f"{name}.arrow" for name in tables),
        counts={"queries": queries.num_rows, "exposures": exposures.num_rows, **count_lines(queries, exposures)},
        logical_digest=digest.hexdigest(),
    )


@relay_stage_errors
def _write_rejects(bucket: tuple[int, pa.Table], output: str) -> FolderMade:
    """Write the places of a bucket's unreadable lines, in order."""
    number, rejects = bucket
    name = f"{REJECTS}-{number:05d}"
    folder = join(output, f"{name}-{uuid.uuid4().hex}")
    with writing_errors(folder):
        files = write_tables({name: rejects.sort_by([("file", "ascending"), ("offset", "ascending")])}, folder)
    none = LogicalDigest().hexdigest()  # rejects are not rows of the day
    return FolderMade(folder=folder, name=name, files=files, counts={REJECTS: len(rejects)}, logical_digest=none)


def _tally_of(
    parsed: ParsedBlock, rows: pa.RecordBatch, distinct: pa.RecordBatch, started: float, zero_bits: int
) -> Tally:
    fates = Counter(parsed.reject_reasons)
    fates["time_implausible"] = parsed.rows.num_rows - rows.num_rows
    fates["repeat"] = rows.num_rows - distinct.num_rows
    span = pc.min_max(rows["time"].cast(pa.int64())).as_py()
    simulated = pc.sum(pc.equal(parsed.rows["application"].dictionary_decode(), SIMULATED_APPLICATION)).as_py() or 0
    return Tally(
        lines=parsed.num_lines,
        fates={**fates, "action_line": parsed.num_action_lines, BLANK: parsed.num_blank_lines},
        counts={
            "simulated_lines": simulated,
            "later_than_ingest": count_later(rows, started),
            **{WRONG_VALUES + name: lines for name, lines in parsed.wrong_values.items()},
        },
        first_ms=span["min"],
        last_ms=span["max"],
        sampled=sampled(distinct["line_hash"], zero_bits),
    )


def distinct_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """LOG_ROW rows without the repeats among them. All copies of a line meet where its bucket is joined, which would
    hold millions of one line; this way there is one of each block, and the join drops those.

    Rows of a large block stay as they are if a sample of them holds hardly a repeat: the join drops those few anyway.
    """
    hashes = rows["line_hash"]
    if rows.num_rows > 4 * SAMPLED_ROWS:
        sample = hashes.take(pa.array(np.arange(SAMPLED_ROWS) * rows.num_rows // SAMPLED_ROWS))
        if first_rows(sample).mean() > 0.99:
            return rows
    is_first = first_rows(hashes)
    return rows if is_first.all() else rows.filter(pa.array(is_first))


# Wrong clocks: lines whose time cannot belong to the log's date, and lines from the future.


# This covers a day in a shop's own time zone, with sessions past midnight and late flushes.
BEFORE, AFTER = timedelta(days=1), timedelta(days=2)


def plausible_rows(rows: pa.RecordBatch, date: str | None) -> pa.RecordBatch:
    """The LOG_ROW rows whose time may belong to a date: within [date - 1 day, date + 2 days) in UTC, or unknown.

    Without a date all times are plausible: otherwise the result would depend on when the log is read.
    """
    if date is None:
        return rows
    begin = datetime.combine(parse_date(date), time(), UTC)
    moment = rows["time"].cast(pa.int64())
    first, last = (round((begin + shift).timestamp() * 1000) for shift in (-BEFORE, AFTER))
    fits = pc.and_(pc.greater_equal(moment, first), pc.less(moment, last))
    return rows.filter(fits.fill_null(True))


def count_later(rows: pa.RecordBatch, started: float) -> int:
    """How many rows have a time after `started` (seconds since the epoch)."""
    return pc.sum(pc.greater(rows["time"].cast(pa.int64()), round(started * 1000))).as_py() or 0


SAMPLED_ROWS = 1024  # of a block, to tell whether it repeats lines
WRONG_VALUES = "wrong_values:"  # precedes column and kind in the counts of a Tally
CLIENTS_BY_FATE = {
    "bot_user_agent": "bots_by_user_agent",
    "bot_behaviour": "bots_by_behaviour",
    "bot_crowd": "bots_in_crowds",
    "bot_unsure": "bots_unsure",
}


def commit_day(results: Sequence[Result], job: IngestJob) -> None:
    """Commit the day. Raises StageError: what check_readable refuses, a wrong ledger, no space; and TransientError if a
    log file has changed since its state was taken.

    The results of a bundle that ran twice arrive once, or twice with the same content: one of them is selected, moved
    from the scratch folder to its final name, and listed. It can run again after a failure at any point.

    The day's own fates are counted from the rows that were written, not from those that were kept, so the ledger shows
    a row that was lost on the way.
    """
    attempt = job.attempt
    if attempt.has_committed():
        return
    require_unchanged(job.states)
    tally = add_up(result for result in results if isinstance(result, Tally))
    bots = next(result for result in results if isinstance(result, Bots))
    folders = list({result.name: result for result in results if isinstance(result, FolderMade)}.values())
    counts = Counter[str]()
    for folder in folders:
        counts.update(folder.counts)
    check_readable(tally, counts[REJECTS], folders, job)
    ledger = Ledger(
        total=tally.lines, lines={**tally.fates, **{fate: counts[name] for name, fate in DAY_FATES.items()}}
    ).check()
    digest = move_to_final_names(folders, attempt.folder, flat=True)
    erased_people.begin_commit(attempt.folder.rpartition("/")[0])
    write_sample(attempt.folder, tally.sampled, job.zero_bits, worker_key(job.key_path, job.key_id))
    clients = bots.by_rule()
    bot_lines = {rule: tally.counts.get(BOT_LINES + rule, 0) for rule in RULES}
    # Facts for every output made from this day: where its lines came from, and that nobody is in it.
    labels = {"simulated": bool(tally.counts.get("simulated_lines")), "no_people": not bots.people}
    attempt.commit(
        Outcome(
            counts={
                "lines": tally.lines,
                **{name: counts[name] for name in (*DAY_FATES, "queries", "exposures")},
                "people": bots.people,
                **{CLIENTS_BY_FATE[fate]: number for fate, number in bots.by_fate().items()},
                "rejects": counts[REJECTS],
            },
            metrics={
                "first_time": _iso(tally.first_ms),
                "last_time": _iso(tally.last_ms),
                "unreadable_share": counts[REJECTS] / tally.lines,
                "bots": {
                    rule: {"clients": clients.get(rule, 0), "lines": lines}
                    for rule, lines in bot_lines.items()
                    if lines or rule in clients
                },
                "shared_query_ids": tally.counts.get(SHARED_QUERY_IDS, 0),
                "wrong_values": wrong_values(tally),
                "later_than_ingest_share": tally.counts.get("later_than_ingest", 0) / tally.lines,
            },
            labels={name: True for name, is_so in labels.items() if is_so},
            ledger=ledger,
            logical_digest=digest.hexdigest(),
        )
    )


def require_unchanged(states: Mapping[str, str]) -> None:
    """Raise TransientError if a file has changed since its state was taken."""
    changed = [file for file, now in zip(states, storage.map_files(storage.state, states), strict=True)
               if now != states[file]]  # fmt: skip
    if not changed:
        return
    raise TransientError(
        f"{changed[0]} was written to while it was read"
        + (f", and {len(changed) - 1} more of the {len(states)} log files." if changed[1:] else ".")
        + " Lines could be missing, so nothing was kept.",
        "Run the same command again; better, give files that nobody writes to any more, such as yesterday's.",
    )


def check_readable(tally: Tally, num_rejects: int, folders: Sequence[FolderMade], job: IngestJob) -> None:
    """Raise StageError if there is no line, if most lines are not of the requested date, or if too many are unreadable,
    with the reasons and some places.
    """
    if not tally.lines:
        raise StageError("The log has no line.", "Give a log with at least one line.")
    if 2 * (far := tally.fates.get("time_implausible", 0)) > tally.lines:
        raise StageError(
            f"The times of {far:,} of the log's {tally.lines:,} lines are far from {job.config.date}. Nothing was"
            " ingested.",
            "Give the day of the log with --date; ingest a log of many days without it.",
        )
    if num_rejects > job.config.max_unreadable_share * tally.lines:
        from clicktower.beam_jobs.ingest.unreadable_log import unreadable_log

        raise unreadable_log(
            tally,
            wrong_values(tally),
            [join(folder.folder, file) for folder in folders if folder.split == REJECTS for file in folder.files],
            num_rejects,
            job.config,
        )


def wrong_values(tally: Tally) -> dict[str, int]:
    """Values of a wrong kind, most frequent first: "position: text" -> 3."""
    counts = Counter({key: lines for key, lines in tally.counts.items() if key.startswith(WRONG_VALUES)})
    return {key.removeprefix(WRONG_VALUES): lines for key, lines in counts.most_common()}


def _iso(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds")
