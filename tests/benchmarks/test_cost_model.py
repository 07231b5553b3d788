"""docs/running.md quotes what the cost model prints from the recorded results, and the model's arithmetic is right."""

import re
from pathlib import Path

import pytest

from benchmarks.cost_model import Load, Slopes, measured, report, stage_table, step_seconds

PAGE = " ".join((Path(__file__).parents[2] / "docs" / "running.md").read_text(encoding="utf-8").split())


def test_the_page_quotes_what_the_model_prints():
    slopes, stages, _, _ = report(Load()).split("\n\n")
    for stage, unit in (("ingest", "line"), ("build", "line of the window"), ("train", "pair and epoch")):
        [figure] = re.findall(rf"^\| {stage} \| ([\d.]+) core-µs per {unit} \|", slopes, re.M)
        assert re.search(rf"\b{re.escape(figure)}\s", PAGE), stage
    hours = dict(re.findall(r"^\| (ingest|train)[^|]* \| [^|]* \| ([\d.]+) \|", stages, re.M))
    assert f"{hours['ingest']} core-hours" in PAGE
    assert f"{float(hours['train']):.0f} core-hours" in PAGE


def test_the_slopes_are_those_of_the_recorded_results():
    """By hand: 2 cores x 14.316 s, the middle of five, / 10,201,271 lines; 2 threads / 29,724 pairs a second."""
    slopes = measured()
    assert slopes.ingest_line == pytest.approx(2.8067e-6, rel=1e-3)
    assert slopes.train_pair == pytest.approx(6.7286e-5, rel=1e-3)
    assert slopes.build_line == pytest.approx(2 * (15.501 - 4.441) / (51_054_184 - 10_201_271), rel=1e-6)


SLOPES = Slopes(
    ingest_line=1e-5,
    ingest_line_of_more=2e-5,
    build_line=1e-6,
    pairs_per_line=0.1,
    train_pair=1e-4,
    encode_title=1e-5,
    sums=1e9,
)


def test_one_machine_sends_nothing_and_two_send_the_gradient_once():
    """By hand: 16,384 x 0.1 ms / 16 cores = 102.4 ms; 19,584 rows x 288 x 8 bytes + 131,072 = 45.25 MB at 1 GB/s."""
    assert step_seconds(SLOPES, 16384, 1, 16, 1e9) == (pytest.approx(0.1024), 0.0)
    computing, sums = step_seconds(SLOPES, 16384, 2, 16, 1e9)
    assert computing == pytest.approx(0.0512)
    assert sums == pytest.approx(0.045252608 + 4 * 20e-6)


def test_core_hours_are_work_times_slope():
    """By hand: 3.6e8 lines x 10 µs = 1 core-hour; 1e6 pairs x 0.1 ms x 36 epochs = 1 core-hour."""
    lines = stage_table(SLOPES, Load(lines=3.6e8, pairs=1e6, epochs=36, titles=0, cores=10))
    hours = [line.split("|")[3].strip() for line in lines[2:6]]
    assert hours == ["1.00", "0.00", "1.00", "0.00"]
    assert lines[2].split("|")[4].strip() == "6 min"
