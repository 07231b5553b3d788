"""What benchmarks/generative.py compares is the same model, and another one would end it."""

import numpy as np
import pytest
import torch

from benchmarks.generative import ARRANGEMENTS, Bench
from benchmarks.speed.step import TOLERANCE

WORDS = ["how", "can", "i", "learn", "to", "swim", "über", "fast?"]


@pytest.fixture
def bench() -> Bench:
    random = np.random.default_rng(1)
    texts = [" ".join(random.choice(WORDS, random.integers(1, 9))) for _ in range(24)]
    return Bench(texts, 6, {"cells": 5, "latent": 4, "decoder_cells": 7, "word_columns": 3})


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_stock_parts_compute_the_same_losses_and_gradients(bench, arrangement):
    assert bench.sizes.vocabulary == 8
    assert 0 < bench.agreement(arrangement, np.arange(3, 20)) < TOLERANCE


def test_a_peer_that_computes_something_else_ends_the_benchmark(bench):
    with torch.no_grad():
        bench.stocks["real words"].out.bias[2] += 0.01
    with pytest.raises(SystemExit, match="compute different things"):
        bench.agreement("real words", np.arange(3, 20))
