from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import StageError
from training.compute.reduction import GradientSum, RowGradient, Workers

COLUMNS, ROWS = 3, torch.tensor([1, 4, 7, 9])
THREADS = ThreadPoolExecutor(2)


def gradient_sum(*, exact: bool = True, num_addends: int = 8) -> GradientSum:
    return GradientSum({"query": ROWS}, COLUMNS, torch.float32, exact=exact, num_addends=num_addends)


def addend(rng: np.random.Generator) -> tuple[list[tuple[str, RowGradient]], torch.Tensor]:
    rows = ROWS[torch.from_numpy(np.sort(rng.choice(4, rng.integers(1, 5), replace=False)))]
    values = rng.normal(size=(len(rows), COLUMNS)) * 10.0 ** rng.integers(-6, 4)
    return (
        [("query", RowGradient(rows, torch.from_numpy(values).float()))],
        torch.tensor(float(rng.random()), dtype=torch.float32),
    )


def add(total: GradientSum, made) -> None:
    gradients, loss = made
    copies = [(tower, RowGradient(g.rows, g.values.clone())) for tower, g in gradients]
    total.add(total.addend(copies, loss.clone()), THREADS)


class Others:
    """A worker whose fellows' sums are given."""

    rank, size = 0, 2

    def __init__(self, others: list[torch.Tensor]) -> None:
        self._others = others

    def unite(self, touched: torch.Tensor) -> None: ...

    def add_up(self, values: torch.Tensor) -> None:
        for other in self._others:
            values += other


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), num_workers=st.integers(1, 5), data=st.data())
def test_exact_sum_is_the_same_bits_however_addends_are_grouped_and_ordered(seed, num_workers, data):
    rng = np.random.default_rng(seed)
    addends = [addend(rng) for _ in range(8)]
    alone = gradient_sum()
    for a in addends:
        add(alone, a)
    expected, loss = alone.over(Workers())

    order = data.draw(st.permutations(range(8)))
    owner = data.draw(st.lists(st.integers(0, num_workers - 1), min_size=8, max_size=8))
    sums = [gradient_sum() for _ in range(num_workers)]
    for at in order:
        add(sums[owner[at]], addends[at])
    grouped, grouped_loss = sums[0].over(Others([s._flat for s in sums[1:]]))
    assert torch.equal(grouped["query"], expected["query"])
    assert grouped_loss == loss


@pytest.mark.parametrize("exact", [True, False])
def test_sum_is_the_sum_and_not_the_mean(exact):
    total = gradient_sum(exact=exact)
    for _ in range(3):
        add(total, ([("query", RowGradient(ROWS[1:3], torch.full((2, COLUMNS), 0.25)))], torch.tensor(1.5)))
    gradients, loss = total.over(Workers())
    assert gradients["query"].tolist() == [[0] * 3, [0.75] * 3, [0.75] * 3, [0] * 3]
    assert loss == 4.5


def test_exact_sum_is_off_by_no_more_than_its_unit():
    rng = np.random.default_rng(0)
    addends, dense = [addend(rng) for _ in range(8)], np.zeros((10, COLUMNS))
    total = gradient_sum()
    for gradients, loss in addends:
        add(total, (gradients, loss))
        dense[gradients[0][1].rows.numpy()] += gradients[0][1].values.double().numpy()
    found = total.over(Workers())[0]["query"].double().numpy()
    np.testing.assert_allclose(found, dense[ROWS.numpy()], rtol=2.0**-24, atol=8 * 2.0**-40)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1e7])
def test_what_does_not_fit_the_fixed_point_is_an_error_and_never_wraps(bad):
    # 2^62 units of 2^-40 are 4,194,304; with 8 addends each may have 524,288 at most
    total = gradient_sum()
    add(total, ([("query", RowGradient(ROWS[:1], torch.tensor([[1.0, bad, 2.0]])))], torch.tensor(0.0)))
    with pytest.raises(StageError, match=r"not finite, or above 5\.24e"):
        total.over(Workers())


def test_a_worker_without_a_share_adds_exact_zeros():
    busy, idle = gradient_sum(), gradient_sum()
    add(busy, addend(np.random.default_rng(3)))
    alone, _ = busy.over(Workers())
    together, _ = busy.over(Others([idle._flat]))
    assert torch.equal(alone["query"], together["query"])
