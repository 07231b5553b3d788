"""What Beam's options say about the engine, read without Beam, and how many processes a job has by default."""

import argparse
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from clicktower.schemas import storage
from clicktower.schemas.process import make_scratch

_RUNNERS = ("FnApiRunner", "PrismRunner", "FlinkRunner", "DataflowRunner", "PortableRunner")
_IN_THIS_PROCESS = ("DirectRunner", "SwitchingDirectRunner", "BundleBasedDirectRunner")


def runner_name(beam_options: Sequence[str]) -> str:
    """The runner that the options select, by Beam's full name: FnApiRunner by default, and for DirectRunner.

    Beam's DirectRunner first tries to download another runner, so here it means the one that needs nothing.
    """
    runner = value_of("runner", beam_options) or "FnApiRunner"
    runners = {name.lower(): name for name in (*_RUNNERS, *_IN_THIS_PROCESS)}
    name = runners.get(runner.lower()) or runners.get(f"{runner.lower()}runner") or runner.rsplit(".", 1)[-1]
    return "FnApiRunner" if name in _IN_THIS_PROCESS else name


@contextmanager
def exchange_scratch(beam_options: Sequence[str], folder: str) -> Iterator[str | None]:
    """Where rows wait between two steps, for a runner that would keep them all in memory; None for a runner with a
    shuffle of its own (see arrow_files).

    `folder` if it is local, as all workers of these runners are; otherwise a temporary folder, because on an object
    store these rows would be many times the output.
    """
    name = runner_name(beam_options)
    if name not in ("FnApiRunner", "PrismRunner"):
        yield None
    elif storage.is_local(folder) or value_of("job_endpoint", beam_options):  # another user's Prism, and its workers
        yield folder
    else:
        scratch = make_scratch()
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def asks_for_processes(beam_options: Sequence[str]) -> bool:
    """Whether the options ask for worker processes on this machine, which FnApiRunner starts."""
    return (
        runner_name(beam_options) == "FnApiRunner"
        and value_of("direct_running_mode", beam_options) == "multi_processing"
    )


def value_of(name: str, options: Sequence[str]) -> str | None:
    """The value of `--name=value` or `--name value`; the last one counts, as in Beam."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False, exit_on_error=False)
    parser.add_argument(f"--{name}", dest="value", nargs="?")
    try:
        return parser.parse_known_args(list(options))[0].value
    except argparse.ArgumentError:  # Beam's own error is better
        return None


# Two processes cost half a second more than one (forked_workers), in which a core processes this many bytes of a log,
# or of days: from a few times as many on, they are worth their cost (benchmarks/preprocessing.py).
WORTH_PROCESSES_BYTES = 256 << 20
WORTH_PROCESSES_DAY_BYTES = 128 << 20
MAX_PROCESSES = 16  # each has a bucket or two and the rows it collects: about 0.4 GB


def with_local_workers(
    beam_options: Sequence[str], input_bytes: int, worth_bytes: int = WORTH_PROCESSES_BYTES
) -> tuple[str, ...]:
    """The options; for a large input, if they name no runner or mode, one worker process per core is added.

    `input_bytes`: uncompressed. `worth_bytes`: the size from which processes are worth their start.
    """
    options = tuple(beam_options)
    chosen = any(option.startswith(("--runner", "--direct_")) for option in options)
    num_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    num_processes = min(num_cores, MAX_PROCESSES)
    if chosen or num_processes < 2 or input_bytes < worth_bytes:
        return options
    return (*options, "--direct_running_mode=multi_processing", f"--direct_num_workers={num_processes}")
