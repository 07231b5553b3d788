"""Keywords of what a release holds: one model as the counting rule says, several by vote, none without gates."""

import pytest
import torch

from clicktower.training.analysis.keywords import MOST_TRACED, CountingRule, gate_keywords, keywords
from clicktower.training.analysis.traces import trace
from clicktower.training.model.ensemble import Ensemble
from tests.training.analysis.small_models import small_model

torch.set_num_threads(1)
TEXT = "cheap hotels in rome near the old river"


@pytest.mark.parametrize("tower", ["lstm", "full bilstm", "rnn", "self_attentive"])
def test_of_one_model_they_are_those_of_the_counting_rule(tower):
    model = small_model(tower)
    counted = keywords(trace(model, TEXT, "document").traces, CountingRule())
    found = gate_keywords(model, TEXT, "document")
    assert found.keywords == counted.keywords
    assert found.moved == pytest.approx([most / 5 for most in counted.most])  # of 5 cells
    assert len(found.moved) == 8


def test_of_models_side_by_side_half_of_the_recurrent_ones_decide():
    members = (small_model("lstm"), small_model("rnn", seed=2), small_model("bag"), small_model("lstm", seed=5))
    alone = [
        set(gate_keywords(member, TEXT, "query").keywords) for member in members if member.recipe.tower.kind != "bag"
    ]
    assert len(set(map(frozenset, alone))) > 1  # they differ, so there is something to vote on
    expected = tuple(word for word in range(8) if sum(word in one for one in alone) >= 1.5)
    assert gate_keywords(Ensemble(members=members), TEXT, "query").keywords == expected


def test_a_tower_without_gates_has_none():
    assert gate_keywords(small_model("bag"), TEXT, "query") is None


def test_a_very_long_text_is_not_traced():
    model = small_model("lstm")
    assert gate_keywords(model, "word " * MOST_TRACED, "document") is not None
    assert gate_keywords(model, "word " * (MOST_TRACED + 1), "document") is None


def test_one_word_is_no_keyword_of_itself():
    assert gate_keywords(small_model("lstm"), "bracket", "query").keywords == ()
