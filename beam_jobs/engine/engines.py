"""Engines that `make engines` installs (deploy/engines/install.py), as Beam's options name them; without Beam.

with_engines(["--runner=PrismRunner"], ".engines")  # adds --prism_location=.engines/prism
"""

import json
import os
from collections.abc import Sequence

from clicktower.beam_jobs.engine.engine_options import runner_name, value_of

MINI_CLUSTER = ("[local]", "[auto]")  # Flink inside its job server, on this machine


# The names of the files.
PRISM = "prism"
FLINK_JOB_SERVER = "flink-job-server/flink-job-server.jar"
LOOPBACK = "loopback.so"  # beside the job server's jar
PYTHON_WORKER = "python-worker"


def with_engines(beam_options: Sequence[str], engines: str) -> tuple[str, ...]:
    """The options, followed by those that they leave open and that `make engines` provides below the folder `engines`.

    Files are not checked: a missing one is reported at its start. The user's own options stay unchanged,
    and with a `--job_endpoint` the engine already runs.
    """
    options, name = list(beam_options), runner_name(beam_options)
    if value_of("job_endpoint", options):
        return tuple(options)
    folder = os.path.abspath(engines)
    if name == "PrismRunner":
        _fill_in(options, "prism_location", os.path.join(folder, PRISM))
    elif name == "FlinkRunner":
        _fill_in(options, "flink_job_server_jar", os.path.join(folder, FLINK_JOB_SERVER))
        _fill_in(options, "flink_master", MINI_CLUSTER[0])
        # Otherwise every step of the job starts Python workers of its own, for some seconds each.
        _fill_in(options, "environment_cache_millis", "10000")
        if value_of("flink_master", options) in MINI_CLUSTER:
            _fill_in(options, "parallelism", str(os.cpu_count() or 1))
        elif not value_of("environment_type", options):
            options.append("--environment_type=PROCESS")
            _fill_in(options, "environment_config", json.dumps({"command": os.path.join(folder, PYTHON_WORKER)}))
    return tuple(options)


def _fill_in(options: list[str], name: str, value: str) -> None:
    if not value_of(name, options):
        options.append(f"--{name}={value}")
