"""Towers: a text, read word by word, becomes one vector. Each has cells, columns, forward and backward."""

from training.recipes import Recipe
from training.towers.lstm import LSTM
from training.towers.rnn import RNN

Tower = LSTM | RNN


def tower_of(recipe: Recipe) -> Tower:
    """The tower a recipe names."""
    return {"lstm": LSTM, "rnn": RNN}[recipe.tower](recipe.cells)
