"""How many processes a job on this machine is worth, where its options do not say."""

import os
from collections.abc import Sequence

# A worker process takes some three seconds to start, and reads some 20 MB of log a second on one core: from here on a
# second one brings in more than it costs (benchmarks/preprocessing.py).
WORTH_PROCESSES_BYTES = 1 << 30
MAX_PROCESSES = 16  # each holds a bucket or two and what it gathers: about 0.4 GB


def with_local_workers(beam_options: Sequence[str], input_bytes: int) -> tuple[str, ...]:
    """The options; without any about runner or mode, and for much input, those of one worker process for each core.

    `input_bytes`: uncompressed.
    """
    options = tuple(beam_options)
    chosen = any(option.startswith(("--runner", "--direct_")) for option in options)
    num_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    num_processes = min(num_cores, MAX_PROCESSES)
    if chosen or num_processes < 2 or input_bytes < WORTH_PROCESSES_BYTES:
        return options
    return (*options, "--direct_running_mode=multi_processing", f"--direct_num_workers={num_processes}")
