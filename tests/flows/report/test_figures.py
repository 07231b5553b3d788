"""Figures: every value where it belongs, foreign texts as texts, equal bytes for equal values."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from clicktower.flows.report import figures
from clicktower.flows.report.figures import ChartRow, Dot, Line, line_chart, row_chart, scale_of, shorten
from clicktower.flows.report.heat_maps import MOST, Scale, heat_map, histogram, panel_scale, word_columns
from tests.flows.report.test_report import loads_nothing

NASTY = '"><script>$x$ \u202e'


def row(name: str, value: float, **fields) -> ChartRow:
    return ChartRow(name=name, dots=[Dot(value=value, low=value - 0.01, high=value + 0.01)], **fields)


def path_of(picture: str, colour: str = "ours") -> list[tuple[float, float]]:
    """The points of the first line of a colour."""
    path = re.search(rf'd="M ([^"zC]*)"[^>]*style="fill: none; stroke: var\(--{colour}\)', picture)
    assert path
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", path[1])]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def images(picture: str) -> list[np.ndarray]:
    """The RGBA of its images, as they are shown, rows from the top."""
    found = []
    for tag in re.findall(r"<image [^>]*>", picture):
        data = re.search(r"base64,([^\"]*)\"", tag)
        assert data
        pixels = np.array(Image.open(io.BytesIO(base64.b64decode(data[1]))).convert("RGBA"))
        found.append(pixels[::-1] if "scale(1 -1)" in tag else pixels)
    return found


def test_foreign_texts_are_texts_and_equal_values_give_equal_bytes():
    def draw() -> str:
        return "".join([
            row_chart([row(NASTY, 0.5, remark=NASTY)], NASTY),
            line_chart([Line(name=NASTY, points=[(1, 1.0), (2, 0.5)])], NASTY, level=(NASTY, 0.7)),
            heat_map(np.zeros((1, 2)), word_columns([NASTY]), (0,), Scale(low=-1, high=1), "output"),
            histogram({"edges": [0, 1], "counts": [[2]], "cuts": [0.5]}, [(0, NASTY)], NASTY),
        ])  # fmt: skip

    output = draw()
    assert output == draw()
    assert "&lt;script&gt;$x$ �" in output
    assert "\u202e" not in output
    loads_nothing(output)


def test_colours_are_those_of_the_page():
    """Nothing is painted that the style sheet does not know, or it would not follow the page into the dark."""
    output = str(row_chart([row("a", 0.5, ours=True)], "x", level=0.4)) + line_chart(
        [Line(name="a", points=[(0, 1.0), (1, 2.0)], band=[(0, 0.5, 1.5), (1, 1.5, 2.5)])], "x"
    )
    assert set(re.findall(r"(?<![\w&])#[0-9a-f]{6}\b(?!\d)", output)) <= {"#000000"}  # strokes that are not drawn
    assert {f"var(--{name})" for name in ("ours", "grid", "quiet", "ink")} <= set(re.findall(r"var\(--\w+\)", output))


def test_lines_leave_out_what_was_not_measured():
    unknown = Line(name="first", points=[(1, None), (2, float("nan"))])
    picture = line_chart([unknown, Line(name="second", points=[(1, 1.0), (2, 0.5)])], "loss")
    assert "loss: second from 1.000 to 0.500" in picture
    assert "first" not in picture
    assert line_chart([unknown], "loss") == ""
    assert "nan" not in line_chart([Line(name="one", points=[(1, 0.25)])], "one epoch, one value").lower()


def test_on_a_logarithmic_scale_like_ratios_are_like_distances():
    line = Line(name="norm", points=[(1, 1.0), (2, 10.0), (3, 100.0)])
    (_, low), (_, middle), (_, high) = path_of(line_chart([line], "norm", log=True))
    assert low - middle == pytest.approx(middle - high, abs=0.11)
    (_, low), (_, middle), (_, high) = path_of(line_chart([line], "norm"))
    assert middle - high == pytest.approx(10 * (low - middle), abs=1.2)  # 90 and 9
    with_zero = Line(name="norm", points=[(1, 0.0), (2, 10.0), (3, 20.0)])
    (_, low), (_, middle), (_, high) = path_of(line_chart([with_zero], "norm", log=True))
    assert low - middle == pytest.approx(middle - high, abs=0.11)


def test_a_scale_ends_where_values_cannot_be():
    """A line that is flat at 1 would have marks half above and half below it."""
    line = Line(name="@10", points=[(1, 1.0), (2, 1.0)])
    assert ">1.02<" in line_chart([line], "NDCG")
    bounded = line_chart([line], "NDCG", most=1.0)
    assert ">1<" in bounded
    assert not re.search(r">1\.\d*[1-9]\d*<", bounded)


def test_an_aloof_row_does_not_press_the_others_together():
    near = [row("one", 0.50), row("other", 0.51)]
    assert scale_of([*near, row("floor", 0.1, aloof=True)]) == scale_of(near)  # the floor is an arrow at the edge
    low, high = scale_of([*near, row("floor", 0.1)])
    assert low < 0.1 < 0.51 < high
    assert row_chart([*near, row("floor", 0.1, aloof=True)], "NDCG").count("<use") == 7  # 2 dots, 4 ends, an arrow


def test_colours_of_a_scale_worked_by_hand():
    colours = Scale(low=-1, high=1).colours(np.array([-1.0, -0.5, 0.0, 0.1, 3.0]))
    assert colours[:, 3].tolist() == [255, 128, 0, 26, 255]
    assert colours[:, :3].tolist() == [[217, 130, 43]] * 2 + [[16, 143, 134]] * 3
    assert Scale(low=0.2, high=0.6).colours(np.array([0.2, 0.4, 0.6]))[:, 3].tolist() == [0, 128, 255]
    assert panel_scale(np.array([-0.3, 0.1])) == Scale(low=-0.3, high=0.3)
    assert panel_scale(np.array([0.2, 0.7])) == Scale(low=0.2, high=0.7)
    assert panel_scale(np.zeros(3)).colours(np.zeros(3))[:, 3].tolist() == [0, 0, 0]


def test_active_cells_stand_on_top_and_every_value_is_painted_once():
    values = np.array([[0.0, 1.0, -1.0], [0.4, 0.8, -0.6]])  # two words, three cells
    picture = heat_map(values, word_columns(["a", "b"]), (2, 0), Scale(low=-1, high=1), "output")
    active, rest = images(picture)
    assert active[:, :, 3].tolist() == [[255, 153], [0, 102]]  # cell 2, then cell 0
    assert rest[:, :, 3].tolist() == [[255, 204]]
    assert (active[0, :, 0] == 217).all()  # below zero
    assert "output: -1.00 to 1.00 over 2 words and 3 rows" in picture


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


def test_names_are_short():
    assert shorten("a" * 16) == "a" * 14 + "…"
    assert shorten("a" * 15) == "a" * 15


def test_each_kind_of_dot_has_a_colour_of_the_page():
    assert {colour for colour, _ in figures.KINDS.values()} <= set(figures.COLOUR)
