import gc
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from clicktower.training.towers import threads as kept_memory
from clicktower.training.towers.threads import empty

LARGE = 1 << 17  # float64 numbers


@pytest.fixture(autouse=True)
def _nothing_free(monkeypatch) -> None:
    monkeypatch.setattr(kept_memory, "_free", [])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(0, 7), (3, 7), (LARGE, 3)])
def test_a_tensor_is_of_the_shape_and_kind_asked_for(shape, dtype):
    made = empty(shape, torch.zeros(1, dtype=dtype))
    assert (made.shape, made.dtype, made.is_contiguous()) == (shape, dtype, True)


@pytest.mark.slow
def test_memory_is_used_again_once_no_view_of_it_is_left():
    like = torch.zeros(1, dtype=torch.float64)
    first = empty((LARGE, 2), like)
    place, view = first.data_ptr(), first[5:].t()
    del first
    gc.collect()
    assert empty((LARGE, 2), like).data_ptr() != place
    del view
    gc.collect()
    assert place in {empty((LARGE, 2), like).data_ptr(), empty((LARGE, 2), like).data_ptr()}


@pytest.mark.slow
def test_the_smallest_block_that_is_large_enough_is_taken():
    like = torch.zeros(1, dtype=torch.float64)
    small, large = empty((LARGE,), like), empty((8 * LARGE,), like)
    places = small.data_ptr(), large.data_ptr()
    del small, large
    gc.collect()
    again = empty((LARGE // 2,), like), empty((4 * LARGE,), like)
    assert (again[0].data_ptr(), again[1].data_ptr()) == places


@pytest.mark.slow
def test_what_is_free_is_bounded():
    like = torch.zeros(1, dtype=torch.float64)
    for size in range(1, 40):
        held = [empty((LARGE * size,), like) for _ in range(3)]
        del held
    gc.collect()
    assert len(kept_memory._free) <= kept_memory._MOST_FREE + 3


def test_threads_never_share_memory():
    def write_and_read(number: int) -> bool:
        mine = empty((LARGE,), torch.zeros(1, dtype=torch.float64)).fill_(number)
        return bool((mine == number).all())

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(write_and_read, range(400)))
