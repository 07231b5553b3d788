"""The line of progress says everything in 100 columns."""

import pytest

from training.progress_line import clock, progress_line

FACTS = {
    "epoch": 3,
    "epochs": 20,
    "step": 48,
    "steps": 1_270,
    "seconds_left": 750.4,
    "pairs_per_second": 24_713.2,
    "loss": 0.23144,
    "norms": {"document": 9.8123, "query": 12.345},
    "clipped_share": 0.041,
    "dev_ndcg": 0.7119,
}


def test_it_says_where_the_run_is_and_how_it_goes():
    assert progress_line(**FACTS).split("\n") == [
        "epoch 3/20, step 48/1,270, 12:30 left",
        "24,713 pairs/s, loss 0.2314, gradient query 12.3 document 9.81, clipped 4%, dev NDCG@10 0.712",
    ]


def test_what_is_not_known_or_does_not_apply_is_left_out():
    line = progress_line(
        **FACTS | {"seconds_left": None, "clipped_share": None, "dev_ndcg": None, "norms": {"shared": 1234.5}}
    )
    assert line == "epoch 3/20, step 48/1,270\n24,713 pairs/s, loss 0.2314, gradient shared 1,234"


def test_it_fits_into_100_columns_with_large_numbers_too():
    large = FACTS | {"epochs": 100, "epoch": 100, "step": 12_345, "steps": 12_345, "seconds_left": 360_000.0,
                     "pairs_per_second": 254_713.0, "loss": 12.5, "clipped_share": 1.0,
                     "norms": {"query": 12345.0, "document": 12345.0}}  # fmt: skip
    beside, below = progress_line(**large).split("\n")
    assert len(beside) <= 100 - 50  # the bar, its share and the time so far take 50
    assert len(below) <= 100 - 2


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.2, "0:00"), (7, "0:07"), (59.6, "1:00"), (750, "12:30"), (11_109, "3:05:09")]
)
def test_a_clock_reads_as_people_read_it(seconds, shown):
    assert clock(seconds) == shown
