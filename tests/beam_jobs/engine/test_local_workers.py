import pytest

from clicktower.beam_jobs.engine import engine_options
from clicktower.beam_jobs.engine.engine_options import WORTH_PROCESSES_BYTES, with_local_workers

PROCESSES = ("--direct_running_mode=multi_processing", "--direct_num_workers=3")


@pytest.fixture(autouse=True)
def _three_cores(monkeypatch):
    monkeypatch.setattr(engine_options.os, "sched_getaffinity", lambda _: {0, 1, 2})


def test_much_input_is_spread_over_the_cores_and_little_is_not():
    assert with_local_workers([], WORTH_PROCESSES_BYTES - 1) == ()
    assert with_local_workers([], WORTH_PROCESSES_BYTES) == PROCESSES
    assert with_local_workers(["--job_name=x"], 1 << 40) == ("--job_name=x", *PROCESSES)


@pytest.mark.parametrize("option", ["--runner=FlinkRunner", "--runner", "--direct_num_workers=1"])
def test_what_the_user_says_stands(option):
    assert with_local_workers([option], 1 << 40) == (option,)


def test_one_core_is_left_alone(monkeypatch):
    monkeypatch.setattr(engine_options.os, "sched_getaffinity", lambda _: {0})
    assert with_local_workers([], 1 << 40) == ()
