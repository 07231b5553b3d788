"""Both jobs make the same day and the same shards, line by line of the ledger, whatever runs them."""

import pytest

from tests.beam_jobs.engine.outcome import run_both_jobs

pytestmark = pytest.mark.engine


def test_two_processes(shop, expected, tmp_path):
    options = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
    assert run_both_jobs(shop, tmp_path, options) == expected


def test_prism(prism, shop, expected, tmp_path):
    assert run_both_jobs(shop, tmp_path, ["--runner=PrismRunner"]) == expected


def test_flink_mini_cluster(flink, shop, expected, tmp_path):
    assert run_both_jobs(shop, tmp_path, ["--runner=FlinkRunner", "--parallelism=2"]) == expected


def test_the_log_exercises_every_step(expected):
    """Or else equal outcomes would say little: there are bots, rejects, judged fates, dev pairs and several shards."""
    assert expected.day["counts"]["bots_by_behaviour"] > 0
    assert expected.day["counts"]["rejects"] > 0
    assert expected.shards["counts"]["train_pairs"] > 500
    assert expected.shards["counts"]["dev_pairs"] > 0
    assert expected.shards["counts"]["shards"] > 2
    assert expected.shards["ledger"].lines["query_below_k"] > 0
