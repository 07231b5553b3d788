"""What benchmarks/classifiers_speed.py compares is the same model, and another one would end it."""

import numpy as np
import pytest
import torch

from benchmarks.classifiers_speed import ARRANGEMENTS, RECIPES, Bench, Questions, without_repeats
from benchmarks.real_questions import QuestionPair
from benchmarks.speed.step import TOLERANCE
from tests.recipes import varied

WORDS = ["how", "can", "i", "learn", "to", "swim", "über", "fast?"]
SMALL = {
    "siamese-lstm": {"cells": 5, "head_units": 6},
    "siamese-max": {"cells": 5, "head_units": 6},
    "gated-attention": {"cells": 5, "head_units": 6, "attention_units": 3, "factors": 4},
    "var-siamese": {"cells": 5, "head_units": 6, "latent": 4},
}


@pytest.fixture(scope="module")
def questions() -> Questions:
    random = np.random.default_rng(1)
    texts = [" ".join(random.choice(WORDS, random.integers(1, 9))) for _ in range(80)]
    drawn = [QuestionPair(str(random.integers(2)), *pair) for pair in zip(texts[::2], texts[1::2], strict=True)]
    return Questions(without_repeats(drawn))


def bench_of(name: str, questions: Questions) -> Bench:
    return Bench(questions, varied(RECIPES[name], **SMALL[name]), word_columns=3)


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize("name", RECIPES)
def test_stock_parts_compute_the_same_losses_and_gradients(questions, name, arrangement):
    assert 0 < bench_of(name, questions).agreement(arrangement, np.arange(3, 20)) < TOLERANCE


@pytest.mark.parametrize("name", RECIPES)
def test_every_gradient_is_compared(questions, name):
    bench = bench_of(name, questions)
    _, _, found = bench.ours(np.arange(3, 20))
    theirs = bench.stock_model.parts(dict(bench.stock_model.named_parameters()))
    assert theirs.keys() | {"table"} == found.keys()


def test_a_peer_that_computes_something_else_ends_the_benchmark(questions):
    bench = bench_of("gated-attention", questions)
    with torch.no_grad():
        bench.stock_model.above.W_s2.weight[1, 2] += 0.01
    with pytest.raises(SystemExit, match="compute different things"):
        bench.agreement("each side", np.arange(3, 20))


def test_a_pair_with_a_question_of_an_earlier_pair_is_left_out():
    pairs = [QuestionPair("1", *both) for both in (("a", "b"), ("c", "c"), ("b", "d"), ("d", "e"))]
    assert without_repeats(pairs) == [pairs[0], pairs[3]]
