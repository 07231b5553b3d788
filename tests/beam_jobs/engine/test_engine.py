"""Running on Beam: the error a worker raised is the error the caller gets, and nothing is printed on the way."""

import apache_beam as beam
import pytest

from clicktower.beam_jobs.engine.beam_engine import relay_stage_errors, run_pipeline
from clicktower.schemas.errors import StageError, UsageError


@relay_stage_errors
def _refuse(_element):
    raise UsageError("«Found» 電.", "Do it.")


@relay_stage_errors
def _refuse_after_one(_element):
    yield 1
    raise StageError("Found.", "Do it.")


@pytest.mark.parametrize("step", [beam.Map(_refuse), beam.FlatMap(_refuse_after_one)])
def test_a_stage_error_of_a_worker_reaches_the_caller_and_nothing_is_printed(capfd, step):
    with pytest.raises(StageError) as caught:
        run_pipeline(lambda pipeline: pipeline | beam.Create([1]) | step, [])
    assert caught.value.problem == ("«Found» 電." if isinstance(caught.value, UsageError) else "Found.")
    assert caught.value.fix == "Do it."
    assert caught.value.__cause__ is None
    assert capfd.readouterr() == ("", "")


@pytest.mark.engine
def test_it_reaches_the_caller_from_another_process_too(capfd):
    options = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    with pytest.raises(UsageError, match="«Found» 電"):
        run_pipeline(lambda pipeline: pipeline | beam.Create([1]) | beam.Map(_refuse), options)
    assert capfd.readouterr() == ("", "")


def test_another_exception_stays_what_it_is():
    with pytest.raises(ZeroDivisionError):
        run_pipeline(lambda pipeline: pipeline | beam.Create([0]) | beam.Map(lambda x: 1 / x), [])


def test_options_beam_refuses_are_wrong_usage():
    with pytest.raises(UsageError, match="direct_num_workers=many"):
        run_pipeline(lambda pipeline: pipeline | beam.Create([1]), ["--direct_num_workers=many"])


def test_nothing_is_submitted_where_another_job_commits_while_the_engine_starts():
    """As that of a client that was killed right after it had sent its job to the cluster."""
    committed = iter([False, True])
    job = lambda pipeline: pipeline | beam.Create([1]) | beam.Map(_refuse)  # noqa: E731
    processes = ["--direct_running_mode=multi_processing", "--direct_num_workers=1"]
    run_pipeline(job, processes, has_committed=lambda: next(committed))
    assert list(committed) == []
