"""The query tower in ONNX against the model it is of, at several lengths: a graph made for one length fails here."""

from dataclasses import replace

import numpy as np
import onnx
import pytest

from clicktower.flows.releases.query_onnx import TOLERANCE, CannotExport, golden, onnx_difference, query_onnx
from clicktower.training.model.ensemble import Ensemble
from clicktower.training.model.recipe import recipe
from tests.recipes import varied
from tests.rounding import rounded
from tests.trained_model import TABLE_ROWS, untrained

TITLES = ["hose", "steel angle bracket 2x4", "ørn 東京都 café", " ".join(f"w{i}" for i in range(200))]

LSTM = varied(recipe("lstm-96"), cells=8)
RECIPES = {
    "lstm": LSTM,
    "lstm with all gates": varied(LSTM, forget_gate=True, peepholes=True),
    "lstm with a forget gate": varied(LSTM, forget_gate=True),
    "lstm with peepholes": varied(LSTM, peepholes=True),
    "lstm of few words, the rest merged": replace(LSTM, max_words=3),
    "lstm of few words, the rest cut": replace(LSTM, max_words=3, overflow="truncate"),
    "lstm in double precision": replace(LSTM, dtype="float64"),
    "bilstm": varied(recipe("bilstm-96"), cells=8),
    "bilstm with all gates": varied(recipe("bilstm-96"), cells=8, forget_gate=True, peepholes=True),
    "rnn": varied(recipe("rnn-288"), cells=8),
    "rnn without b": varied(recipe("rnn-288"), cells=8, bias=False),
    "dssm": varied(recipe("dssm"), cells=8, hidden=12),
    "clsm of one word": varied(recipe("clsm-1"), cells=8, hidden=12),
    "clsm of three words": varied(recipe("clsm-3"), cells=8, hidden=12),
    "clsm of five words, cut": varied(recipe("clsm-5"), cells=8, hidden=12, max_words=4, overflow="truncate"),
    "bag": varied(recipe("bag-512"), cells=16, start="uniform"),
    "self-attentive": varied(recipe("self-attentive"), cells=8),
    "self-attentive, averaged, with all gates": varied(
        recipe("self-attentive"), cells=8, average_hops=True, forget_gate=True, peepholes=True, max_words=3
    ),
    "max-pooled": varied(recipe("max-pooled"), cells=8),
    "variational, with all gates": varied(recipe("variational"), cells=8, latent=5, forget_gate=True, peepholes=True),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_the_graph_gives_the_models_vectors_at_every_length(name):
    model = untrained(RECIPES[name])
    graph = query_onnx(model)
    onnx.checker.check_model(onnx.load_from_string(graph), full_check=True)
    expected = golden(model, TITLES)
    assert len({len(words) for words in expected.words}) > 5
    assert np.linalg.norm(expected.vectors_ND, axis=1) == rounded(np.ones(len(expected.vectors_ND)))
    assert onnx_difference(graph, expected) < TOLERANCE


@pytest.mark.parametrize("shares", [(), (0.2, 0.8)])
def test_models_side_by_side_are_one_graph(shares):
    both = Ensemble(members=(untrained(LSTM), untrained(replace(RECIPES["bag"], seed=2))), shares=shares)
    assert onnx_difference(query_onnx(both), golden(both, TITLES)) < TOLERANCE


def test_the_graph_of_another_model_is_noticed():
    expected = golden(untrained(LSTM), TITLES)
    assert onnx_difference(query_onnx(untrained(replace(LSTM, seed=2))), expected) > 0.01
    assert onnx_difference(query_onnx(untrained(varied(LSTM, forget_gate=True))), expected) > 0.01


def test_a_table_that_no_onnx_file_can_hold_is_refused(monkeypatch):
    model = untrained(LSTM)
    monkeypatch.setattr("clicktower.flows.releases.query_onnx._LARGEST_BYTES", 4 * TABLE_ROWS * 24 - 1)
    with pytest.raises(CannotExport, match="trigram table has 4,896,000 bytes"):
        query_onnx(model)
