"""No engine reports to its makers: what each asks its environment is answered before any is imported, on every path."""

import json
import os
import subprocess
import sys

import pytest

ASKED = {"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false", "RAY_USAGE_STATS_ENABLED": "0"}
SAID = f"""
import json, os
from prefect._internal.analytics.enabled import is_telemetry_enabled
from prefect.settings import get_current_settings
from ray._common.usage.usage_lib import usage_stats_enabled
print(json.dumps([{{name: os.environ.get(name) for name in {list(ASKED)}}}, is_telemetry_enabled(),
                  get_current_settings().server.analytics_enabled, usage_stats_enabled()]))
"""


def said_after(module: str, **given: str) -> list:
    environment = {name: value for name, value in os.environ.items() if name not in (*ASKED, "CI")} | given
    command = [sys.executable, "-c", f"import {module}{SAID}"]
    return json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [
        "flows.cli", "flows.pipeline", "flows.server_run", "flows.chain", "flows.backfill",  # and what they start
        "training.ray_workers", "training.sweep.on_ray", "flows.releases.encode_on_ray", "beam_jobs.engine",
    ],
)  # fmt: skip
def test_nothing_is_reported_whichever_module_comes_first(module):
    assert said_after(module) == [ASKED, False, False, False]


def test_who_wants_to_report_may():
    given = {"DO_NOT_TRACK": "0", "PREFECT_SERVER_ANALYTICS_ENABLED": "true", "RAY_USAGE_STATS_ENABLED": "1"}
    assert said_after("flows.cli", **given)[0] == given
