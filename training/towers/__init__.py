"""Towers by the names that recipes call them by.

A tower of your own needs one file: a class with the three properties and the `forward` of tower.Tower,
and a call of `add_tower`. Wherever that file has been imported, recipes may name the tower, and it trains, encodes and
is evaluated. Nothing is ever imported because a model or a recipe names it.
"""

from collections.abc import Callable, Collection

from schemas.errors import UsageError
from training.recipes.recipe import Recipe, declare_tower
from training.towers.bag import CLSM, DSSM, Bag
from training.towers.bilstm import BidirectionalLSTM, MaxPooled, SelfAttentive, Variational
from training.towers.lstm import LSTM
from training.towers.projected import Projected
from training.towers.rnn import RNN
from training.towers.tower import Parts, Shapes, Tower

__all__ = ["Parts", "Shapes", "Tower", "add_tower", "tower_of"]


def _lstm(recipe: Recipe) -> LSTM:
    return LSTM(recipe.cells, recipe.forget_gate, recipe.peepholes)


def _self_attentive(recipe: Recipe) -> SelfAttentive:
    return SelfAttentive(
        one_way=_lstm(recipe),
        attention_units=recipe.attention_units,
        hops=recipe.hops,
        penalty=recipe.penalty,
        average=recipe.average_hops,
    )


_MADE_BY: dict[str, Callable[[Recipe], Tower]] = {
    "lstm": _lstm,
    "bilstm": lambda recipe: BidirectionalLSTM(_lstm(recipe)),
    "rnn": lambda recipe: RNN(recipe.cells),
    "dssm": lambda recipe: DSSM(recipe.hidden, recipe.cells),
    "clsm": lambda recipe: CLSM(recipe.window, recipe.hidden, recipe.cells),
    "bag": lambda recipe: Bag(recipe.cells),
    "self_attentive": _self_attentive,
    "max_pooled": lambda recipe: MaxPooled(_lstm(recipe)),
    "variational": lambda recipe: Variational(_lstm(recipe), recipe.latent),
}


def add_tower(name: str, make: Callable[[Recipe], Tower], *, settings: Collection[str] = ()) -> None:
    """Let recipes name a tower, which `make` makes of them.

    `settings`: those of recipe.SETTINGS that it has; a recipe that sets another is refused. Every
    process that trains or encodes has to call this: with several workers, those of Ray too. Raises ValueError for a
    name that is taken or a setting that no recipe has.
    """
    declare_tower(name, settings)
    _MADE_BY[name] = make


def tower_of(recipe: Recipe) -> Tower:
    """The tower a recipe names. Raises UsageError where this process has not added it."""
    if recipe.tower not in _MADE_BY:  # a recipe that came from another process
        raise UsageError(
            asked=f"the recipe {recipe.name} names the tower {recipe.tower}",
            found="this process has no tower of that name",
            do="import the file that adds it here too, or train with one worker",
        )
    tower = _MADE_BY[recipe.tower](recipe)
    return tower if recipe.word_vectors == "none" else Projected(tower, recipe.word_columns)
