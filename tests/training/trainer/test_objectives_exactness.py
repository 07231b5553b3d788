"""One model, whoever computes it, for labels and for reconstruction, as test_exactness has it for clicks."""

from dataclasses import replace

import pytest
import torch

from tests.recipes import varied
from tests.training.trainer.gloo_workers import Death, run_workers
from tests.training.trainer.labelled_builds import built, questions, statements
from tests.training.trainer.objective_recipes import GENERATE, PAIRS, TEXTS
from tests.training.trainer.test_exactness import alone, job, sha256

torch.set_num_threads(1)


@pytest.fixture(scope="module", params=["classify pairs", "classify texts", "generate pairs"])
def asked(request, tmp_path_factory):
    recipe = {"classify pairs": PAIRS, "classify texts": TEXTS, "generate pairs": GENERATE}[request.param]
    if recipe is GENERATE:
        recipe = varied(recipe, reformulate=True, paraphrase="same")
    # 80 of them are trained on: 10 micro-batches, of which the last minibatch has 2 instead of 4.
    build = built(tmp_path_factory.mktemp("build"), statements(100) if recipe is TEXTS else questions(100))
    return lambda folder, **of_job: replace(job(build, folder, recipe=recipe), **of_job)


@pytest.fixture(scope="module")
def expected(asked, tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("alone")
    return alone(asked(folder), folder)


@pytest.mark.slow
def test_the_number_of_workers_does_not_show_in_the_bytes(asked, expected, tmp_path):
    run_workers(asked(tmp_path), 3, tmp_path)
    assert sha256(tmp_path) == expected


@pytest.mark.slow
def test_threads_and_checkpoints_do_not_show_in_the_bytes(asked, expected, tmp_path):
    assert alone(asked(tmp_path, threads=3, checkpoint_seconds=0.0), tmp_path) == expected


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bytes(asked, expected, tmp_path):
    """Adam's counts, dropout's masks and the draws of z are those of the update, not of the process or of how many
    there are: two, then one."""
    killed = asked(tmp_path, checkpoint_seconds=0.0)
    assert run_workers(killed, 2, tmp_path, Death(rank=1, sums=12, after=True)) is None
    metrics = run_workers(killed, 1, tmp_path)
    assert 0 < metrics["resumed_at"] < metrics["updates"]
    assert metrics["refused_checkpoints"] == []
    assert sha256(tmp_path) == expected


@pytest.mark.slow
def test_another_seed_gives_another_model(asked, expected, tmp_path):
    recipe = asked(tmp_path).recipe
    assert alone(asked(tmp_path, recipe=replace(recipe, seed=2)), tmp_path) != expected
