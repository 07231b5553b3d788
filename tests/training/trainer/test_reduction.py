from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.schemas.errors import StageError
from clicktower.training.model.parameters import LossGradient, RowGradient
from clicktower.training.towers import threads
from clicktower.training.trainer.large_update import Workers
from clicktower.training.trainer.reference_path import Total, total_gradient

COLUMNS, ROWS, SIZES = 3, torch.tensor([1, 4, 7, 9]), {"part": 5}
THREADS = ThreadPoolExecutor(2)


class Worker:
    """One of several, whose message to the others is kept, and theirs are given."""

    rank, size = 0, 2

    def __init__(self, messages: list[torch.Tensor]) -> None:
        self.message, self._messages = torch.empty(0), messages

    def unite(self, touched: torch.Tensor) -> None: ...

    def add_up(self, values: torch.Tensor) -> None:
        self.message = values.clone()
        for message in self._messages:
            values += message


def total(addends: list[LossGradient], workers=None, *, exact: bool = True, num_addends: int = 8) -> Total:
    copies = [
        (
            [
                (tower, RowGradient(g.rows, g.table_RG.clone(), {name: part.clone() for name, part in g.parts.items()}))
                for tower, g in gradients
            ],
            loss.clone(),
        )
        for gradients, loss in addends
    ]
    return total_gradient(
        copies, {"query": ROWS}, SIZES, COLUMNS, torch.float32, exact=exact, num_addends=num_addends,
        workers=workers or Workers(), threads=THREADS,
    )  # fmt: skip


def addend(rng: np.random.Generator) -> LossGradient:
    rows = ROWS[torch.from_numpy(np.sort(rng.choice(4, rng.integers(1, 5), replace=False)))]
    size = 10.0 ** rng.integers(-6, 4)
    table_RG, part = (torch.from_numpy(rng.normal(size=shape) * size).float() for shape in ((len(rows), COLUMNS), 5))
    loss = torch.tensor(float(rng.random()), dtype=torch.float32)
    return [("query", RowGradient(rows, table_RG, {"part": part}))], loss


def numbers(found: Total) -> list[float]:
    """All of them, W's first."""
    gradient = found.gradients["query"]
    return torch.cat([gradient.table_RG.view(-1), gradient.parts["part"]]).tolist()


def constant(rows: torch.Tensor, value: float, loss: float) -> LossGradient:
    table_RG, part = torch.full((len(rows), COLUMNS), value), torch.full((5,), value)
    return [("query", RowGradient(rows, table_RG, {"part": part}))], torch.tensor(loss)


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), num_workers=st.integers(1, 5), data=st.data())
def test_exact_sum_is_the_same_bits_however_addends_are_grouped_and_ordered(seed, num_workers, data):
    with mock.patch.object(threads, "BLOCK", 4), mock.patch.object(threads, "BLOCKS_AT_ONCE", 2):
        check_grouping(seed, num_workers, data)


def check_grouping(seed, num_workers, data):
    rng = np.random.default_rng(seed)
    addends = [addend(rng) for _ in range(data.draw(st.integers(1, 8)))]
    alone = total(addends)

    order = data.draw(st.permutations(addends))
    owner = data.draw(st.lists(st.integers(0, num_workers - 1), min_size=len(order), max_size=len(order)))
    shares = [[a for a, of_worker in zip(order, owner, strict=True) if of_worker == w] for w in range(num_workers)]
    messages = []
    for share in shares[1:]:
        worker = Worker([])
        total(share, worker)
        messages.append(worker.message)
    grouped = total(shares[0], Worker(messages))
    assert (numbers(grouped), grouped.loss, grouped.norms) == (numbers(alone), alone.loss, alone.norms)


def test_blocks_change_no_bit_of_a_sum(monkeypatch):
    def totals() -> list[Total]:
        addends = [addend(np.random.default_rng(seed)) for seed in range(3)]
        return [total(addends[:number], exact=exact) for number in (1, 3) for exact in (True, False)]

    whole = totals()
    monkeypatch.setattr(threads, "BLOCK", 2)
    blocks = totals()
    monkeypatch.setattr(threads, "BLOCKS_AT_ONCE", 1)
    for one, other, alone in zip(whole, blocks, totals(), strict=True):
        assert (numbers(one), one.loss) == (numbers(other), other.loss) == (numbers(alone), alone.loss)
        assert one.norms == pytest.approx(other.norms, rel=1e-6)
        assert other.norms == alone.norms, "however many blocks a thread takes at once"


@pytest.mark.parametrize("exact", [True, False])
def test_sum_is_the_sum_and_not_the_mean(exact):
    found = total([constant(ROWS[1:3], 0.25, 1.5)] * 3, exact=exact)
    assert numbers(found) == [*[0] * 3, *[0.75] * 6, *[0] * 3, *[0.75] * 5]
    assert found.loss == 4.5
    assert found.norms["query"] == pytest.approx(0.75 * 11**0.5)


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("rows", [torch.empty(0, dtype=torch.int64), ROWS])
def test_micro_batches_that_touch_no_row_of_w_still_move_the_parts(rows, exact):
    with mock.patch.dict(globals(), ROWS=rows):
        found = total([constant(rows[:0], 0.25, 1.5)] * 2, exact=exact)
    assert numbers(found) == [*[0] * (3 * len(rows)), *[0.5] * 5]


@pytest.mark.parametrize("num_addends", [1, 8])
def test_exact_sum_is_off_by_no_more_than_its_unit(num_addends):
    rng = np.random.default_rng(0)
    addends = [addend(rng) for _ in range(num_addends)]
    table, part = np.zeros((10, COLUMNS)), np.zeros(5)
    for ((_, gradient),), _ in addends:
        table[gradient.rows.numpy()] += gradient.table_RG.double().numpy()
        part += gradient.parts["part"].double().numpy()
    expected = [*table[ROWS.numpy()].ravel(), *part]
    np.testing.assert_allclose(numbers(total(addends)), expected, rtol=2.0**-24, atol=8 * 2.0**-40)


@pytest.mark.parametrize("where", ["table", "part", "loss"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1e7])
def test_what_does_not_fit_the_fixed_point_is_an_error_and_never_wraps(bad, where):
    # 2^62 units of 2^-40 are 4,194,304; with 8 addends each may have 524,288 at most
    gradients, loss = constant(ROWS[:1], 1.0, 0.0)
    values = {"table": gradients[0][1].table_RG[0], "part": gradients[0][1].parts["part"], "loss": loss[None]}[where]
    values[-1] = bad
    for addends in ([(gradients, loss)], [(gradients, loss), constant(ROWS, 1.0, 0.0)]):
        with pytest.raises(StageError, match=r"of 1 micro-batches are not finite, or above 5\.24e"):
            total(addends)


def test_a_worker_without_a_share_adds_exact_zeros():
    busy = [addend(np.random.default_rng(3))]
    idle = Worker([])
    total([], idle)
    assert numbers(total(busy)) == numbers(total(busy, Worker([idle.message])))
