"""A Ray that does not start in time, as on a slow machine: Ray's own start fails in its place."""

import pytest

from schemas.errors import StageError

ray_cluster = pytest.importorskip("training.ray_cluster")
TOO_SLOW = Exception("The current node timed out during startup. This could happen because ...")


@pytest.fixture
def starts(monkeypatch) -> list:
    """What comes of each start: an error, or None. Those that are left have not been tried."""
    left: list = []

    def start(**options) -> None:
        if error := left.pop(0):
            raise error

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray_cluster.ray, "init", start)
    return left


def test_a_start_that_took_too_long_is_tried_again(starts):
    starts += [TOO_SLOW, TOO_SLOW, None]
    with ray_cluster.cluster(2):
        assert starts == []


def test_one_that_always_takes_too_long_is_an_error_that_says_what_to_do(starts):
    starts += [TOO_SLOW] * ray_cluster.STARTS
    with pytest.raises(StageError, match="RAY_ADDRESS"), ray_cluster.cluster(2):
        pass
    assert starts == []


def test_any_other_failure_is_raised_at_once(starts):
    starts += [ValueError("no such thing"), None]
    with pytest.raises(ValueError, match="no such thing"), ray_cluster.cluster(2):
        pass
    assert starts == [None]
