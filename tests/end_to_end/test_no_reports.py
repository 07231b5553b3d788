"""No engine reports to its makers: what each asks its environment is answered before any is imported, on every path."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

ASKED = {"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "RAY_USAGE_STATS_ENABLED": "0"}
ANSWERS = """
import json, os, sys
def prefect():
    from prefect._internal.analytics.enabled import is_telemetry_enabled
    from prefect.settings import get_current_settings
    return is_telemetry_enabled() or get_current_settings().server.analytics_enabled
def ray():
    from ray._common.usage.usage_lib import usage_stats_enabled
    return usage_stats_enabled()
"""


def environment_and_reporters(module: str, engines: str, **given: str) -> list:
    """What the engines find when `module` has been imported, and which of them report."""
    asking = f"{ANSWERS}import {module}\nprint(json.dumps([{{name: os.environ.get(name) for name in {list(ASKED)}}}, "
    asking += f"[engine.__name__ for engine in (prefect, ray) if engine.__name__ in {engines} and engine()]]))"
    environment = {name: value for name, value in os.environ.items() if name not in (*ASKED, "CI")} | given
    command = [sys.executable, "-c", asking]
    return json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


@pytest.mark.parametrize(
    "module",
    [
        "clicktower.flows.pipeline", "clicktower.flows.commands.pipelines",  # and what they start
        "clicktower.training.trainer.ray_workers", "clicktower.training.sweep.sweep_on_ray",
        "clicktower.beam_jobs.engine.beam_engine",
    ],
)  # fmt: skip
def test_nothing_is_reported_whichever_module_comes_first(module):
    """An engine that the module imports has read its environment by now; another one will read it later."""
    assert environment_and_reporters(module, engines="sys.modules") == [ASKED, []]


def test_no_command_reports():
    assert environment_and_reporters("clicktower.flows.cli", engines="('prefect', 'ray')") == [ASKED, []]


def test_who_wants_to_report_may():
    given = {"DO_NOT_TRACK": "0", "PREFECT_SERVER_ANALYTICS_ENABLED": "true", "RAY_USAGE_STATS_ENABLED": "1"}
    said = environment_and_reporters("clicktower.flows.cli", engines="('prefect', 'ray')", **given)
    assert said == [given, ["prefect", "ray"]]
