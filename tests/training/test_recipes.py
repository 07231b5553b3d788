import pytest

from schemas.errors import UsageError
from training.recipes import lstm_96, names, recipe, with_settings


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


def test_settings_are_read_by_the_kind_of_their_field():
    made = with_settings(lstm_96(), {"step": "1e-3", "epochs": "7", "shuffle_clicks": "true", "reduction": "fast"})
    assert (made.step, made.epochs, made.shuffle_clicks, made.reduction) == (0.001, 7, True, "fast")
    assert made.cells == 96


@pytest.mark.parametrize(("settings", "message"), [
    ({"stepp": "1"}, "no such field"),
    ({"name": "mine"}, "no such field"),
    ({"epochs": "many"}, "whole number"),
    ({"epochs": "1.5"}, "whole number"),
    ({"step": "fast"}, "a number"),
    ({"step": "nan"}, "above 0"),
    ({"step": "0"}, "above 0"),
    ({"shuffle_clicks": "maybe"}, "true or false"),
    ({"epochs": "0"}, "at least 1"),
    ({"momentum_middle": "1"}, "below 1"),
    ({"reduction": "sum"}, "one of exact, fast"),
    ({"minibatch": "100"}, "multiple of micro_batch"),
    ({"forget_gate": "true"}, "must be false"),
    ({"peepholes": "true"}, "must be false"),
])  # fmt: skip
def test_a_setting_that_means_nothing_is_refused_and_says_what_would_do(settings, message):
    with pytest.raises(UsageError, match=message) as caught:
        with_settings(lstm_96(), settings)
    assert caught.value.exit_code == 2
    assert caught.value.do
