import numpy as np
import pytest

from clicktower.training.towers.text_batch import distinct


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32])
@pytest.mark.parametrize(("count", "below"), [(0, 5), (1, 1), (1000, 30), (5000, 60_000), (5, 2**31)])
def test_distinct_ids_are_those_of_numpy(count, below, dtype):
    ids = np.random.default_rng(count).integers(0, below, count).astype(dtype)
    found, places = distinct(ids)
    expected, expected_places = np.unique(ids, return_inverse=True)
    assert found.tolist() == expected.tolist()
    assert places.tolist() == expected_places.tolist()
    assert found.dtype == dtype
