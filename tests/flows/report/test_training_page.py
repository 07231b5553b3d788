"""What a page tells of a training: smoothed steps, worked by hand."""

import pytest

from clicktower.flows.report.training_blocks import NUM_POINTS, smoothed


def step(update: int, loss: float) -> dict:
    return {"update": update, "loss": loss, "gradient_norm_query": 2 * loss}


def test_few_steps_are_shown_as_they_are():
    points = smoothed([step(1, 3.0), step(2, 1.0), step(3, 2.0)], steps_per_epoch=2)
    assert points == [
        {"epoch": 0.5, "loss": 3.0, "gradient_norm_query": 6.0},
        {"epoch": 1.0, "loss": 1.0, "gradient_norm_query": 2.0},
        {"epoch": 1.5, "loss": 2.0, "gradient_norm_query": 4.0},
    ]


def test_many_steps_are_means_of_a_fortieth_of_them_around_each():
    """80 steps: reach 1 to each side. The losses 0, 0, 3, 0, 0, 3, ... have the mean 1 over any three."""
    points = smoothed([step(u, 3.0 if u % 3 == 0 else 0.0) for u in range(1, 81)], steps_per_epoch=40)
    assert len(points) == 80
    assert [point["loss"] for point in points[1:-1]] == pytest.approx([1.0] * 78)
    assert points[0]["loss"] == 0.0  # updates 1 and 2 only
    assert points[0]["epoch"] == 1 / 40
    assert points[-1]["epoch"] == 2.0
    # Sorted 0, 0, 3: the 10th percentile is 0, the 90th lies at 1.8 between the second and the third: 0.8 x 3.
    assert (points[5]["loss_low"], points[5]["loss_high"]) == pytest.approx((0.0, 2.4))


def test_a_long_run_has_as_many_points_as_a_picture_is_wide():
    points = smoothed([step(u, 1.0) for u in range(1, 5_001)], steps_per_epoch=100)
    assert len(points) == NUM_POINTS
    assert (points[0]["epoch"], points[-1]["epoch"]) == (0.01, 50.0)
    assert smoothed([], 1) == []
