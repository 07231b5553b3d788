"""A seed is a number that NumPy, torch and the compiled code all take."""

from dataclasses import replace

import numpy as np
import pytest

from clicktower.beam_jobs.build.build_stage import BuildConfig
from clicktower.flows.cli import run
from clicktower.flows.config.guard_rules import PromotionRules
from clicktower.flows.config.sweep_config import SampleSection
from clicktower.flows.releases.ivf_index import partition
from clicktower.flows.releases.publish import PublishConfig
from clicktower.flows.simulation.simulation_config import SimulationConfig, bits
from clicktower.schemas.errors import UsageError
from clicktower.schemas.section import changed
from clicktower.schemas.text_contract import keyed_digest
from clicktower.training.evaluation.evaluate_labelled_stage import EvaluateLabelledConfig
from clicktower.training.evaluation.evaluate_stage import EvaluateConfig
from clicktower.training.model.parameters import initial_parameters, layout_of
from clicktower.training.ranking.doc2vec import TitleDoc2Vec
from clicktower.training.ranking.ndcg import bootstrap_interval
from clicktower.training.ranking.plsa import TitlePLSA
from clicktower.training.trainer.shard_data import Order, shared_pool
from tests.recipes import recipe_with

RECIPE = recipe_with(name="small", cells=4)
CONFIGS = (
    RECIPE, BuildConfig(), EvaluateConfig(), EvaluateLabelledConfig(), PromotionRules(), PublishConfig(),
    SimulationConfig(), SampleSection(points=1),
)  # fmt: skip
LARGEST = 2**63 - 1


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
def test_every_seed_has_the_same_bounds(config):
    assert changed(config, {"seed": LARGEST}).seed == LARGEST
    for beyond in (-1, 2**63, 2**64, 10**30):
        with pytest.raises(UsageError, match="The field seed is"):
            changed(config, {"seed": beyond})


@pytest.mark.parametrize("words", [["nearest-words", "a", "--shards", "s"], ["demo"]])
@pytest.mark.parametrize("seed", ["-1", str(2**63)])
def test_seeds_of_commands_too(words, seed, capsys):
    assert run([*words, "--seed", seed, "--json"]) == 2


def test_the_largest_is_taken_everywhere():
    assert initial_parameters(layout_of(replace(RECIPE, seed=LARGEST), 200), "query").isfinite().all()
    order = Order(lengths=[np.ones(64, np.int64)], micro_batch=8, minibatch=16, seed=LARGEST)
    assert len(order.epoch(0)) == 4
    assert len(set(shared_pool(100, 10, seed=LARGEST, epoch=1, place=2))) == 10
    assert len(keyed_digest("text", LARGEST, b"test")) == 8
    assert bits(LARGEST, "test", np.arange(3)).dtype == np.uint64
    values = np.random.default_rng(LARGEST).random((30, 1))
    assert np.isfinite(bootstrap_interval(values, num_resamples=20, seed=LARGEST)).all()
    titles = ["red hammer", "blue saw", "green nail"] * 4
    assert len(partition(np.random.default_rng(0).random((300, 8)).astype("f4"), seed=LARGEST).centres_PD)
    for system in (TitlePLSA(titles, topics=2, seed=LARGEST), TitleDoc2Vec(titles, titles, seed=LARGEST, epochs=1)):
        assert np.isfinite(system.scores(["hammer"])).all()
