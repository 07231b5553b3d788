"""Attention of a self-attentive model, as it is told and written, against the printed equations."""

import io
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from clicktower.schemas import storage
from clicktower.schemas.text_contract import trigram_ids, words
from clicktower.training.analysis.traces import (
    attention_json,
    attention_table,
    mean_overlap,
    overall,
    overlap,
    trace,
    write_table,
)
from tests.recipes import varied
from tests.rounding import assert_equal_but_for_rounding
from tests.trained_model import matrix_of
from tests.training import reference
from tests.training.analysis.small_models import ROWS, small_model

torch.set_num_threads(1)
TEXT = "shanghai hotels accommodation hotel in shanghai"


def test_overall_and_overlap_worked_by_hand():
    # Three hops over two words. Overall: ((1 + 1/2 + 0) / 3, (0 + 1/2 + 1) / 3) = (1/2, 1/2).
    # Off the diagonal of A A': 1 x 1/2 = 1/2, 1 x 0 + 0 x 1 = 0, 1/2 x 1 = 1/2, each twice; their mean is 1/3.
    weights = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    assert overall(weights).tolist() == [0.5, 0.5]
    assert overlap(weights) == pytest.approx(1 / 3, rel=1e-12)
    assert overlap(weights[:1]) is None
    assert attention_json(weights) == {"hops": weights.tolist(), "overall": [0.5, 0.5], "overlap": overlap(weights)}


@pytest.mark.parametrize("side", ["query", "document"])
def test_the_weights_of_a_trace_are_those_of_the_printed_equations_in_the_texts_order(side):
    model = small_model("self_attentive", same_start=False)
    kind = reference.kind_of(model.recipe)
    params = reference.from_matrix(matrix_of(model, side).double().numpy(), model.recipe.tower.cells, kind)
    ids = [trigram_ids([word], ROWS)[1].tolist() for word in words(TEXT)]
    weights, states = reference.attention(params, ids)
    found = trace(model, TEXT, side)
    assert np.ptp(weights) > 0.01
    assert_equal_but_for_rounding(found.attention, weights)
    # What is asked of the most active cells is the mean of the hops.
    expected = (weights @ states).mean(axis=0)
    assert_equal_but_for_rounding(np.concatenate([t.vector for t in found.traces]), expected)


def test_the_arrow_file_has_a_row_for_each_hop_and_word_of_the_models_that_have_them(tmp_path):
    attentive, other = small_model("self_attentive"), small_model("rnn")
    texts = [trace(other, TEXT, "query"), trace(attentive, "angle bracket", "document")]
    write_table(str(tmp_path / "attention.arrow"), attention_table(texts))
    table = pa.ipc.open_file(io.BytesIO(storage.read_bytes(str(tmp_path / "attention.arrow")))).read_all()
    assert table.equals(attention_table(texts))
    rows = table.to_pylist()
    assert [(row["hop"], row["word"], row["token"]) for row in rows] == [
        (hop, at + 1, token) for hop in range(4) for at, token in enumerate(("angle", "bracket"))
    ]
    assert {(row["text"], row["side"]) for row in rows} == {(1, "document")}
    weights = texts[1].attention
    assert [row["weight"] for row in rows] == [*overall(weights).tolist(), *weights.ravel().tolist()]
    assert len(attention_table(texts[:1])) == 0


@pytest.mark.parametrize("above", [{}, {"word_vectors": "tuned", "word_columns": 6}])
def test_the_mean_overlap_of_texts_is_the_mean_of_each_read_alone(above):
    model = small_model("self_attentive", same_start=False, **above)
    texts = [TEXT, "bracket", "a steel angle", "garden hose", "oak", TEXT.upper() + " again"]
    alone = [overlap(trace(model, text, "document").attention) for text in texts]
    assert alone[1] == pytest.approx(1)  # all hops look at the one word
    assert np.ptp(alone) > 0.1
    assert mean_overlap(model, texts, "document") == pytest.approx(np.mean(alone), rel=1e-5)
    of_one_hop = replace(model, recipe=varied(model.recipe, hops=1))
    assert mean_overlap(of_one_hop, texts, "query") is None
    assert mean_overlap(small_model("lstm"), texts, "query") is None
