"""What is read from Beam's options without Beam, and what is filled in where they are silent."""

import json
import os

import pytest

from clicktower.beam_jobs.engine.beam_engine import run_pipeline
from clicktower.beam_jobs.engine.engine_options import exchange_scratch, runner_name
from clicktower.beam_jobs.engine.engines import with_engines
from clicktower.schemas.errors import UsageError


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ([], "FnApiRunner"),
        (["--runner=DirectRunner"], "FnApiRunner"),
        (["--runner", "prism"], "PrismRunner"),
        (["--parallelism=2", "--runner=flinkrunner"], "FlinkRunner"),
        (["--runner=prism", "--runner=FlinkRunner"], "FlinkRunner"),  # the last one counts, as for Beam
        (["--runner=some.module.TheirRunner"], "TheirRunner"),
        (["--runner"], "FnApiRunner"),  # Beam refuses it in a moment
    ],
)
def test_the_runner_is_known_by_its_full_name(options, name):
    assert runner_name(options) == name


@pytest.mark.parametrize("options", [[], ["--runner=PrismRunner"]])
def test_of_a_store_elsewhere_rows_wait_in_a_private_folder_of_this_machine(options):
    with exchange_scratch(options, "memory://store/scratch") as scratch:
        assert os.stat(scratch).st_mode & 0o777 == 0o700
    assert not os.path.exists(scratch)
    with exchange_scratch(["--runner=PrismRunner", "--job_endpoint=h:1"], "memory://store/scratch") as scratch:
        assert scratch == "memory://store/scratch"


def test_nothing_is_filled_in_where_no_engine_is_asked_for():
    assert with_engines(["--direct_num_workers=2"], "/e") == ("--direct_num_workers=2",)
    assert with_engines(["--runner=FlinkRunner", "--job_endpoint=h:1"], "/e")[2:] == ()


def test_what_the_user_gave_stays():
    given = ["--runner=PrismRunner", "--prism_location", "/opt/prism"]
    assert with_engines(given, "/e") == tuple(given)


def test_the_mini_cluster_needs_no_further_option():
    filled = with_engines(["--runner=FlinkRunner"], "/e")
    assert "--flink_job_server_jar=/e/flink-job-server/flink-job-server.jar" in filled
    assert "--flink_master=[local]" in filled
    assert not [option for option in filled if option.startswith("--environment_type")]  # LOOPBACK, by Beam


def test_a_cluster_starts_the_workers_that_make_engines_provides():
    filled = with_engines(["--runner=FlinkRunner", "--flink_master=host:8081"], "/e")
    assert "--environment_type=PROCESS" in filled
    config = next(option.partition("=")[2] for option in filled if option.startswith("--environment_config="))
    assert json.loads(config) == {"command": "/e/python-worker"}
    theirs = ["--runner=FlinkRunner", "--flink_master=host:8081", "--environment_type=DOCKER"]
    assert not [option for option in with_engines(theirs, "/e") if option.startswith("--environment_config")]


@pytest.mark.parametrize(
    ("runner", "missing"), [("PrismRunner", "prism"), ("FlinkRunner", "flink-job-server/flink-job-server.jar")]
)
def test_an_engine_that_is_not_there_is_named_with_what_brings_it(tmp_path, runner, missing):
    with pytest.raises(UsageError) as caught:
        run_pipeline(lambda _: None, with_engines([f"--runner={runner}"], str(tmp_path)))
    assert str(tmp_path / missing) in caught.value.problem
    assert "make engines" in caught.value.fix
