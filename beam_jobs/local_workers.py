"""How many processes a job on this machine is worth, where its options do not say."""

import os
from collections.abc import Sequence

# Two processes cost half a second more than one (beam_jobs.forked_workers), and what a core does in it is so many bytes
# of a log, or of days: from a few times as many on they bring in more than they cost (benchmarks/preprocessing.py).
WORTH_PROCESSES_BYTES = 256 << 20
WORTH_PROCESSES_DAY_BYTES = 128 << 20
MAX_PROCESSES = 16  # each holds a bucket or two and what it gathers: about 0.4 GB


def with_local_workers(
    beam_options: Sequence[str], input_bytes: int, worth_bytes: int = WORTH_PROCESSES_BYTES
) -> tuple[str, ...]:
    """The options; without any about runner or mode, and for much input, those of one worker process for each core.

    `input_bytes`: uncompressed. `worth_bytes`: what is much.
    """
    options = tuple(beam_options)
    chosen = any(option.startswith(("--runner", "--direct_")) for option in options)
    num_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    num_processes = min(num_cores, MAX_PROCESSES)
    if chosen or num_processes < 2 or input_bytes < worth_bytes:
        return options
    return (*options, "--direct_running_mode=multi_processing", f"--direct_num_workers={num_processes}")
