import dataclasses
import hashlib
import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest

from clicktower.schemas.errors import UsageError
from clicktower.schemas.section import changed, named_settings
from clicktower.training.model.label_settings import Generate
from clicktower.training.model.parameters import layout_of
from clicktower.training.model.recipe import Recipe, names, recipe
from clicktower.training.towers.tower_kinds import RNN
from clicktower.training.trainer.launch import pretraining


def test_every_named_recipe_can_be_asked_for_by_its_name():
    assert [recipe(name).name for name in names()] == names()
    assert "lstm-96" in names()


@pytest.mark.parametrize("name", names())
def test_a_recipe_comes_back_from_the_json_that_a_model_holds(name):
    assert Recipe(**json.loads(json.dumps(dataclasses.asdict(recipe(name))))) == recipe(name)


def test_the_recipes_of_the_papers_name_are_what_it_prints_and_no_other_is():
    assert [name for name in names() if recipe(name).as_printed] == [name for name in names() if "paper-" in name]
    for name in filter(lambda name: name.startswith("paper-"), names()):
        made = recipe(name)
        assert made.objective.towers == ("query", "document"), "Algorithm 1 returns two models"
        assert not made.clicks.same_start
        assert (made.clicks.start, made.clicks.negatives.kind, made.clicks.weights) == ("uniform", "fixed", "none")
        assert (made.optimiser.momentum_edge, made.optimiser.momentum_middle) == (0.9, 0.995)
        assert made.optimiser.clip_norm > 0, "th_G"
        layout = layout_of(made, 50_000)
        steps = {step for _, _, step in layout.stretches(layout.rows)}
        assert steps == {made.optimiser.step}, "one step size a model"
    sizes = {f"paper-lstm-96-n{n}": n for n in (2, 6, 8)} | {"paper-lstm-96": 4}
    assert {name: recipe(name).clicks.num_negatives for name in sizes} == sizes


@pytest.mark.parametrize(
    "change",
    [
        {"objective.tie_towers": True}, {"objective.negatives": "redrawn"}, {"optimiser.momentum_middle": 0.9},
        {"optimiser.clip_norm": 0}, {"optimiser": "adam"}, {"tower.recurrent_step": 0.1}, {"tower.peepholes": True},
        {"tower": "bag"}, {"word_vectors": "tuned"},
    ],
)  # fmt: skip
def test_a_recipe_with_what_the_paper_prints_otherwise_is_not_as_printed(change):
    assert not changed(recipe("paper-lstm-96"), change).as_printed
    opened = {"objective.gamma": 7, "optimiser.step": 0.1, "optimiser.clip_norm": 1, "initial_range": 0.1, "epochs": 2,
              "objective.num_negatives": 8, "tower.truncate_steps": 5, "minibatch": 512, "seed": 3}  # fmt: skip
    assert changed(recipe("paper-lstm-96"), opened).as_printed


def test_an_unknown_recipe_is_answered_with_the_known_ones():
    with pytest.raises(UsageError, match="lstm-96, lstm-64"):
        recipe("lstm-97")


def test_fields_are_set_by_their_place_and_another_kind_keeps_what_both_have():
    by_name = changed(
        recipe("lstm-96"), {"tower.cells": 32, "tower": "rnn", "objective.negatives": "pool", "epochs": "3"}
    )
    nested = {"tower": {"kind": "rnn", "cells": "32"}, "objective": {"negatives": {"kind": "pool"}}, "epochs": 3}
    assert changed(recipe("lstm-96"), nested) == by_name
    assert by_name.tower == RNN(cells=32, recurrent_range=0.01, recurrent_step=0.00004)
    assert by_name.clicks.gamma == recipe("lstm-96").clicks.gamma
    assert changed(changed(by_name, {"word_vectors": "frozen"}), {"word_vectors": "none"}) == by_name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimiser.step": math.nan}, "optimiser.step is nan: it must be a finite number"),
        ({"optimiser.step": 0}, "optimiser.step is 0: it must be greater than 0"),
        ({"epochs": 0}, "epochs is 0: it must be greater than or equal to 1"),
        ({"epochs": "many"}, "epochs is many: it must be a valid integer"),
        ({"optimiser.momentum_middle": 1}, "less than 1"),
        ({"reduction": "sum"}, "it must be 'exact' or 'fast'"),
        ({"minibatch": 100}, "multiple of micro_batch"),
        ({"tower": "rnn", "tower.forget_gate": True}, "no field tower.forget_gate of this kind, but of lstm, bilstm"),
        ({"tower.hidden": 288}, "no field tower.hidden of this kind, but of dssm, clsm"),
        ({"tower": "bag", "tower.truncate_steps": 3}, "no field tower.truncate_steps of this kind"),
        ({"tower": "clsm", "tower.window": 2}, "tower.window is 2: it must be odd"),
        ({"objective.start": "tfidf"}, "it must be 'uniform' or 'idf'"),
        ({"tower.recurrent_range": -0.1}, "greater than or equal to 0"),
        ({"tower.forget_bias": 3.0}, "0 without forget_gate"),
        ({"tower": "transformer"}, "its kind 'transformer' must be one of lstm, bilstm"),
        ({"word_vectors.columns": 300}, "its kind '' must be one of tuned, frozen"),
        ({"objective.negatives.size": 30}, "no field objective.negatives.size of this kind, but of pool"),
        ({"objective": "generate"}, "tower must be variational, not lstm"),
        ({"optimiser": "adam", "optimiser.momentum_edge": 0.5}, "of this kind, but of nesterov"),
    ],
)
def test_a_setting_that_means_nothing_is_refused_and_says_what_would_do(settings, message):
    with pytest.raises(UsageError, match=f"(?i){message}") as caught:
        changed(recipe("lstm-96"), settings)
    assert caught.value.exit_code == 2
    assert caught.value.fix


@pytest.mark.parametrize(
    ("name", "now"),
    [
        ("cells", "tower.cells"),
        ("forget_gate", "tower.forget_gate"),
        ("num_negatives", "objective.num_negatives"),
        ("pool_size", "objective.negatives.size"),
        ("pool_softmax", "objective.negatives.softmax"),
        ("teacher_share", "objective.teacher.share"),
        ("head_units", "objective.head.units"),
        ("pretrain_epochs", "objective.pretrain.epochs"),
        ("kappa_rate", "objective.kappa_rate"),
        ("step", "optimiser.step"),
        ("word_columns", "word_vectors.columns"),
        ("optimiser.momentum_midle", "optimiser.momentum_middle"),
        ("epoch", "epochs"),
    ],
)
def test_a_name_of_before_there_were_sections_and_a_misspelt_one_are_answered_with_the_name(name, now):
    with pytest.raises(UsageError, match=f"no field {name} .did you mean {now}"):
        changed(recipe("lstm-96"), {name: 1})


def test_naming_and_checking_a_recipe_does_not_import_torch():
    code = "import sys; from clicktower.training.model.recipe import recipe; recipe('variational')"
    code += "; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_pretraining_asked_for_by_hand_is_the_one_that_a_recipe_begins_with():
    """To the byte of what is written of it: a request's digest tells 0 from 0.0."""
    objective = Generate(
        reformulate=True, paraphrase="1", decoder_cells=96, decoder_columns=64, vocabulary=3000, word_dropout=0.4,
        kappa_rate=0.001, kappa_middle=6000,
    )  # fmt: skip
    by_hand = replace(recipe("var-siamese"), objective=objective, epochs=10)
    assert json.dumps(dataclasses.asdict(pretraining(recipe("var-siamese")))) == json.dumps(dataclasses.asdict(by_hand))


def test_a_newer_setting_leaves_the_settings_that_name_earlier_models():
    # A part of the digest of each training of lstm-96.
    named = json.dumps(named_settings(recipe("lstm-96")), sort_keys=True)
    assert hashlib.sha256(named.encode()).hexdigest()[:16] == "2d01de652b587465"
    assert "bias" not in json.dumps(named_settings(recipe("rnn-288")))
    assert '"bias": false' in json.dumps(named_settings(changed(recipe("rnn-288"), {"tower.bias": False})))
    assert "appendix" in json.dumps(named_settings(changed(recipe("lstm-96"), {"tower.gradient": "appendix"})))
