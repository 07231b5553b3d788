"""A sample taken through everything that `ingest` and `build` do with a log, by their own functions.

The rows are cut by query id into nested parts of the sample, so that what is kept at k can be told for an eighth of it,
a quarter, a half, and all: joining is by query id, so the parts join as the whole would.
"""

import secrets
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.build.click_pairs import REPORTED_K, click_pairs
from beam_jobs.build.titles import SHOWN_TITLED, sum_positions
from beam_jobs.checking.log_sample import Sample
from beam_jobs.engine.engine_options import with_local_workers
from beam_jobs.engine.tally import Tally, add_up
from beam_jobs.ingest.aggregate_day import aggregate_joined, merge_bucket
from beam_jobs.ingest.bot_crowds import activity_of, find_crowds
from beam_jobs.ingest.bots import BotRules, Bots, merge_bots, tell_clients
from beam_jobs.ingest.client_statistics import client_statistics
from beam_jobs.ingest.join_search_events import join_search_events
from beam_jobs.ingest.person_key import KEY_BYTES
from schemas.day import EXPOSURES, QUERIES

PARTS = (1 / 8, 1 / 4, 1 / 2, 1.0)  # of the sample's query ids, each within the next
_SEED = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledDay:
    """What became of the rows. `fates` are those of ingest; `bots` by rule; the last of `parts` is the whole sample."""

    fates: Counter[str]
    bots: Bots
    bot_lines: Counter[str]  # by the name of the rule
    parts: Sequence[tuple[pa.Table, pa.Table]]  # (QUERIES, EXPOSURES) of each of PARTS
    seconds: float
    joined_bytes: int

    @property
    def queries(self) -> pa.Table:
        return self.parts[-1][0]

    @property
    def exposures(self) -> pa.Table:
        return self.parts[-1][1]


def day_of_sample(rows: pa.Table, rules: BotRules) -> SampledDay:
    """The day that LOG_ROW rows make. People are hashed by a key that is made here and forgotten."""
    begun = time.perf_counter()
    key = secrets.token_bytes(KEY_BYTES)
    joined, fates = [], Counter[str]()
    for part in _cut(rows):
        of_part, dropped = join_search_events(part, key)
        joined.append(of_part)
        fates.update(dropped)
    bots = _bots(joined, rules)
    partial, tallies = [], []
    for of_part in joined:
        sums, tally = aggregate_joined(of_part, bots)
        partial.append(sums)
        tallies.append(tally)
    told = add_up(tallies)
    fates.update(told.fates)
    for name, fate in (("searches", "day_search"), ("impressions", "day_impression"), ("clicks", "day_click")):
        fates[fate] = sum(pc.sum(sums[name]).as_py() or 0 for sums in partial)
    seconds = time.perf_counter() - begun
    parts = [_merged(pa.concat_tables(partial[: number + 1])) for number in range(len(PARTS))]
    return SampledDay(
        fates=+fates,
        bots=bots,
        bot_lines=Counter({name.partition(":")[2]: count for name, count in told.counts.items() if ":" in name}),
        parts=parts,
        seconds=seconds,
        joined_bytes=sum(of_part.nbytes for of_part in joined),
    )


def kept_at_k(queries: pa.Table, exposures: pa.Table, titled: pa.Array | None, k: int) -> Tally:
    """What `build` would count of a day (queries_at_3, clicks_at_3, ..., fates), by its own function.

    Without documents each document id stands for its title. `titled`: ids of those that have one.
    """
    shown = sum_positions(exposures)
    title = shown["document_id"]
    if titled is not None:
        title = pc.if_else(pc.is_in(title, value_set=titled), title, pa.scalar(None, pa.string()))
    columns = [shown["query"], title, np.full(len(shown), -1, np.int32), shown["impressions"], shown["clicks"]]
    none = pa.array([], pa.string())
    return click_pairs(queries, pa.table(columns, schema=SHOWN_TITLED), none, k=k, split_salt="", dev_share=0.0)[1]


def values_of_k(k: int) -> list[int]:
    """The values of k to report, including the chosen one; 0 is no gate at all."""
    return sorted({*REPORTED_K, k})


def _cut(rows: pa.Table) -> list[pa.Table]:
    """The rows of each of PARTS that are not in the one before."""
    encoded = rows["query_id"].combine_chunks().dictionary_encode()
    drawn = np.random.default_rng(_SEED).random(len(encoded.dictionary))
    part = np.searchsorted(np.array(PARTS[:-1]), drawn, side="right")[encoded.indices.to_numpy()]
    return [rows.filter(pa.array(part == number)).combine_chunks() for number in range(len(PARTS))]


def _bots(joined: Sequence[pa.Table], rules: BotRules) -> Bots:
    bots, passers_by = tell_clients(pa.concat_tables(map(client_statistics, joined)), rules)
    return merge_bots([bots, find_crowds(passers_by, activity_of(passers_by), rules)])


def _merged(partial: pa.Table) -> tuple[pa.Table, pa.Table]:
    queries, exposures = merge_bucket(partial.combine_chunks())
    return queries.cast(QUERIES), exposures.cast(EXPOSURES)


# What the whole log would take on this machine: lines, time, memory, disk.
#
# How fast a line is read and counted is measured on the sample itself, on this machine, as busy as it is. The constants
# below are of what the sample does not do: starting Beam, moving rows between steps, making shards. They were measured
# on 2026-11-21 on two x86-64 cores that others used too, in one process and in seconds of processor time, with UBI
# logs:
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
SHARD_BYTES_PER_PAIR = 700  # build_config: 100,000 pairs with four negatives are about 64 MiB


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """`lines` is counted where the sample is the whole log. Day and shard grow slower than the log: at most so much."""

    lines: int
    text_bytes: int
    processes: int
    ingest_seconds: float
    build_seconds: float
    memory_bytes: int
    scratch_bytes: int
    day_bytes: int
    shards_bytes: int
    sample_lines_per_second: float


def estimate_whole(sample: Sample, day: SampledDay, pairs: int, all_bytes: int, bytes_per_line: float) -> Estimate:
    """The estimate for a log of `all_bytes` as it is stored. `pairs`: that the sample would give."""
    times = 1.0 if sample.is_whole else all_bytes / max(sample.stored_bytes, 1)
    lines = round(sample.num_lines * times)
    text_bytes = round(lines * bytes_per_line)
    processes = num_processes(text_bytes)
    function_seconds = (sample.seconds + day.seconds) * times
    exposures = day.exposures.num_rows * times
    working = MEMORY_PER_PROCESS_BYTES * processes if processes > 1 else min(MEMORY_WORKING_BYTES, 2 * text_bytes)
    return Estimate(
        lines=lines,
        text_bytes=text_bytes,
        processes=processes,
        ingest_seconds=START_SECONDS + function_seconds * EXCHANGE_FACTOR / processes,
        build_seconds=START_SECONDS + exposures * BUILD_SECONDS_PER_EXPOSURE / processes,
        memory_bytes=MEMORY_BASE_BYTES + working,
        # Rows wait between two steps as Arrow files: those that were read, and those that were joined.
        scratch_bytes=round((sample.rows.nbytes + day.joined_bytes) * times),
        day_bytes=round((day.queries.nbytes + day.exposures.nbytes) * times),
        shards_bytes=round(pairs * times) * SHARD_BYTES_PER_PAIR,
        sample_lines_per_second=sample.num_lines / max(sample.seconds + day.seconds, 1e-9),
    )


def num_processes(text_bytes: int) -> int:
    """How many worker processes `ingest` would start on this machine, left to itself."""
    options = with_local_workers((), text_bytes)
    return int(options[-1].rpartition("=")[2]) if options else 1
