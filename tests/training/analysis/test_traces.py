"""Traces against the printed equations, one step at a time in float64, and against the embedding that is served."""

import io
import math

import numpy as np
import pyarrow as pa
import pytest
import torch

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.text_contract import trigram_ids, words
from clicktower.training.analysis.traces import STATES, read_words, trace, trace_table, write_table
from tests.rounding import assert_equal_but_for_rounding
from tests.trained_model import matrix_of
from tests.training import reference
from tests.training.analysis.small_models import ROWS, TOWERS, small_model

torch.set_num_threads(1)
TEXT = "shanghai hotels accommodation hotel in shanghai discount and reservation"
every_tower = pytest.mark.parametrize("tower", TOWERS)


def by_the_equations(params, text, *, rnn: bool) -> dict[str, np.ndarray]:
    """eq. 1 or 2 for each word in reading order: every gate and state, float64 [words, cells]."""
    p = params
    cells, num_trigrams = p["W" if rnn else "W1"].shape
    y, c, steps = np.zeros(cells), np.zeros(cells), []
    none = np.zeros(cells)
    for word in text:
        lt = reference.counts(word, num_trigrams)
        if rnn:
            y = np.tanh(p["W"] @ lt + p["R"] @ y + p["b"])
            steps.append({"y": y})
            continue

        def from_cell(gate: str, cell: np.ndarray) -> np.ndarray:
            return p[f"P{gate}"] @ cell if f"P{gate}" in p else p.get(f"p{gate}", none) * cell

        z = {k: p[f"W{k}"] @ lt + p[f"R{k}"] @ y + p[f"b{k}"] for k in "1234" if f"W{k}" in p}
        y_g = np.tanh(z["4"])
        i = reference.sigmoid(z["3"] + from_cell("3", c))
        f = reference.sigmoid(z["2"] + from_cell("2", c)) if "2" in z else np.ones(cells)
        c = f * c + i * y_g
        o = reference.sigmoid(z["1"] + from_cell("1", c))
        y = o * np.tanh(c)
        steps.append({"i": i, "f": f, "o": o, "y_g": y_g, "c": c, "y": y})
    return {name: np.array([step[name] for step in steps]) for name in steps[0]}


@pytest.mark.slow
@every_tower
@pytest.mark.parametrize("side", ["query", "document"])
def test_every_gate_and_state_is_that_of_the_printed_equations(tower, side):
    model = small_model(tower, same_start=False)
    kind = reference.kind_of(model.recipe)
    params = reference.from_matrix(matrix_of(model, side).double().numpy(), model.recipe.tower.cells, kind)
    ids = [trigram_ids([word], ROWS)[1].tolist() for word in words(TEXT)]
    found = trace(model, TEXT, side)
    ways = ["right ", "left "] if kind.startswith(reference.BOTH_WAYS) else [""]
    assert [t.direction for t in found.traces] == ["left to right", "right to left"][: len(ways)]
    for way, one in zip(ways, found.traces, strict=True):
        of_way = {name.removeprefix(way): value for name, value in params.items() if name.startswith(way)}
        expected = by_the_equations(of_way, ids[:: -1 if way == "left " else 1], rnn=kind == "rnn")
        assert set(one.states) == set(expected) - (set() if "W2" in of_way else {"f"})
        for name, rows in one.states.items():
            assert rows.dtype == np.float32
            assert_equal_but_for_rounding(rows[one.reading], expected[name])


@pytest.mark.slow
@every_tower
@pytest.mark.parametrize("text", [TEXT, "hotel", "東京の金槌", "a\x07b \x1b[31mred\x1b[0m", "two words"])
def test_the_vector_of_a_trace_is_the_embedding_that_is_served(tower, text):
    model = small_model(tower)
    for side in ("query", "document"):
        assert_equal_but_for_rounding(trace(model, text, side).vector, model.encode([text], side)[0])


def test_the_cells_of_a_max_pooled_model_are_asked_by_their_largest_output():
    found = trace(small_model("max_pooled"), TEXT, "query")
    np.testing.assert_array_equal(np.concatenate([one.vector for one in found.traces]), found.vector)
    assert not np.array_equal(found.traces[0].vector, found.traces[0].states["y"][-1])


def test_the_cells_of_a_variational_model_are_asked_by_what_its_distribution_is_made_of():
    model = small_model("variational")
    found = trace(model, TEXT, "query")
    parts = model.towers["query"]
    last = np.concatenate([one.vector for one in found.traces])
    mean = last @ parts["W_mu"] + parts["b_mu"]
    assert_equal_but_for_rounding(mean, found.vector[:3])


@pytest.mark.parametrize(
    ("changes", "tokens"),
    [
        ({"max_words": 4}, ("one", "two", "three", "[3 words]")),
        ({"max_words": 4, "overflow": "truncate"}, ("one", "two", "three", "four")),
        ({"max_words": 6}, ("one", "two", "three", "four", "five", "six")),
    ],
)
def test_words_beyond_the_limit_are_traced_as_they_are_read(changes, tokens):
    model, text = small_model(**changes), "One two three four five six"
    found = trace(model, text, "query")
    assert found.words == tokens == tuple(read_words(text, model.recipe))
    assert len(found.traces[0].states["y"]) == len(tokens)
    assert_equal_but_for_rounding(found.vector, model.encode([text], "query")[0])


@pytest.mark.slow
def test_ten_thousand_words_are_traced_to_the_last():
    model, text = small_model("bilstm"), " ".join(f"word{n % 700}" for n in range(10_000))
    found = trace(model, text, "document")
    assert len(found.words) == len(found.traces[1].states["c"]) == 10_000
    # Sums of 10,000 steps in another order of rounding: 1e-3 of a y between -1 and 1.
    np.testing.assert_allclose(found.vector, model.encode([text], "document")[0], atol=1e-3)


@pytest.mark.parametrize("text", ["", "  ", "\t\n"])
def test_a_text_without_a_word_cannot_be_explained(text):
    with pytest.raises(UsageError, match="no word"):
        trace(small_model(), text, "query")


@pytest.mark.parametrize(("tower", "changes"), [("dssm", {"hidden": 4}), ("clsm", {"hidden": 4, "window": 3})])
def test_a_tower_without_steps_says_what_can_be_explained_instead(tower, changes):
    with pytest.raises(UsageError, match=f"The tower {tower} .*Explain a model of a tower that reads word by word"):
        trace(small_model(tower, **changes), TEXT, "query")


def test_a_model_that_ran_away_is_not_explained():
    model = small_model()
    model.towers["query"]["W"][:] = math.nan
    with pytest.raises(StageError, match="not finite"):
        trace(model, TEXT, "query")


def test_the_arrow_file_has_a_row_for_each_cell_and_word(tmp_path):
    texts = [trace(small_model("full bilstm"), "angle bracket", "query"), trace(small_model("rnn"), TEXT, "document")]
    write_table(str(tmp_path / "traces.arrow"), trace_table(texts))
    table = pa.ipc.open_file(io.BytesIO(storage.read_bytes(str(tmp_path / "traces.arrow")))).read_all()
    assert table.equals(trace_table(texts))
    rows = table.to_pylist()
    assert len(rows) == 2 * 5 * 2 + 1 * 5 * 9
    assert list(rows[0]) == ["text", "side", "direction", "cell", "word", "token", *STATES]
    left = {(r["cell"], r["word"]): r for r in rows if (r["text"], r["direction"]) == (0, "right to left")}
    assert (left[3, 2]["token"], left[3, 2]["side"]) == ("bracket", "query")
    for name in STATES:
        assert left[3, 2][name] == texts[0].traces[1].states[name][1, 3]
    of_rnn = [r for r in rows if r["text"] == 1]
    assert all(math.isfinite(r["y"]) and r["i"] is r["f"] is r["o"] is r["y_g"] is r["c"] is None for r in of_rnn)
    assert [r["token"] for r in of_rnn if r["cell"] == 4] == words(TEXT)
