"""What Beam's options say about the engine, read without importing Beam, and defaults for the rest.

with_engines(["--runner=PrismRunner"], ".engines")  # adds --prism_location=.engines/prism
"""

import argparse
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from clicktower.schemas import storage
from clicktower.schemas.process import make_scratch

_RUNNERS = ("FnApiRunner", "PrismRunner", "FlinkRunner", "DataflowRunner", "PortableRunner")
_IN_THIS_PROCESS = ("DirectRunner", "SwitchingDirectRunner", "BundleBasedDirectRunner")
MINI_CLUSTER = ("[local]", "[auto]")  # Flink inside its job server, on this machine

# The names of the files that `make engines` installs (deploy/engines/install.py).
PRISM = "prism"
FLINK_JOB_SERVER = "flink-job-server/flink-job-server.jar"
LOOPBACK = "loopback.so"  # beside the job server's jar
PYTHON_WORKER = "python-worker"


def runner_name(beam_options: Sequence[str]) -> str:
    """The runner that the options select, by Beam's full name: FnApiRunner by default, and for DirectRunner.

    Beam's DirectRunner first tries to download another runner, so here it means the one that needs nothing.
    """
    runner = _value("runner", beam_options) or "FnApiRunner"
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
    elif storage.is_local(folder) or _value("job_endpoint", beam_options):  # another user's Prism, and its workers
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
        runner_name(beam_options) == "FnApiRunner" and _value("direct_running_mode", beam_options) == "multi_processing"
    )


def with_engines(beam_options: Sequence[str], engines: str) -> tuple[str, ...]:
    """The options, followed by those that they leave open and that `make engines` provides below the folder `engines`.

    Files are not checked: a missing one is reported at its start. The user's own options stay unchanged,
    and with a `--job_endpoint` the engine already runs.
    """
    options, name = list(beam_options), runner_name(beam_options)
    if _value("job_endpoint", options):
        return tuple(options)
    folder = os.path.abspath(engines)
    if name == "PrismRunner":
        _fill_in(options, "prism_location", os.path.join(folder, PRISM))
    elif name == "FlinkRunner":
        _fill_in(options, "flink_job_server_jar", os.path.join(folder, FLINK_JOB_SERVER))
        _fill_in(options, "flink_master", MINI_CLUSTER[0])
        # Otherwise every step of the job starts Python workers of its own, for some seconds each.
        _fill_in(options, "environment_cache_millis", "10000")
        if _value("flink_master", options) in MINI_CLUSTER:
            _fill_in(options, "parallelism", str(os.cpu_count() or 1))
        elif not _value("environment_type", options):
            options.append("--environment_type=PROCESS")
            _fill_in(options, "environment_config", json.dumps({"command": os.path.join(folder, PYTHON_WORKER)}))
    return tuple(options)


def _fill_in(options: list[str], name: str, value: str) -> None:
    if not _value(name, options):
        options.append(f"--{name}={value}")


def _value(name: str, options: Sequence[str]) -> str | None:
    """The value of `--name=value` or `--name value`; the last one counts, as in Beam."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False, exit_on_error=False)
    parser.add_argument(f"--{name}", dest="value", nargs="?")
    try:
        return parser.parse_known_args(list(options))[0].value
    except argparse.ArgumentError:  # Beam's own error is better
        return None


# The number of processes for a job on this machine, unless its options set it.


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
