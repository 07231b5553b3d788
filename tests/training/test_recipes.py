import dataclasses
import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest

from schemas.errors import UsageError
from training.recipes.named_recipes import lstm_96, names, recipe
from training.run.launch import pretraining


def test_every_named_recipe_can_be_asked_for_by_its_name():
    assert [recipe(name).name for name in names()] == names()
    assert "lstm-96" in names()


def test_the_default_recipe_is_the_papers():
    base = recipe("lstm-96")
    assert (base.tower, base.cells, base.num_negatives) == ("lstm", 96, 4)
    assert not base.forget_gate
    assert not base.peepholes


def test_an_unknown_recipe_is_answered_with_the_known_ones():
    with pytest.raises(UsageError, match="lstm-96, lstm-64"):
        recipe("lstm-97")


ATTENTIVE = {"tower": "self_attentive", "attention_units": 3, "hops": 2}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"step": math.nan}, "above 0"),
        ({"step": 0}, "above 0"),
        ({"epochs": 0}, "at least 1"),
        ({"momentum_middle": 1}, "below 1"),
        ({"reduction": "sum"}, "one of exact, fast"),
        ({"minibatch": 100}, "multiple of micro_batch"),
        ({"tower": "rnn", "forget_gate": True}, "false .rnn has no gates"),
        ({"tower": "dssm", "hidden": 288, "peepholes": True}, "false .dssm has no gates"),
        ({"tower": "dssm", "hidden": 288, "truncate_steps": 3}, "0 .dssm has no last step to count back from"),
        ({"tower": "dssm"}, "at least 1"),
        ({"hidden": 288}, "0 .lstm has no layer"),
        ({"tower": "clsm", "hidden": 288, "window": 2}, "odd"),
        ({"window": 3}, "0 .lstm has no window"),
        ({"tower": "bag", "hidden": 288}, "0 .bag has no layer"),
        ({"tower": "bag", "truncate_steps": 3}, "0 .bag has no last step to count back from"),
        ({"tower": "bag", "peepholes": True}, "false .bag has no gates"),
        ({"start": "tfidf"}, "one of uniform, idf"),
        ({"recurrent_range": -0.1}, "at least 0"),
        ({"tower": "bag", "recurrent_range": 0.1}, "0 .bag has no recurrence"),
        ({"recurrent_step": -0.1}, "at least 0"),
        ({"tower": "dssm", "hidden": 288, "recurrent_step": 0.1}, "0 .dssm has no recurrence"),
        ({"tower": "rnn", "forget_bias": 3.0}, "0 .rnn has no gates"),
        ({"forget_bias": 3.0}, "0 without forget_gate"),
        ({"forget_gate": True, "forget_bias": math.nan}, "from -100 to 100"),
        ({"tower": "self_attentive", "attention_units": 3}, "at least 1"),
        ({"tower": "self_attentive", "hops": 2}, "at least 1"),
        ({**ATTENTIVE, "penalty": math.nan}, "at least 0"),
        ({**ATTENTIVE, "penalty": -1.0}, "at least 0"),
        ({**ATTENTIVE, "truncate_steps": 3}, "0 .self_attentive has no last step"),
        ({**ATTENTIVE, "hidden": 288}, "0 .self_attentive has no layer"),
        ({"hops": 2}, "0 .lstm has no attention"),
        ({"attention_units": 3}, "0 .lstm has no attention"),
        ({"penalty": 0.1}, "0 .lstm has no attention"),
        ({"average_hops": True}, "false .lstm has no attention"),
        ({"tower": "variational"}, "at least 1"),
        ({"latent": 3}, "0 .lstm has no distribution"),
        ({"tower": "max_pooled", "truncate_steps": 3}, "0 .max_pooled has no last step"),
        ({"tower": "clsm", "hidden": 288, "window": -1}, "odd and at least 1"),
        ({"tower": "transformer"}, "one of lstm, bilstm"),
    ],
)
def test_a_setting_that_means_nothing_is_refused_and_says_what_would_do(settings, message):
    with pytest.raises(UsageError, match=message) as caught:
        replace(lstm_96(), **settings)
    assert caught.value.exit_code == 2
    assert caught.value.do


def test_naming_and_checking_a_recipe_does_not_import_torch():
    code = "import sys; from training.recipes.named_recipes import recipe; recipe('variational')"
    code += "; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_pretraining_asked_for_by_hand_is_the_one_that_a_recipe_begins_with():
    """To the byte of what is written of it: a request's digest tells 0 from 0.0."""
    by_hand = replace(
        recipe("var-siamese"), objective="generate", features="plain", head_units=0, dropout=0.0, l1=0.0,
        pretrain_epochs=0, epochs=10,
    )  # fmt: skip
    assert json.dumps(dataclasses.asdict(pretraining(recipe("var-siamese")))) == json.dumps(dataclasses.asdict(by_hand))
