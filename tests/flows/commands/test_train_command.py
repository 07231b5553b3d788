"""`clicktower train` as a person sees it: the page about the training, two lines of progress."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from clicktower.flows.cli import run
from clicktower.flows.show import console, present
from clicktower.training.model.recipe import DEFAULT
from tests.training.small_shards import write_shop
from tests.training.trainer.labelled_builds import built, questions

SETTINGS = (
    "tower.cells=8",
    "epochs=2",
    "minibatch=32",
    "micro_batch=8",
    "optimiser.step=0.02",
    "optimiser.clip_norm=12",
)


@pytest.fixture(scope="module")
def shop_shards(tmp_path_factory) -> str:
    return write_shop(str(tmp_path_factory.mktemp("build")), 100, 20, labels={"simulated": True})


def train(shop_shards: str, store: str, *more: str) -> list[str]:
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    return ["train", "--shards", shop_shards, "--into", store, "--threads", "1", *sets, *more]


@pytest.mark.slow
def test_a_page_about_the_training_is_written_of_a_finished_model_too(shop_shards, tmp_path, capsys):
    page = tmp_path / "training.html"
    assert run(train(shop_shards, str(tmp_path), "--json")) == 0
    assert not json.loads(capsys.readouterr().out)["reused"]
    assert run(train(shop_shards, str(tmp_path), "--report", str(page), "--json")) == 0
    assert json.loads(capsys.readouterr().out)["reused"]
    html = page.read_text(encoding="utf-8")
    assert html.count("<svg") == 3
    for text in (
        f"Training of {DEFAULT}",
        "Simulated.",
        "Loss per pair",
        "100 pairs of query and clicked title, 8 updates",
    ):
        assert text in html


def test_a_terminal_of_100_columns_shows_both_lines_whole(monkeypatch):
    terminal = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None, legacy_windows=False)
    monkeypatch.setattr(console, "errors", terminal)
    place = "epoch 100/100, step 12,345/12,345, 100:00:00 left"
    course = "254,713 pairs/s, loss 12.5, gradient query 12,345 document 12,345, clipped 100%, dev NDCG@10 0.712"
    with console.progress_bar("train", share=True) as tell:
        tell(f"{place}\n{course}", 45, 100)
    shown = terminal.file.getvalue()
    first = next(line for line in shown.splitlines() if place in line)
    assert "train" in first
    assert "45%" in first
    assert course in shown


def test_without_a_terminal_the_two_lines_are_one(monkeypatch):
    log = Console(file=io.StringIO(), width=80, highlight=False)
    monkeypatch.setattr(console, "errors", log)
    monkeypatch.setattr(console, "PLAIN_SECONDS", 0.0)
    with console.progress_bar("train", share=True) as tell:
        tell("epoch 1/2, 0:07 left\n24,713 pairs/s, loss 0.231", 1_200, 2_400)
    assert log.file.getvalue() == "train: epoch 1/2, 0:07 left, 24,713 pairs/s, loss 0.231 (1,200 of 2,400)\n"


@pytest.fixture(scope="module")
def labelled(tmp_path_factory) -> str:
    return built(tmp_path_factory.mktemp("labelled"), questions(80))


def recipe_file(folder: Path, **settings) -> str:
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    file = folder / "recipe.toml"
    file.write_text('[train]\nrecipe = "variational"\n[train.set]\n' + "\n".join(lines) + "\n")
    return str(file)


SAID = {"objective.kind": "generate", "objective.decoder_cells": 8, "objective.decoder_columns": 6,
        "objective.vocabulary": 30}  # fmt: skip
TOLD = {"objective.kind": "classify", "objective.features.kind": "w2", "objective.head.units": 8}
SMALL = {"optimiser.kind": "adam", "tower.cells": 8, "tower.latent": 6, "epochs": 2, "minibatch": 16,
         "micro_batch": 8, "optimiser.step": 0.01}  # fmt: skip


@pytest.mark.slow
def test_a_classifier_starts_from_texts_said_again_and_both_are_told_in_their_own_figures(labelled, tmp_path, capsys):
    command = ["train", "--shards", labelled, "--into", str(tmp_path), "--threads", "1", "--json"]
    said = recipe_file(tmp_path, **SAID, **SMALL)
    page = tmp_path / "said.html"
    assert run([*command, "--recipe", said, "--report", str(page)]) == 0
    started = json.loads(capsys.readouterr().out)
    assert "held-out loss" in (line := present.headline(started))
    assert f"{started['metrics']['dev_word_repeat']:.3f} nats a word, KL " in line
    assert line.endswith("examples/s")
    html = page.read_text(encoding="utf-8")
    for text in ("Cross-entropy per word", "KL divergence", "Nats per word", "Loss per example", "texts to rec"):
        assert text in html
    assert "NDCG" not in html

    output = recipe_file(tmp_path, **TOLD, **SMALL)
    assert run([*command, "--recipe", output, "--start", started["path"], "--report", str(page)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert present.headline(result) == (
        f"2 epochs, training loss {result['metrics']['train_loss']:.3f}, held-out loss "
        f"{result['metrics']['dev_loss']:.3f}, accuracy {result['metrics']['dev_accuracy']:.3f}, area under ROC "
        f"{result['metrics']['dev_area_under_roc']:.3f}, {result['metrics']['pairs_per_second']:,.0f} examples/s"
    )
    html = page.read_text(encoding="utf-8")
    for text in ("Accuracy and area under ROC", "Area under ROC", "labelled examples"):
        assert text in html
    for text in ("NDCG", "Negatives", "Cross-entropy"):
        assert text not in html


def test_a_start_that_is_no_model_is_refused(labelled, tmp_path, capsys):
    output = recipe_file(tmp_path, **TOLD, **SMALL)
    command = ["train", "--shards", labelled, "--into", str(tmp_path), "--recipe", output, "--threads", "1"]
    assert run([*command, "--start", labelled]) == 2
    assert "Give the folder that" in " ".join(capsys.readouterr().err.split())
