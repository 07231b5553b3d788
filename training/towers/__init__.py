"""Towers by the recipe that names them."""

from training.recipes import Recipe
from training.towers.bag import Bag
from training.towers.bilstm import BidirectionalLSTM
from training.towers.clsm import CLSM
from training.towers.dssm import DSSM
from training.towers.lstm import LSTM
from training.towers.rnn import RNN
from training.towers.self_attentive import SelfAttentive
from training.towers.tower import Parts, Penalised, Shapes, Tower

__all__ = ["Parts", "Penalised", "Shapes", "Tower", "tower_of"]


def tower_of(recipe: Recipe) -> Tower:
    """The tower a recipe names."""
    match recipe.tower:
        case "lstm":
            return _lstm(recipe)
        case "bilstm":
            return BidirectionalLSTM(_lstm(recipe))
        case "rnn":
            return RNN(recipe.cells)
        case "dssm":
            return DSSM(recipe.hidden, recipe.cells)
        case "clsm":
            return CLSM(recipe.window, recipe.hidden, recipe.cells)
        case "bag":
            return Bag(recipe.cells)
        case "self_attentive":
            return SelfAttentive(
                one_way=_lstm(recipe),
                attention_units=recipe.attention_units,
                hops=recipe.hops,
                penalty=recipe.penalty,
                average=recipe.average_hops,
            )


def _lstm(recipe: Recipe) -> LSTM:
    return LSTM(recipe.cells, recipe.forget_gate, recipe.peepholes)
