"""Small models with random weights, one for each tower that reads word by word."""

from clicktower.training.model.model import Model
from clicktower.training.model.parameters import initial_parameters, layout_of
from tests.recipes import recipe_with, varied

ROWS = 50_700
TOWERS = {
    "lstm": {},
    "lstm with forget gate": {"forget_gate": True},
    "lstm with peepholes": {"peepholes": True},
    "full lstm": {"forget_gate": True, "peepholes": True},
    "bilstm": {"tower": "bilstm"},
    "full bilstm": {"tower": "bilstm", "forget_gate": True, "peepholes": True},
    "rnn": {"tower": "rnn"},
    "printed_lstm": {"tower": "printed_lstm"},
    "self_attentive": {"tower": "self_attentive", "attention_units": 4, "hops": 3},
    "max_pooled": {"tower": "max_pooled"},
    "variational": {"tower": "variational", "latent": 3},
}


def small_model(tower: str = "lstm", **changes) -> Model:
    """A model that was never trained. Its cells differ enough to be told apart."""
    switches = TOWERS.get(tower, {"tower": tower})
    recipe = varied(recipe_with(name="small", cells=5, initial_range=0.4), **switches, **changes)
    layout = layout_of(recipe, ROWS)
    towers = {name: initial_parameters(layout, name) for name in recipe.objective.towers}
    return Model.of(layout, towers)
