"""What is collected over many texts: words by cell, input gates at keywords, and the loss of training."""

import json

import numpy as np
import pytest

from clicktower.schemas.errors import StageError, UsageError
from clicktower.training.analysis.explanation import (
    InputGates,
    Topics,
    as_json,
    explain_model,
    gates_json,
    topics_json,
    training_cost,
)
from clicktower.training.analysis.keywords import CountedKeywords, Keywords
from clicktower.training.analysis.traces import Trace, TracedText, trace
from clicktower.training.model.embedding import TitleEmbeddings
from tests.rounding import rounded
from tests.training.analysis.small_models import small_model

RIGHT = "left to right"


def traced(text: str, gates=None) -> TracedText:
    words = tuple(text.split())
    states = {"y": np.zeros((len(words), 8), np.float32)}
    if gates is not None:
        states["i"] = np.array(gates, np.float32)
        states["y_g"] = 0.5 - states["i"]
    traces = (Trace(direction=RIGHT, states=states),)
    return TracedText(text=text, side="query", words=words, traces=traces, vector=states["y"][-1])


def counted(cells, declared, keywords) -> Keywords:
    one = CountedKeywords(direction=RIGHT, cells=cells, declared=np.array(declared, bool), first=0)
    return Keywords(counted=(one,), keywords=keywords)


def test_topics_worked_by_hand():
    # Six cells are asked, but only the first five (4, 7, 1, 0, 2) take words; 6 is too far down.
    found = Topics()
    declared = np.zeros((3, 6), bool)
    declared[1, [0, 1, 5]] = declared[2, 0] = True
    found.add(traced("red angle bracket"), counted((4, 7, 1, 0, 2, 6), declared, (1, 2)))
    # The same keyword twice in a query counts once; "the" is declared by 4, but is no keyword.
    declared = np.zeros((4, 6), bool)
    declared[[1, 2, 3], 0] = True
    found.add(traced("big bracket the bracket"), counted((4, 7, 1, 0, 2, 6), declared, (1, 3)))
    table = topics_json(found)
    assert (table["queries"], table["cells_with_words"]) == (2, 2)
    four, seven = table["cells"]
    assert (four["cell"], four["keywords"], four["distinct"]) == (4, 3, 2)
    assert four["words"] == [{"word": "bracket", "queries": 2, "of": 2}]  # "angle" is of one query: not named
    assert (seven["cell"], seven["keywords"], seven["words"]) == (7, 1, [])
    assert [cell["cell"] for cell in topics_json(found, num_cells=1)["cells"]] == [4]


def test_input_gates_worked_by_hand():
    gates = InputGates()
    # Means over the two cells: 0.9 (first word: neither), 0.6, 0.2. Word 2 is a keyword: 0.6 - 0.2 = 0.4.
    gates.add(traced("a b c", [[0.8, 1.0], [0.5, 0.7], [0.1, 0.3]]), counted((0,), np.zeros((3, 1)), (1,)))
    # 0.1, 0.4, 0.5: word 3 is a keyword: 0.5 - 0.4 = 0.1.
    gates.add(traced("a b c", [[0.1, 0.1], [0.4, 0.4], [0.5, 0.5]]), counted((0,), np.zeros((3, 1)), (2,)))
    # 0.3 at word 2, no keyword: no difference within this text.
    gates.add(traced("a b", [[0.1, 0.1], [0.3, 0.3]]), counted((0,), np.zeros((2, 1)), ()))
    (found,) = gates_json(gates)
    # keywords 0.6, 0.5: mean 0.55, sd 0.0707; others 0.2, 0.4, 0.3: mean 0.3, sd 0.1
    assert found["keywords"] == pytest.approx({"n": 2, "mean": 0.55, "sd": 0.070711}, abs=1e-5)
    assert found["others"] == pytest.approx({"n": 3, "mean": 0.3, "sd": 0.1}, abs=1e-5)
    assert (found["difference"]["texts"], found["difference"]["mean"]) == (2, pytest.approx(0.25))
    # y_g is 0.5 - i: its size at the keywords (0, -0.2) and (0, 0) is 0.1 and 0; at other words (0.4, 0.2), (0.1, 0.1)
    # and (0.2, 0.2) it is 0.3, 0.1 and 0.2.
    assert found["candidate"]["keywords"]["mean"] == pytest.approx(0.05, abs=1e-6)
    assert found["candidate"]["others"]["mean"] == pytest.approx(0.2, abs=1e-6)
    # With two texts a resample has the mean 0.1, 0.25 or 0.4.
    assert (found["difference"]["low"], found["difference"]["high"]) == pytest.approx((0.1, 0.4))
    second, third = found["by_position"]
    assert (second["position"], second["keywords"]["mean"], second["others"]["mean"]) == pytest.approx((2, 0.6, 0.35))
    assert (third["position"], third["keywords"]["n"], third["others"]["n"]) == (3, 1, 1)


def test_gates_that_read_from_right_to_left_worked_by_hand():
    # The last word is read first and is neither; word 1, the keyword, is read third: 0.7 against 0.2.
    states = {"y": np.zeros((3, 1), np.float32), "i": np.array([[0.7], [0.2], [0.9]], np.float32)}
    states["y_g"] = states["i"]
    text = TracedText(
        text="a b c", side="query", words=("a", "b", "c"),
        traces=(Trace(direction="right to left", states=states),), vector=np.zeros(1, np.float32),
    )  # fmt: skip
    gates = InputGates()
    gates.add(text, Keywords(counted=(), keywords=(0,)))
    assert pytest.approx(np.array([[2, 0, 0.2, 0.2], [3, 1, 0.7, 0.7]])) == gates.words["right to left"][0].T


def test_what_no_text_has_is_none_and_not_a_number():
    gates = InputGates()
    gates.add(traced("a b", [[0.1], [0.3]]), counted((0,), np.zeros((2, 1)), ()))
    (found,) = gates_json(gates)
    assert found["keywords"] == {"n": 0, "mean": None, "sd": None}
    assert found["others"] == pytest.approx({"n": 1, "mean": 0.3, "sd": None})  # one word has no spread
    assert (found["difference"], found["by_position"]) == (None, [])


def test_an_rnn_has_no_input_gate_to_measure():
    assert explain_model("rnn", small_model("rnn"), [], ["angle bracket"]).gates.words == {}


def test_the_score_is_that_of_a_search_and_queries_are_collected():
    model = small_model("bilstm")
    pair = [("angle bracket", "query"), ("zinc angle", "document")]
    found = explain_model("it", model, pair, ["red lamp", " ", "oak rug oak"])
    # The served path multiplies unit vectors of float32.
    assert found.scores == (rounded(float(TitleEmbeddings(model, ["zinc angle"]).scores(["angle bracket"])[0, 0])),)
    assert found.topics.num_queries == 2  # one has no word
    value = json.loads(json.dumps(as_json(found)))  # plain values all through
    assert [text["words"] for text in value["texts"]] == [["angle", "bracket"], ["zinc", "angle"]]
    assert value["topics"]["queries"] == 2
    # Gates are those of the queries, in each direction: 1 word of "red lamp" and 2 of "oak rug oak" have a count.
    assert [g["keywords"]["n"] + g["others"]["n"] for g in value["attenuation"]] == [3, 3]
    alone = explain_model("it", model, pair)
    assert (alone.topics, alone.gates.words) == (None, {})  # a pair is no set to measure gates on


def test_a_query_is_read_by_the_query_tower():
    model = small_model(same_start=False)
    of_query, of_title = (trace(model, "angle bracket", side) for side in ("query", "document"))
    assert not np.allclose(of_query.vector, of_title.vector)
    for side, read in (("query", of_query), ("document", of_title)):
        ((of_words,),) = explain_model("it", model, [], ["angle bracket"], side=side).gates.words.values()
        assert of_words[2].tolist() == [pytest.approx(read.traces[0].states["i"][1].mean())]


def test_queries_without_any_word_are_an_error():
    with pytest.raises(UsageError, match=r"of the 2 queries to explain has a word."):
        explain_model("it", small_model(), [], ["", " "])


def test_curves_are_read_where_they_are(tmp_path):
    points = [
        {"epoch": 1, "train_loss": 0.5, "dev_loss": None, "pairs_per_second": 9.0},
        {"epoch": 2, "train_loss": 0.2, "train_loss_after": 0.1},
    ]
    assert training_cost(str(tmp_path)) == []
    (tmp_path / "curves.json").write_text(json.dumps(points), encoding="utf-8")
    assert training_cost(str(tmp_path)) == [
        {"epoch": 1, "train_loss": 0.5, "dev_loss": None},
        {"epoch": 2, "train_loss": 0.2, "dev_loss": None, "train_loss_after": 0.1},
    ]
    for damaged in ("[{", '[{"epoch": 1}]', '{"a": 1}', "[3]"):
        (tmp_path / "curves.json").write_text(damaged, encoding="utf-8")
        with pytest.raises(StageError, match="damaged"):
            training_cost(str(tmp_path))
