"""Which recipes the compiled kernels serve. Free of torch, as far as another reason says no."""

from training.kernel.kernel_library import status
from training.model.objective_settings import Clicks
from training.model.recipe import Nesterov, Recipe
from training.towers.tower_settings import LSTM, RNN, BiLSTM, Variational

_TRAINED = (LSTM, BiLSTM, RNN)


def serves(recipe: Recipe) -> bool:
    """Whether the compiled path encodes with this recipe's towers, on this machine."""
    return (
        status().available
        and isinstance(recipe.tower, (*_TRAINED, Variational))
        and recipe.tower.cells % 16 == 0
        and recipe.dtype == "float32"
        and recipe.word_vectors is None
    )


def trains(recipe: Recipe) -> bool:
    """Whether it trains them too."""
    return (
        serves(recipe)
        and isinstance(recipe.tower, _TRAINED)
        and isinstance(recipe.optimiser, Nesterov)
        and isinstance(recipe.objective, Clicks)
        and not recipe.objective.teacher
    )


def moves_rows(recipe: Recipe) -> bool:
    """Whether, given gradients, it makes a recipe's updates. Imports torch, unless another reason says no."""
    if not (
        status().available
        and recipe.dtype == "float32"
        and isinstance(recipe.optimiser, Nesterov)
        and recipe.word_vectors is None
    ):
        return False
    from training.model.parameters import tower_of

    return tower_of(recipe).columns % 16 == 0
