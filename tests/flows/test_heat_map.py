"""Pictures of traces: every value where it belongs, whatever the number of words and cells."""

import re

import numpy as np
import pytest

from flows.report.gate_chart import gate_chart
from flows.report.heat_map import ACTIVE_ROW, GAP, LEFT, TOP, Scale, heat_map, own_scale
from flows.report.svg import MOST, printable, shortened, word_columns
from flows.report.word_lines import word_lines
from training.analysis.topics import Evolution

RUN = re.compile(r"M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)h-[\d.]+z")


def painted(picture: str) -> dict[tuple[float, float], int]:
    """The step of each column and row of a heat map, by its left and upper edge."""
    found = {}
    width = min(float(w) for w in re.findall(r"h([\d.]+)v", picture))
    for step, path in re.findall(r'<path class="s(-?\d+)" d="([^"]+)"/>', picture):
        for x, y, w, _ in RUN.findall(path):
            for k in range(round(float(w) / width)):
                place = (float(x) + k * width, float(y))
                assert place not in found, "painted twice"
                found[place] = int(step)
    return found


def test_steps_of_a_scale_worked_by_hand():
    assert Scale(low=-1, high=1).steps(np.array([-1.0, -0.5, 0.0, 0.07, 0.1, 1.0, 3.0, -9.0])).tolist() == [
        -8, -4, 0, 1, 1, 8, 8, -8,
    ]  # fmt: skip
    assert Scale(low=0.2, high=0.6).steps(np.array([0.2, 0.3, 0.4, 0.6])).tolist() == [0, 2, 4, 8]
    assert own_scale(np.array([-0.3, 0.1])) == Scale(low=-0.3, high=0.3)
    assert own_scale(np.array([0.2, 0.7])) == Scale(low=0.2, high=0.7)
    assert own_scale(np.zeros(3)).steps(np.zeros(3)).tolist() == [0, 0, 0]


def test_active_cells_stand_on_top_and_every_value_is_painted_once():
    values = np.array([[0.0, 1.0, -1.0], [0.5, 1.0, -0.5]])  # two words, three cells
    picture = str(heat_map(values, word_columns(["a", "b"]), (2, 0), Scale(low=-1, high=1), "output"))
    width = 30
    first, second, rest = TOP, TOP + ACTIVE_ROW, TOP + 2 * ACTIVE_ROW + GAP
    assert painted(picture) == {
        (LEFT, first): -8, (LEFT + width, first): -4,  # cell 2
        (LEFT, second): 0, (LEFT + width, second): 4,  # cell 0
        (LEFT, rest): 8, (LEFT + width, rest): 8,  # cell 1
    }  # fmt: skip


@pytest.mark.parametrize("num_words", [1, 2, 40, MOST, MOST + 1, 1_000, 10_007])
def test_long_texts_become_runs_of_words_whose_means_keep_the_whole(num_words):
    columns = word_columns([f"w{n}" for n in range(num_words)])
    rows = np.random.default_rng(0).normal(size=(num_words, 3))
    means = columns.means(rows)
    assert len(columns.labels) == len(columns.starts) == len(means) <= MOST
    sizes = np.diff([*columns.starts, num_words])
    np.testing.assert_allclose((means * sizes[:, None]).sum(axis=0), rows.sum(axis=0), atol=1e-9)
    if num_words <= MOST:
        np.testing.assert_allclose(means, rows)
        assert columns.labels[0] == "w0"
    else:
        assert columns.labels[0].startswith("1–")
        assert columns.labels[-1].endswith(f"–{num_words:,}")


def test_labels_are_short_and_harmless():
    assert shortened("a" * 16) == "a" * 14 + "…"
    assert shortened("a" * 15) == "a" * 15
    assert printable("a\x07b\u202ec") == "a�b�c"
    picture = str(heat_map(np.zeros((1, 2)), word_columns(["<b>&"]), (0,), Scale(low=-1, high=1), "output"))
    assert "&lt;b&gt;&amp;" in picture
    assert "<b>" not in picture


def test_lines_end_where_the_cells_end():
    found = Evolution(direction="left to right", cells=(7, 3), values=np.array([[0.1, 0.5], [0.0, -0.4]]))
    picture = str(word_lines(found, word_columns(["a", "b"]), "name"))
    assert picture.count("<polyline") == 2
    assert "cell 7 ends at +0.50, cell 3 ends at -0.40" in picture
    values = np.linspace(-0.5, 0.5, 200)[None]
    long = Evolution(direction="left to right", cells=(7,), values=values)
    assert "cell 7 ends at +0.50" in str(word_lines(long, word_columns(["a"] * 200), "name"))  # no mean of three words
    one = Evolution(direction="left to right", cells=(7,), values=np.array([[0.0]]))
    assert "nan" not in str(word_lines(one, word_columns(["a"]), "name"))


def test_a_gate_chart_needs_both_kinds():
    spread = {"n": 4, "mean": 0.5, "sd": 0.1}
    whole = {"keywords": spread, "others": {**spread, "mean": 0.4}, "by_position": []}
    assert str(gate_chart(whole)).count('class="mean"') == 2
    with_positions = {**whole, "by_position": [{"position": 2, "keywords": spread, "others": spread}]}
    assert str(gate_chart(with_positions)).count('class="mean"') == 4
    of_one = {**whole, "keywords": {"n": 1, "mean": 0.5, "sd": None}}
    assert "nan" not in str(gate_chart(of_one))
    assert not gate_chart({**whole, "others": {"n": 0, "mean": None, "sd": None}})
