"""An error that a worker raised is the error the caller gets from any engine, and the terminal stays clean."""

import tempfile

import apache_beam as beam
import pytest

from clicktower.beam_jobs.engine.beam_engine import relay_stage_errors, run_pipeline
from clicktower.beam_jobs.engine.engines import with_engines
from clicktower.schemas.errors import StageError, UsageError

pytestmark = pytest.mark.engine


@relay_stage_errors
def _refuse(_element):
    raise UsageError("«Found» 電.", "Do it.")


def _break(_element):
    return {}["canary-in-a-log-line"]


@pytest.fixture(params=["prism", "flink"])
def options(request, engines):
    request.getfixturevalue(request.param)
    return with_engines([f"--runner={request.param}", "--parallelism=1"], str(engines))


def test_a_stage_error_of_a_worker_reaches_the_caller(options, capfd):
    with pytest.raises(UsageError) as caught:
        run_pipeline(lambda pipeline: pipeline | beam.Create([1]) | beam.Map(_refuse), options)
    assert (caught.value.problem, caught.value.fix) == ("«Found» 電.", "Do it.")
    assert capfd.readouterr() == ("", "")


def test_any_other_is_told_without_quoting_it(options, capfd, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # the engine's log is kept
    with pytest.raises(StageError, match="the Beam job failed") as caught:
        run_pipeline(lambda pipeline: pipeline | beam.Create([1]) | beam.Map(_break), options)
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert f"the engine's output, which may quote data, is in {tmp_path}" in caught.value.fix
    assert capfd.readouterr() == ("", "")
