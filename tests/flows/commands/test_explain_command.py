"""`clicktower explain` as a user and a program see it, and its page."""

import io
import json
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from clicktower.flows.cli import run
from clicktower.schemas import storage
from clicktower.schemas.manifest import Outcome, Request
from clicktower.schemas.release import Pointer, Release
from clicktower.schemas.stage import open_result, run_stage
from clicktower.training.analysis.classifying import classify_vectors
from clicktower.training.analysis.keywords import most_active
from clicktower.training.analysis.traces import trace
from clicktower.training.model.embedding import search_vectors
from clicktower.training.model.model import load_model, write_model
from clicktower.training.model.recipe import recipe
from tests.flows.report.test_report import Page, loads_nothing
from tests.flows.serve.page_release import write_page_release
from tests.recipes import recipe_with, varied
from tests.trained_model import trained_stage
from tests.training.analysis.small_models import small_model

pytestmark = pytest.mark.slow

torch.set_num_threads(1)
SIAMESE = recipe_with(name="siamese", tower="bilstm", objective="classify", features="siamese", head_units=4, cells=6)
QUERY, TITLE = "angle bracket for shelf", "12 in. zinc-plated angle"
NASTY = "<script>alert(1)</script> a\x07b &amp; \x1b[31mred [bold]x[/bold] ünïcode 東京の金槌"


def folder_of(place, tower: str, **changes) -> str:
    model = small_model(tower, cells=12, **changes)
    where = str(place / f"{tower} {'-'.join(map(str, changes.values()))}".strip())
    write_model(where, model)
    curves = [{"epoch": epoch, "train_loss": 0.9 / epoch, "dev_loss": 1.0} for epoch in (1, 2, 3)]
    storage.write_atomic(f"{where}/curves.json", json.dumps(curves).encode())
    return where


@pytest.fixture(scope="module")
def lstm(tmp_path_factory) -> str:
    return folder_of(tmp_path_factory.mktemp("lstm"), "lstm", name="lstm-12", same_start=False)


@pytest.fixture(scope="module")
def rnn(tmp_path_factory) -> str:
    return folder_of(tmp_path_factory.mktemp("rnn"), "rnn", name="rnn-12")


def explain(capsys, *arguments: str) -> dict:
    assert run(["explain", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def failure(capsys, code: int, *arguments: str) -> str:
    assert run(["explain", *arguments, "--json"]) == code
    error = json.loads(capsys.readouterr().out)["error"]
    return " ".join(error.values())


def test_a_pair_is_explained_in_one_object(lstm, capsys):
    result = explain(capsys, "--model", lstm, QUERY, TITLE)
    (model,) = result["models"]
    assert (result["stage"], model["name"], model["path"], result["files"]) == ("explain", "lstm-12", lstm, {})
    assert -1 <= model["cosine"] <= 1
    assert [text["side"] for text in model["texts"]] == ["query", "document"]
    assert model["texts"][0]["words"] == QUERY.split()
    (direction,) = model["texts"][0]["directions"]
    assert direction["counts"][0] is None
    assert len(direction["cells"]) == result["rule"]["top_cells"] == 10
    assert result["rule"]["threshold"] == 0.2


def test_one_text_is_a_query_unless_said_otherwise_and_the_rule_can_be_set(lstm, capsys):
    assert explain(capsys, "--model", lstm, QUERY)["models"][0]["texts"][0]["side"] == "query"
    result = explain(capsys, "--model", lstm, TITLE, "--side", "document", "--set", "top_cells=3", "--set", "share=0")
    (text,) = result["models"][0]["texts"]
    assert (text["side"], len(text["directions"][0]["cells"])) == ("document", 3)
    # With share = 0 a word is a keyword if any cell declares it.
    assert text["keywords"] == [at for at, count in enumerate(text["directions"][0]["counts"]) if count]
    assert result["models"][0]["cosine"] is None


def test_two_models_stand_side_by_side(lstm, rnn, tmp_path, capsys):
    result = explain(capsys, "--model", lstm, "--beside", rnn, QUERY, TITLE, "--into", str(tmp_path / "out"))
    assert [model["name"] for model in result["models"]] == ["lstm-12", "rnn-12"]
    assert result["models"][0]["cosine"] != result["models"][1]["cosine"]
    assert [point["train_loss"] for point in result["models"][1]["cost"]] == [0.9, 0.45, 0.3]
    assert sorted(result["files"]) == ["explain.html", "traces-beside.arrow", "traces.arrow"]
    page = Page((tmp_path / "out" / "explain.html").read_text(encoding="utf-8"))
    assert page.open == []
    assert "Training loss per pair" in page.words
    # Of each text 5 panels of the LSTM (no forget gate) and 1 of the RNN, and the most active cells of each alone; all
    # pictures say what they show.
    assert [s["class"] for s in page.all("svg")].count("heat") == 2 * (5 + 1 + 1 + 1)
    assert all(picture["role"] == "img" and picture["aria-label"] for picture in page.all("svg"))


def test_the_papers_pairs_are_read_as_ten_words_beside_what_it_prints_of_them(rnn, tmp_path, capsys):
    both_ways = folder_of(tmp_path, "bilstm", name="bilstm-12", same_start=False)
    result = explain(capsys, "--model", both_ways, "--beside", rnn, "--printed", "--into", str(tmp_path / "out"))
    model, beside = result["models"]
    assert [len(text["words"]) for text in model["texts"]] == [3, 9, 8, 10]
    assert [text["side"] for text in model["texts"]] == ["query", "document"] * 2
    assert model["texts"][3]["words"][8:] == ["paint", "[5 words]"]
    assert result["printed"][1]["title"]["counts"]["LSTM ←"] == [5, 9, 5, 4, 8, 4, 5, 5, 9, None]
    # The last words are one bag of trigrams, so their order does not count.
    encoder = load_model(both_ways)
    limited = replace(encoder, recipe=varied(encoder.recipe, max_words=10, overflow="merge"))
    turned = "how do you paint a bathtub and what paint answers yahoo use you should"
    query, title = (
        search_vectors(limited, [text], side)[0]
        for text, side in (("how to fix bath tub wont turn off", "query"), (turned, "document"))
    )
    assert model["scores"][1] == pytest.approx(float(query @ title), abs=1e-6)
    assert len(beside["scores"]) == 2
    assert model["cosine"] is None
    page = Page((tmp_path / "out" / "explain.html").read_text(encoding="utf-8"))
    assert page.open == []
    assert "“hotels in shanghai” and its title in the paper: LSTM 0.9161, RNN 0.8165, from 0 to 1" in page.words
    assert page.words.count("paper, LSTM ← of 10") == 4
    for more in (("a",), ("--label", "Good")):
        assert "which have texts and labels of their own" in failure(capsys, 2, "--model", rnn, "--printed", *more)


def test_a_folder_used_again_keeps_no_traces_of_another_text(lstm, rnn, tmp_path, capsys):
    explain(capsys, "--model", lstm, "--beside", rnn, QUERY, "--into", str(tmp_path))
    assert set(storage.list_files(str(tmp_path))) == {"explain.html", "traces.arrow", "traces-beside.arrow"}
    explain(capsys, "--model", rnn, TITLE, "--into", str(tmp_path))
    assert set(storage.list_files(str(tmp_path))) == {"explain.html", "traces.arrow"}


def test_a_self_attentive_model_shows_where_its_hops_look(rnn, tmp_path, capsys):
    attentive = folder_of(tmp_path, "self_attentive", name="attentive", same_start=False)
    into = tmp_path / "out"
    result = explain(capsys, "--model", rnn, "--beside", attentive, QUERY, "hose", "--into", str(into))
    plain, model = result["models"]
    assert [text["attention"] for text in plain["texts"]] == [None, None]
    query, title = (text["attention"] for text in model["texts"])
    assert [len(hop) for hop in query["hops"]] == [4] * 3
    assert [sum(hop) for hop in [*query["hops"], query["overall"]]] == pytest.approx([1] * 4, abs=1e-5)
    assert (title["hops"], title["overlap"]) == ([[1.0]] * 3, 1.0)
    assert sorted(result["files"]) == ["attention-beside.arrow", "explain.html", "traces-beside.arrow", "traces.arrow"]
    page = Page((into / "explain.html").read_text(encoding="utf-8"))
    assert page.open == []
    assert "attentive: where its 3 hops look" in page.words
    assert f"overlap {query['overlap']:.3f}" in page.words
    shown = [picture["aria-label"] for picture in page.all("svg") if picture["aria-label"].startswith("hops")]
    assert [output.rpartition(" over ")[2] for output in shown] == ["4 words and 4 rows", "1 words and 4 rows"]
    assert run(["explain", "--model", attentive, QUERY, "--into", str(into)]) == 0
    said = capsys.readouterr().out
    assert "attentive: where its 3 hops look" in said
    assert f"overlap {query['overlap']:.3f}" in said
    assert f"{100 * query['hops'][0][1]:.0f}" in said
    assert set(storage.list_files(str(into))) == {"attention.arrow", "explain.html", "traces.arrow"}


def test_the_most_active_cells_stand_alone_with_the_value_that_chose_them(tmp_path, capsys):
    """Of a max-pooled tower the largest y, of a variational one the last, from which μ and σ are computed."""
    pooled = folder_of(tmp_path, "max_pooled", name="pooled")
    normal = folder_of(tmp_path, "variational", name="normal")
    explain(capsys, "--model", pooled, "--beside", normal, QUERY, "--into", str(tmp_path / "out"))
    html = (tmp_path / "out" / "explain.html").read_text(encoding="utf-8")
    assert Page(html).open == []
    alone = [picture for picture in re.findall(r'<svg class="heat".*?</svg>', html, re.S) if "and 10 rows" in picture]
    assert len(alone) == 4  # of each model both directions
    for picture, model in zip(alone, [pooled, pooled, normal, normal], strict=True):
        made = trace(load_model(model), QUERY, "query").traces
        direction = made[0] if picture in (alone[0], alone[2]) else made[1]
        cells = most_active(direction, 10)
        named = [f"{cell} {direction.vector[cell]:+.2f}" for cell in cells]
        assert re.findall(r">(\d+ [+-]\d\.\d\d)</text>", picture) == named


def test_a_label_of_the_pair_stands_beside_both_scores(lstm, rnn, tmp_path, capsys):
    pair = ("--model", lstm, "--beside", rnn, QUERY, TITLE, "--label", "Good [b]")
    result = explain(capsys, *pair, "--into", str(tmp_path))
    assert result["label"] == "Good [b]"
    words = Page((tmp_path / "explain.html").read_text(encoding="utf-8")).words
    scores = [f"The pair by {model['name']}: {model['cosine']:.3f}" for model in result["models"]]
    places = [words.index(output) for output in (*scores, "Label of the pair by a person: Good [b].")]
    assert places == sorted(places)
    assert run(["explain", *pair]) == 0
    assert "by a person: Good [b]." in capsys.readouterr().out


def test_queries_are_shown_as_a_grid_only_where_it_is_asked_for(lstm, tmp_path, capsys):
    queries = tmp_path / "queries.tsv"
    queries.write_text("a\toak shelf\nb\tzinc <b>angle</b>\nc\tred lamp\n")
    asked = ("--model", lstm, "--queries", str(queries), "--set", "share=0", "--into", str(tmp_path / "out"))
    assert explain(capsys, *asked)["models"][0]["topics"]["grid"] == []
    grid = explain(capsys, *asked, "--grid", "2")["models"][0]["topics"]["grid"]
    assert [row["query"] for row in grid] == ["oak shelf", "zinc <b>angle</b>"]
    assert {tuple(cell["words"]) for row in grid for cell in row["cells"]} == {("shelf",), ("<b>angle</b>",)}
    page = Page((tmp_path / "out" / "explain.html").read_text(encoding="utf-8"))
    assert page.open == []
    assert page.words.count("zinc <b>angle</b>") == 1
    assert "red lamp" not in page.words
    assert page.words.count("<b>angle</b>") == 1 + len(grid[1]["cells"])
    assert run(["explain", *asked, "--grid", "3"]) == 0
    assert "red lamp" in capsys.readouterr().out


def test_a_score_by_distance_is_called_one(tmp_path, capsys):
    made = varied(recipe("variational"), cells=6, latent=4, objective="classify", features="w2", head_units=4)
    stage = trained_stage(str(tmp_path), recipe=made)
    (same,) = explain(capsys, "--model", stage, QUERY, QUERY, "--into", str(tmp_path / "out"))["models"]
    assert (same["similarity"], same["distance"]) == ("euclidean", 0)
    assert "minus the distance W₂" in Page((tmp_path / "out" / "explain.html").read_text(encoding="utf-8")).words
    assert run(["explain", "--model", stage, QUERY, TITLE]) == 0
    assert re.search(r"by variational: -\d.*minus the distance W₂", capsys.readouterr().out)


def test_a_classifier_says_the_classes_of_a_pair_and_knows_no_queries(tmp_path, capsys):
    stage = trained_stage(str(tmp_path), recipe=SIAMESE)
    (model,) = explain(capsys, "--model", stage, QUERY, TITLE, "--into", str(tmp_path / "out"))["models"]
    vectors = load_model(open_result(stage).data).encode([QUERY, TITLE], "query")
    said = classify_vectors(load_model(open_result(stage).data), (vectors[:1], vectors[1:]))[0]
    assert model["classes"] == [{"0": pytest.approx(said[0]), "1": pytest.approx(said[1])}]
    assert [text["called"] for text in model["texts"]] == ["first text", "second text"]
    page = Page((tmp_path / "out" / "explain.html").read_text(encoding="utf-8"))
    assert f"1 {said[1]:.3f}" in page.words
    assert "The second text, word by word" in page.words
    assert run(["explain", "--model", stage, QUERY, TITLE]) == 0
    assert f"Classes of the pair by siamese: 0 {said[0]:.3f}, 1 {said[1]:.3f}" in capsys.readouterr().out
    (alone,) = explain(capsys, "--model", stage, QUERY)["models"]
    assert (alone["classes"], alone["texts"][0]["called"]) == ([], "text")


def test_two_models_of_one_name_are_told_apart(lstm, tmp_path, capsys):
    other = folder_of(tmp_path, "lstm", name="lstm-12", seed=2)
    names = [model["name"] for model in explain(capsys, "--model", lstm, "--beside", other, QUERY)["models"]]
    assert names == ["lstm-12", "lstm-12 (beside)"]


def test_queries_give_topics_and_gates(lstm, rnn, tmp_path, capsys):
    queries = tmp_path / "queries.tsv"
    queries.write_text(
        "".join(f"q{n}\t{t}\n" for n, t in enumerate(["oak shelf bracket", "zinc angle", NASTY, " \t x"]))
    )
    result = explain(capsys, "--model", lstm, "--queries", str(queries), "--into", str(tmp_path / "out"))
    (model,) = result["models"]
    assert model["texts"] == []
    assert model["topics"]["queries"] == 4
    assert model["attenuation"][0]["direction"] == "left to right"
    assert sorted(result["files"]) == ["explain.html"]
    page = Page((tmp_path / "out" / "explain.html").read_text(encoding="utf-8"))
    assert page.open == []
    assert "Which words which cells stand for" in page.words
    assert "ünïcode" not in page.words  # a word of one query only is not named
    assert "lstm-12, read left to right mean of i(t)" in page.words
    assert run(["explain", "--model", rnn, "--queries", str(queries), "--into", str(tmp_path / "out")]) == 0
    assert "input gate" not in (tmp_path / "out" / "explain.html").read_text(encoding="utf-8")
    capsys.readouterr()
    titles = explain(capsys, "--model", lstm, "--queries", str(queries), "--side", "document")
    assert titles["models"][0]["attenuation"] != model["attenuation"]


def test_heat_maps_are_in_the_order_of_the_text_whichever_way_it_is_read(tmp_path, capsys):
    model = folder_of(tmp_path, "full bilstm", name="both")
    explain(capsys, "--model", model, "one two three", "--into", str(tmp_path))
    html = (tmp_path / "explain.html").read_text(encoding="utf-8")
    pictures = re.findall(r'<svg class="heat".*?</svg>', html, re.S)
    labels = [re.findall(r">(one|two|three)</text>", picture) for picture in pictures]
    assert labels == [["one", "two", "three"]] * (1 + 6) * 2


@pytest.mark.parametrize("colours", ["shared", "panel"])
def test_the_page_is_whole_in_itself_and_safe_against_its_texts(lstm, tmp_path, capsys, colours):
    explain(capsys, "--model", lstm, NASTY, TITLE, "--into", str(tmp_path), "--colours", colours)
    html = (tmp_path / "explain.html").read_text(encoding="utf-8")
    loads_nothing(html)
    assert "<script>alert(1)</script>" in Page(html).words  # as text, never as an element
    assert "\x07" not in html
    assert "\x1b" not in html
    table = pa.ipc.open_file(io.BytesIO((tmp_path / "traces.arrow").read_bytes())).read_all()
    assert set(table["text"].to_pylist()) == {0, 1}
    assert "ab" in table["token"].to_pylist()  # as it was read: a control character is no part of a word


def test_the_terminal_shows_words_counts_and_score_without_control_characters(lstm, rnn, capsys):
    assert run(["explain", "--model", lstm, "--beside", rnn, NASTY, TITLE]) == 0
    shown = capsys.readouterr().out
    assert "The pair by" in shown
    assert "zinc-plated" in shown
    assert "[bold]x[/bold]" in shown  # foreign markup is text
    assert "\x07" not in shown
    assert "\x1b[31m" not in shown


def test_ten_thousand_words_stay_usable(lstm, tmp_path, capsys):
    text = " ".join(f"part{n}" for n in range(10_000))
    assert run(["explain", "--model", lstm, text, "--side", "document", "--into", str(tmp_path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "the 40 words with the largest counts, of 10,000" in shown
    assert "9,600 words more" in shown
    html = (tmp_path / "explain.html").read_text(encoding="utf-8")
    assert len(html) < 2_500_000
    assert "a column is the mean over 125 consecutive words" in html
    assert pa.ipc.open_file(io.BytesIO((tmp_path / "traces.arrow").read_bytes())).read_all().num_rows == 120_000


def test_a_text_of_one_word_is_explained_without_counts(lstm, tmp_path, capsys):
    result = explain(capsys, "--model", lstm, "bracket", "--into", str(tmp_path))
    assert result["models"][0]["texts"][0]["directions"][0]["counts"] == [None]
    assert "A text of one word is read in one step" in (tmp_path / "explain.html").read_text(encoding="utf-8")


def test_a_stage_folder_is_a_model_and_a_simulated_log_is_said(tmp_path, capsys):
    stage = trained_stage(str(tmp_path), labels={"simulated": True})
    result = explain(capsys, "--model", stage, QUERY, "--into", str(tmp_path / "out"))
    assert result["labels"] == {"simulated": True}
    assert "Simulated." in (tmp_path / "out" / "explain.html").read_text(encoding="utf-8")


def test_a_release_is_a_model_too(lstm, tmp_path, capsys):
    pointer = Pointer(release="d1", previous=None, swapped="2026-01-01T00:00:00Z")
    release = Release(
        digest="d1", text_contract={}, num_documents=1, dimensions=12, index={}, evaluation={},
        inputs={"model": "m1"}, labels={"simulated": True},
    )  # fmt: skip
    storage.write_atomic(f"{tmp_path}/pointer.json", json.dumps(pointer.to_json()).encode())
    storage.write_atomic(f"{tmp_path}/releases/d1/release.json", json.dumps(release.to_json()).encode())
    for name in ("model.json", "model.safetensors"):
        storage.write_atomic(f"{tmp_path}/releases/d1/model/{name}", storage.read_bytes(f"{lstm}/{name}"))
    published, trained = (explain(capsys, "--model", where, QUERY) for where in (str(tmp_path), lstm))
    assert published["models"][0]["texts"] == trained["models"][0]["texts"]
    assert (published["labels"], trained["labels"]) == ({"simulated": True}, {})


def test_the_output_of_another_stage_is_no_model(tmp_path, capsys):
    request = Request(stage="evaluate", stage_version=1, config={}, inputs={})
    folder = run_stage(str(tmp_path), request, lambda _: Outcome()).folder
    assert "has no model.json" in failure(capsys, 1, "--model", folder, QUERY)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ((), "neither a text nor a file of queries"),
        (("",), "no word"),
        (("angle", " \t "), "no word"),
        (("a", "b", "--side", "query"), "the first is the query"),
        (("a", "--label", "Good"), "there is nothing to explain"),
        (("a", "b", "--grid", "3"), "there is nothing to explain"),
        (("angle \udcff",), "not valid UTF-8"),
        (("a", "--queries", "/nowhere/queries.tsv"), "no such file"),
        (("a", "--set", "threshold=7"), "it must be less than or equal to 1"),
        (("a", "--set", "cells=7"), "did you mean top_cells"),
        (("a", "--colours", "blue"), "colours"),
    ],
)
def test_wrong_usage_is_told(lstm, capsys, arguments, found):
    assert found in failure(capsys, 2, "--model", lstm, *arguments)


def test_of_a_tower_without_gates_a_pair_has_the_shares_of_its_words(tmp_path, capsys):
    """The score less that without the word."""
    bag = folder_of(tmp_path, "bag")
    shown = explain(capsys, "--model", bag, QUERY, TITLE)
    encoder = load_model(bag)

    def cosine(query: str) -> float:
        pair = (search_vectors(encoder, [text], side)[0] for text, side in ((query, "query"), (TITLE, "document")))
        return float(np.dot(*pair))

    assert shown["cosine"] == pytest.approx(cosine(QUERY))
    without = [cosine(text) for text in ("bracket for shelf", "angle for shelf", "angle bracket shelf",
                                         "angle bracket for")]  # fmt: skip
    assert [word["share"] for word in shown["query"]["words"]] == pytest.approx(
        [cosine(QUERY) - c for c in without], abs=1e-6
    )
    assert run(["explain", "--model", bag, QUERY, TITLE]) == 0
    printed = capsys.readouterr().out
    assert f"cosine {shown['cosine']:.3f}" in printed
    assert re.search(rf"zinc-plated +{re.escape(format(shown['title']['words'][2]['share'], '+.3f'))}", printed)


@pytest.fixture(scope="module")
def release(tmp_path_factory) -> str:
    """The URI of a release whose model matches words and shares a score with terms."""
    return write_page_release(tmp_path_factory.mktemp("release"))


def test_the_score_of_a_search_is_shown_with_its_parts(release, capsys):
    pair = ("--release", release, "angle & braket", "d0")
    result = explain(capsys, *pair)
    assert result["title"]["text"] == "steel angle bracket 90 degree"
    assert run(["explain", *pair]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    parts = result["contributions"]
    assert f"score {result['score']:.3f} = vectors {parts['vectors']:.3f} + words {parts['words']:.3f} + terms" in shown
    word = result["query"]["words"][0]
    added = [f"{word['contributions'][part]:+.3f}" for part in ("words", "terms")]
    assert f"angle {word['share']:+.3f} angle {word['match']['cosine']:.3f} {' '.join(added)}" in shown
    assert re.search(r"& \S+ \S+ \S+ \S+ no term", shown)
    assert "simulated log" in shown

    assert run(["explain", *pair, "--mode", "bm25"]) == 0
    assert f"score {result['bm25']:.3f} = terms {result['bm25']:.3f}" in capsys.readouterr().out


def test_without_a_release_the_command_says_what_weighs_words_and_terms(tmp_path, capsys):
    bag = folder_of(tmp_path, "bag", word_share=0.3)
    assert explain(capsys, "--model", bag, QUERY, TITLE)["score"] is None
    assert run(["explain", "--model", bag, QUERY, TITLE]) == 0
    shown = capsys.readouterr().out
    assert "score 0" not in shown
    assert "The titles of a release weigh words and terms" in shown


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("--release", "R", "angle", "bracket", "--model", "M", "--grid", "3"), "and --model and --grid a model's"),
        (("--release", "R", "angle"), "that of a query and a title"),
        (("--release", "R", "angle", "bracket", "--mode", "exact"), "--mode"),
        (("--release", "R", "angle", "bracket", "--lexical-share", "1"), "below 1"),
        (("--release", "R", "angle", " "), "In the title there is no word"),
        (("angle", "bracket"), "neither a model nor a release"),
        (("--model", "M", "angle", "bracket", "--mode", "bm25"), "--model searches nothing"),
    ],
)
def test_a_release_and_a_model_are_not_explained_at_once(release, capsys, arguments, found):
    assert found in failure(capsys, 2, *(release if argument == "R" else argument for argument in arguments))


def test_a_tower_without_traces_is_refused_also_beside_another(lstm, tmp_path, capsys):
    dssm = folder_of(tmp_path, "dssm", hidden=4)
    assert "no known gates and no state" in failure(capsys, 2, "--model", dssm, QUERY)
    assert "no known gates and no state" in failure(capsys, 2, "--model", lstm, "--beside", dssm, QUERY)


def test_a_model_that_is_missing_or_of_another_contract_is_refused(lstm, tmp_path, capsys):
    assert "has no manifest.json" in failure(capsys, 1, "--model", str(tmp_path), QUERY)
    model = small_model("lstm")
    where = str(tmp_path / "old")
    write_model(where, replace(model, recipe=replace(model.recipe, name="old")))
    description = json.loads(storage.read_bytes(f"{where}/model.json"))
    description["text_contract"]["trigrams"] = "2.0"
    storage.write_atomic(f"{where}/model.json", json.dumps(description).encode())
    assert "has version 2.0" in failure(capsys, 1, "--model", where, QUERY)
