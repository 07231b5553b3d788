from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.training.trainer.shard_data import Order


def order(sizes, micro_batch=4, run=3, seed=1) -> Order:
    rng = np.random.default_rng(0)
    return Order(
        lengths=[rng.integers(2, 30, size) for size in sizes],
        micro_batch=micro_batch,
        minibatch=micro_batch * run,
        seed=seed,
    )


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(
    sizes=st.lists(st.integers(0, 150), min_size=1, max_size=4).filter(any),
    micro_batch=st.integers(1, 9),
    run=st.integers(1, 5),
    epoch=st.integers(0, 50),
)
def test_every_pair_is_in_exactly_one_micro_batch_of_an_epoch(sizes, micro_batch, run, epoch):
    made = order(sizes, micro_batch, run)
    minibatches = made.epoch(epoch)
    assert len(minibatches) == made.num_minibatches
    seen = Counter((m.shard, int(pair)) for minibatch in minibatches for m in minibatch for pair in m.pairs)
    assert seen == Counter((shard, pair) for shard, size in enumerate(sizes) for pair in range(size))
    assert all(len(minibatch) <= run for minibatch in minibatches)
    short = Counter(m.shard for minibatch in minibatches for m in minibatch if len(m.pairs) < micro_batch)
    assert all(count == 1 for count in short.values())  # only a shard's last one is not full


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_workers_shares_are_the_minibatch_whatever_their_number(size):
    for minibatch in order([50, 33]).epoch(2):
        shares = [minibatch[rank::size] for rank in range(size)]
        assert sorted(id(m) for share in shares for m in share) == sorted(id(m) for m in minibatch)


def test_order_depends_on_seed_and_epoch_and_on_nothing_else():
    def flat(made: Order, epoch: int) -> list[tuple]:
        return [(m.shard, *m.pairs.tolist()) for minibatch in made.epoch(epoch) for m in minibatch]

    assert flat(order([40, 20]), 3) == flat(order([40, 20]), 3)
    assert flat(order([40, 20]), 3) != flat(order([40, 20]), 4)
    assert flat(order([40, 20]), 3) != flat(order([40, 20], seed=2), 3)


def test_texts_of_like_length_are_brought_together_within_a_window():
    made = order([4_000], micro_batch=16)
    spread = np.mean([np.ptp(made.lengths[0][m.pairs]) for minibatch in made.epoch(0) for m in minibatch])
    assert spread < np.ptp(made.lengths[0]) / 4  # 16 random ones would span nearly all of it
