"""The line of progress says everything in 100 columns."""

import pytest

from clicktower.flows.report.run_blocks import held_out
from clicktower.training.trainer.run_report import clock, epoch_figure, progress_line

FACTS = {
    "epoch": 3,
    "epochs": 20,
    "step": 48,
    "steps": 1_270,
    "seconds_left": 750.4,
    "unit": "pairs",
    "per_second": 24_713.2,
    "loss": 0.23144,
    "norms": {"document": 9.8123, "query": 12.345},
    "clipped_share": 0.041,
    "held_out": "dev NDCG@10 0.712",
}


def test_it_says_where_the_run_is_and_how_it_goes():
    assert progress_line(**FACTS).split("\n") == [
        "epoch 3/20, step 48/1,270, 12:30 left",
        "24,713 pairs/s, loss 0.2314, gradient query 12.3 document 9.81, clipped 4%, dev NDCG@10 0.712",
    ]


def test_what_is_not_known_or_does_not_apply_is_left_out():
    line = progress_line(**FACTS | {"clipped_share": None, "held_out": "", "norms": {"shared": 1234.5}})
    assert line == "epoch 3/20, step 48/1,270, 12:30 left\n24,713 pairs/s, loss 0.2314, gradient shared 1,234"


def test_it_fits_into_100_columns_with_large_numbers_too():
    large = FACTS | {"epochs": 100, "epoch": 100, "step": 12_345, "steps": 12_345, "seconds_left": 360_000.0,
                     "per_second": 254_713.0, "loss": 12.5, "clipped_share": 1.0,
                     "norms": {"query": 12345.0, "document": 12345.0}}  # fmt: skip
    for more in ({}, {"unit": "examples", "norms": {"shared": 12345.0}, "held_out": "dev accuracy 0.712"}):
        _require_that_it_fits(*progress_line(**large | more).split("\n"))


def _require_that_it_fits(beside: str, below: str) -> None:
    assert len(beside) <= 100 - 50  # the bar, its share and the time so far take 50
    assert len(below) <= 100 - 2


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.2, "0:00"), (7, "0:07"), (59.6, "1:00"), (750, "12:30"), (11_109, "3:05:09")]
)
def test_a_clock_reads_as_people_read_it(seconds, shown):
    assert clock(seconds) == shown


@pytest.mark.parametrize(
    ("measured", "short", "full"),
    [
        ({"dev_loss": 0.4291, "dev_ndcg@10": 0.7119}, "dev NDCG@10 0.712", "held-out loss 0.429"),
        ({"dev_loss": 0.5, "dev_accuracy": 0.871, "dev_area_under_roc": 0.93}, "dev accuracy 0.871",
         "held-out loss 0.500, accuracy 0.871, area under ROC 0.930"),
        ({"dev_loss": 9.5, "dev_word_repeat": 2.3, "dev_word_reformulate": None, "dev_kl": 3.14159}, "dev word 2.300",
         "held-out loss 9.500, 2.300 nats a word, KL 3.14"),
        ({"dev_loss": None, "dev_accuracy": None, "dev_area_under_roc": None}, "", ""),
        ({}, "", ""),
    ],
)  # fmt: skip
def test_what_was_measured_on_held_out_data_is_told_as_its_objective_measures_it(measured, short, full):
    assert epoch_figure(measured) == short
    assert ", ".join(held_out(measured)) == full
