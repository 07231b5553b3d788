"""`clicktower train` as a person sees it: the profile, the page about the training, two lines of progress."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from flows.cli import run
from flows.commands import train as present_profile
from flows.show import console, present
from tests.training.objectives.labelled_builds import built, questions
from tests.training.small_shards import shop, write_build

SETTINGS = ("cells=8", "epochs=2", "minibatch=32", "micro_batch=8", "step=0.02", "clip_norm=12")


@pytest.fixture(scope="module")
def build(tmp_path_factory) -> str:
    pairs, pool = shop(100)
    dev, _ = shop(20, seed=9)
    shards = {"train-00000": pairs, "dev-00000": dev}
    return write_build(str(tmp_path_factory.mktemp("build")), shards, pool, labels={"simulated": True})


@pytest.fixture(scope="module")
def profiled(build, tmp_path_factory) -> str:
    """A store with a model that was trained with a profile."""
    store = str(tmp_path_factory.mktemp("store"))
    assert run(train(build, store, "--profile", "--json")) == 0
    return store


def train(build: str, store: str, *more: str) -> list[str]:
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    return ["train", "--shards", build, "--into", store, "--threads", "1", *sets, *more]


def test_a_profile_is_shown_and_lies_beside_the_model(build, tmp_path, capsys):
    assert run(train(build, str(tmp_path), "--profile")) == 0
    told = capsys.readouterr()
    assert "Where the time went: 8 updates" in told.out  # 13 micro-batches of 8 are 4 minibatches, twice
    for phase in ("load", "report", "preparation"):
        assert phase in told.out
    assert "nothing was run" not in told.err
    (folder,) = (tmp_path / "train").glob("*/attempt-*")
    assert {"profile.json", "trace.json", "steps.jsonl", "model.safetensors"} <= {p.name for p in folder.iterdir()}


def test_with_json_the_profile_is_part_of_the_one_object(build, profiled, capsys):
    assert run(train(build, profiled, "--profile", "--json")) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["profile"]["updates"] == 8
    assert Path(result["profile"]["path"]).is_file()


def test_of_a_model_that_was_there_already_nothing_new_is_measured_and_that_is_said(build, profiled, tmp_path, capsys):
    assert run(train(build, profiled, "--profile")) == 0
    told = capsys.readouterr()
    assert "nothing was run: this model was there already. The profile below is of the run that made it." in told.err
    assert "Where the time went" in told.out
    assert run(train(build, str(tmp_path))) == 0
    capsys.readouterr()
    assert run(train(build, str(tmp_path), "--profile")) == 0
    told = capsys.readouterr()
    assert "So there is nothing to profile. To measure a run, train into an empty store (--into)" in told.err
    assert "Where the time went" not in told.out


def test_a_page_about_the_training_is_written_of_a_finished_model_too(build, profiled, tmp_path, capsys):
    page = tmp_path / "training.html"
    assert run(train(build, profiled, "--report", str(page))) == 0
    html = page.read_text(encoding="utf-8")
    assert html.count("<svg") == 4
    for text in (
        "Training of lstm-96",
        "Simulated.",
        "Loss per pair",
        "Where the time went",
        "100 pairs of query and clicked title, 8 updates",
    ):
        assert text in html


def test_shares_of_a_table_add_up_with_what_is_left(monkeypatch):
    """2 of 8 seconds in one phase, 1 in another: 5 are in neither."""
    shown = Console(file=io.StringIO(), width=100)
    monkeypatch.setattr(present_profile, "output", shown)
    rows = [
        {"where": "loop", "phase": "update", "what": "w", "calls": 4, "seconds": 2.0, "share": 0.25},
        {"where": "loop", "phase": "input", "what": "w", "calls": 1_000, "seconds": 1.0, "share": 0.125},
        {"where": "compute", "phase": "gather", "what": "w", "calls": 2, "seconds": 4.0, "share": 0.25},
    ]
    profile = {"updates": 4, "seconds": 8.0, "threads": 2, "resumed_at": 16, "phases": rows, "path": "p/profile.json"}
    present_profile.show_profile(profile)
    lines = [" ".join(line.split()) for line in shown.file.getvalue().splitlines()]
    assert "(the part of the run from update 17 on)" in lines
    assert "update 2.00 25.0% 4 500 ms ██ w" in lines
    assert "input 1.00 12.5% 1,000 1.0 ms █ w" in lines
    assert "between phases 5.00 62.5%" in lines
    assert "Inside the micro-batches, all threads together (of 2)" in lines
    assert "gather 4.00 25.0% 2 2.0 s ██ w" in lines
    assert "idle 12.00 75.0%" in lines  # of 2 x 8 seconds
    assert max(map(len, shown.file.getvalue().splitlines())) <= 100


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
    file.write_text('[train]\nrecipe = "variational"\n[train.set]\ngamma = 5.0\n' + "\n".join(lines) + "\n")
    return str(file)


SMALL = {"optimiser": "adam", "tie_towers": True, "cells": 8, "latent": 6, "epochs": 2, "minibatch": 16,
         "micro_batch": 8, "step": 0.01}  # fmt: skip


@pytest.mark.slow
def test_a_classifier_starts_from_texts_said_again_and_both_are_told_in_their_own_figures(labelled, tmp_path, capsys):
    command = ["train", "--shards", labelled, "--into", str(tmp_path), "--threads", "1", "--json"]
    said = recipe_file(tmp_path, objective="generate", decoder_cells=8, decoder_columns=6, vocabulary=30, **SMALL)
    page = tmp_path / "said.html"
    assert run([*command, "--recipe", said, "--report", str(page)]) == 0
    started = json.loads(capsys.readouterr().out)
    assert "held-out loss" in (line := present.headline(started))
    assert f"{started['metrics']['dev_word_repeat']:.3f} nats a word, KL " in line
    assert line.endswith("examples/s")
    html = page.read_text(encoding="utf-8")
    for text in ("Cross-entropy per word", "KL divergence", "Nats a word", "Loss per example", "texts to be said again",
                 "a decoder of 8 cells and 30 words"):  # fmt: skip
        assert text in html
    assert "NDCG" not in html

    told = recipe_file(tmp_path, objective="classify", features="w2", head_units=8, **SMALL)
    assert run([*command, "--recipe", told, "--start", started["path"], "--report", str(page)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert present.headline(result) == (
        f"2 epochs, training loss {result['metrics']['train_loss']:.3f}, held-out loss "
        f"{result['metrics']['dev_loss']:.3f}, accuracy {result['metrics']['dev_accuracy']:.3f}, area under ROC "
        f"{result['metrics']['dev_area_under_roc']:.3f}, {result['metrics']['pairs_per_second']:,.0f} examples/s"
    )
    html = page.read_text(encoding="utf-8")
    for text in ("Accuracy and area under ROC", "Area under ROC", "labelled examples", "of pairs: other, same",
                 "w2 features, mlp head"):  # fmt: skip
        assert text in html
    for text in ("NDCG", "Negatives", "Cross-entropy"):
        assert text not in html


def test_a_start_that_is_no_model_is_refused(labelled, tmp_path, capsys):
    told = recipe_file(tmp_path, objective="classify", features="w2", head_units=8, **SMALL)
    command = ["train", "--shards", labelled, "--into", str(tmp_path), "--recipe", told, "--threads", "1"]
    assert run([*command, "--start", labelled]) == 2
    assert "Give the folder that" in " ".join(capsys.readouterr().err.split())
