"""What the whole log would take on this machine: lines, time, memory, disk.

How fast a line is read and counted is measured on the sample itself, on this machine, as busy as it is. The constants
below are of what the sample does not do: starting Beam, moving rows between steps, making shards. They were measured on
2026-11-21 on two x86-64 cores that others used too, in one process and in seconds of processor time, with UBI logs:

    lines        ingest                  the sample's functions    build
    2,000        2.8 s, 231 MB
    541,918      8.9 s, 404 MB           4.4 s                     7.6 s for 252,346 exposures
    3,251,508    18.3 s, 422 MB (of 6 equal parts, so five sixths are repeats, which cost less)
"""

from dataclasses import dataclass

from beam_jobs.checking.sample import Sample
from beam_jobs.checking.sampled_day import SampledDay
from beam_jobs.local_workers import with_local_workers

START_SECONDS = 3.5  # of a Beam job
EXCHANGE_FACTOR = 1.4  # a whole ingest over the same functions without regrouping rows
BUILD_SECONDS_PER_EXPOSURE = 1.6e-5  # a row of query, document and position, to shards
MEMORY_BASE_BYTES = 230 << 20  # a process that has started
MEMORY_WORKING_BYTES = 200 << 20  # what it holds of a log at most, a bucket at a time
MEMORY_PER_PROCESS_BYTES = 400 << 20  # of more than one: beam_jobs.local_workers
SHARD_BYTES_PER_PAIR = 700  # beam_jobs.build_config: 100,000 pairs with four negatives are about 64 MiB


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
