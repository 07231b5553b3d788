"""`clicktower evaluate-labelled --report`: the page of a small classifier, and what the terminal says of it."""

import io
import json
from contextlib import redirect_stdout

import numpy as np
import pyarrow as pa
import pytest

from clicktower.beam_jobs.labelled.labelled_rows import LabelledColumns, LabelledConfig, LabelledMapping
from clicktower.beam_jobs.labelled.labelled_stage import build_labelled_shards
from clicktower.flows.cli import run
from clicktower.flows.report.blocks import Words, html
from clicktower.flows.report.explain_page import attention_blocks
from clicktower.flows.report.labelled_page import labelled_page
from clicktower.schemas.stage import open_result
from clicktower.training.analysis.traces import overlap, trace
from clicktower.training.evaluation.evaluate_labelled_stage import RULES, EvaluateLabelledConfig, evaluate_labelled
from clicktower.training.model.model import load_model
from clicktower.training.model.recipe import recipe
from clicktower.training.trainer.labelled_shards import read_labelled
from tests.flows.report.test_report import Page, loads_nothing
from tests.recipes import varied
from tests.trained_model import trained_stage
from tests.training.trainings import train


def render(result, examples) -> str:
    return html(labelled_page(result, examples))


NASTY = "<script>alert(1)</script>"
WORDS = ["steel", "angle", "bracket", "hose", "garden", "shelf", "copper", "nail"]
HELD_OUT = [
    (f"how {NASTY} works", "what a script does", 1),
    ("mending a garden hose", "repair of hoses", 1),
    ("steel", "copper pipe fittings for a sink", 0),
    ("angle bracket", "angle bracket made of steel", 1),
    ("a shelf of oak", "nails", 0),
]
COLUMNS = {"first": 1, "second": 2, "label": 3}


def _lines(rows) -> str:
    return "".join("\t".join(map(str, row)) + "\n" for row in rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("labelled")


@pytest.fixture(scope="module")
def built(folder):
    rng = np.random.default_rng(0)
    rows = [(f"n{i} {' '.join(rng.permutation(WORDS)[:3])}", f"m{i} {rng.choice(WORDS)}", i % 2) for i in range(40)]
    (folder / "train.tsv").write_text(_lines(rows), encoding="utf-8")
    (folder / "dev.tsv").write_text(_lines(HELD_OUT), encoding="utf-8")
    mapping = LabelledMapping(columns=LabelledColumns(**COLUMNS), header=False)
    config = LabelledConfig(mapping=mapping)
    store = str(folder / "store")
    return build_labelled_shards([str(folder / "train.tsv")], store=store, config=config, dev=[str(folder / "dev.tsv")])


@pytest.fixture(scope="module")
def trained(folder, built):
    small = {"cells": 4, "attention_units": 3, "hops": 2, "factors": 3, "head_units": 4}
    made = varied(recipe("gated-attention"), **small, epochs=1, minibatch=16, micro_batch=16)
    return train(built.folder, store=str(folder / "store"), recipe=made)


@pytest.fixture(scope="module")
def asked(folder, built, trained) -> list[str]:
    given = ["--model", trained.folder, "--labelled", built.folder, "--into", str(folder / "store")]
    return ["evaluate-labelled", *given, "--set", "num_resamples=50", "--report", str(folder / "page.html")]


@pytest.fixture(scope="module")
def said(asked):
    """(what stdout showed, the page's HTML) of the command as a person calls it."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert run(asked) == 0
    with open(asked[-1], encoding="utf-8") as file:
        return printed.getvalue(), file.read()


@pytest.fixture(scope="module")
def result(asked, said):
    return open_result(_stage(asked))


def _stage(asked: list[str]) -> str:
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert run([*asked, "--json"]) == 0
    output = json.loads(printed.getvalue())
    assert output["reused"]
    return output["path"]


def test_the_page_is_whole_in_itself_and_safe_against_its_texts(said):
    loads_nothing(said[1])
    assert NASTY in Page(said[1]).words  # as text, never as an element


def test_the_page_has_every_picture_and_the_counts_follow_from_the_scores(said, result):
    page, metrics = Page(said[1]), result.manifest.outcome.metrics
    kinds = [picture["class"] for picture in page.all("svg")]
    assert kinds.count("curves histogram") == 2  # our cosine, and word mover's distance
    assert kinds.count("whiskers") == 2  # accuracy, area under ROC
    # Of the first three rows of each kind two texts with a picture of the hops.
    right, wrong = (sum(metrics["classifier"]["confusion"][k][abs(k - of)] for k in (0, 1)) for of in (0, 1))
    assert kinds.count("heat") == (min(3, right) + min(3, wrong) + 3) * 2
    assert all(picture["role"] == "img" and picture["aria-label"] for picture in page.all("svg"))
    with pa.memory_map(f"{result.data}/scores.arrow") as file:
        scores = pa.ipc.open_file(file).read_all().to_pydict()
    said_classes = [int(of_1 > of_0) for of_0, of_1 in zip(scores["classifier.0"], scores["classifier.1"], strict=True)]
    counts = [[0, 0], [0, 0]]
    for label, one in zip(scores["label"], said_classes, strict=True):
        counts[label][one] += 1
    assert metrics["classifier"]["confusion"] == counts
    assert f"0 {counts[0][0]} {counts[0][1]} {counts[0][0] / 2:.1%}" in page.words
    assert f"1 {counts[1][0]} {counts[1][1]} {counts[1][1] / 3:.1%}" in page.words
    assert sum(one["n"] for one in metrics["classifier"]["bins"]) == len(HELD_OUT)
    assert [sum(of_class) for of_class in metrics["histograms"]["model"]["counts"]] == [2, 3]
    assert metrics["histograms"]["model"]["cuts"] == [cut for cut in metrics["thresholds"]["model"]["cuts"] if cut]
    assert f"at {max(scores['classifier.0'] + scores['classifier.1']):.3f}" in page.words
    assert "Surest, and right" in page.words


def test_overall_attention_shades_the_words_of_a_text():
    blocks = attention_blocks("where two hops look", [[0.5, 0.5, 0.0], [0.2, 0.75, 0.05]], ["ab", "c", "d"])
    (words,) = (block for block in blocks if isinstance(block, Words))
    # Overall 0.35, 0.625 and 0.025: of five shades, the darkest for the largest, 2.8, 5 and 0.2.
    assert list(words.words) == [("ab", 3, False, "35.0%"), ("c", 5, False, "62.5%"), ("d", 0, False, "2.5%")]


def test_the_overlap_is_the_mean_of_each_held_out_text_read_alone(said, result, trained, built):
    model, found = load_model(trained.data), result.manifest.outcome.metrics["overlap"]
    texts = read_labelled(built.data).dev.texts
    alone = [overlap(trace(model, text, "query").attention) for text in texts]
    assert (found["texts"], found["hops"]) == (10, 2)
    assert found["mean"] == pytest.approx(np.mean(alone), rel=1e-5)
    assert f"Overlap of attention {found['mean']:.3f}, the mean of A Aᵀ" in Page(said[1]).words


def test_the_terminal_says_the_short_of_it_without_a_text(said):
    out = said[0]
    for output in ("What the classifier said", "sure on average", "Overlap of attention"):
        assert output in out
    assert max(len(line.rstrip()) for line in out.splitlines() if "/" not in line) <= 100
    assert NASTY not in out


def test_a_variational_model_shows_its_distances(folder, built):
    made = varied(recipe("variational"), cells=6, latent=4, objective="classify", features="w2", head_units=4)
    config = EvaluateLabelledConfig(num_resamples=20, word_movers=False)
    model = trained_stage(str(folder / "untrained"), recipe=made)
    metrics = evaluate_labelled(model, built.folder, store=str(folder / "store"), config=config).to_json()["metrics"]
    assert list(metrics["histograms"]) == ["w2", "model"]
    found = metrics["histograms"]["w2"]
    assert found["distance"]
    assert 0 <= found["edges"][0] < found["edges"][-1]
    assert [sum(of_class) for of_class in found["counts"]] == [2, 3]
    assert metrics["overlap"] is None


def _hand_made(**metrics):
    value = {"value": 0.7, "low": 0.6, "high": 0.8}
    measured = {
        "ours": "classifier", "unit": "texts", "n": 9, "confidence": 0.95, "thresholds": {}, "no_classifier": "",
        "classes": [f"c{k}" for k in range(25)], "overlap": None, "histograms": {}, "rules": RULES,
        "systems": {"classifier": {"accuracy": value}, "naive-bayes": {"accuracy": value | {"value": 0.4}}},
        "difference": {"classifier": {"accuracy": value}, "naive-bayes": {"accuracy": value}},
        "classifier": {
            "confusion": None, "said": 0.8, "right": 0.7, "calibration_error": 0.1,
            "bins": [{"low": 0.04, "high": 1.0, "n": 9, "said": 0.8, "right": 0.7}],
        },
    }  # fmt: skip
    counts = {"train_rows": 9, "sampled_train_rows": 9}
    return {"metrics": measured | metrics, "counts": counts, "labels": {"simulated": True}, "digest": "d", "path": "p"}


def test_many_classes_of_single_texts_have_no_table_of_all_pairs_of_them():
    row = {"texts": ["a\x07b \u202eevil"], "label": "<b>c1</b>", "said": "c2", "probability": 0.9, "of_label": 0.05}
    page = Page(render(_hand_made(), {"surest_wrong": [row], "least_sure": []}))
    assert page.open == []
    assert "There are 25 classes, too many for a table" in page.words
    assert "Said c2 at 0.900, labelled <b>c1</b> at 0.050" in page.words
    assert "\x07" not in page.words
    assert "\u202e" not in page.words
    assert "Least sure" not in page.words
    assert "naive Bayes, has 0.400: +0.700 (+0.600 to +0.800), beyond chance" in page.words
    assert "Simulated." in page.words


def test_values_have_a_correlation_and_no_classes():
    spearman = {"spearman": {"value": 0.5, "low": 0.4, "high": 0.6}}
    ahead = {"spearman": {"value": 0.1, "low": -0.1, "high": 0.3}}
    page = Page(
        render(
            _hand_made(
                ours="model", unit="pairs", classes=[], classifier=None, no_classifier="the labels are values",
                systems={"model": spearman, "bm25": spearman}, difference={"model": ahead, "bm25": ahead},
            ),
            {},
        )
    )  # fmt: skip
    assert page.open == []
    assert "our cosine has Spearman 0.500 (0.400 to 0.600)" in page.words
    assert "chance alone may give as much" in page.words
    assert "What the classifier said" not in page.words
    assert "Where the classes lie" not in page.words
