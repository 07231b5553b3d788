"""The compiled path: recurrent towers on a CPU, in plain C++ called through ctypes.

vector.h             sixteen floats as one value, the same bits with every instruction set
recurrent.h          chunks of texts through the steps of an LSTM or RNN and back
rows.h, click_loss.h gathers, sums and updates of rows; the loss
gradient.cpp         a micro-batch from words to the gradient of every parameter
batch.cpp            the index of a batch; tokenise.cpp: texts to words and trigrams
encode_text.cpp      one short text from its bytes to its vector
distribution.py      what the variational tower makes of its states
kernel_search.py     vectors in eight bits, and which may be nearest to a query (nearest.cpp, dot_rows.h); titles by
                     word, and the best of them for some words (postings.cpp)
library.py           finds and loads what the package's build made of them
"""

from training.kernel.kernel_library import Status, fma_peak, status
from training.recipes.objectives import Clicks
from training.recipes.recipe import Nesterov, Recipe
from training.recipes.towers import LSTM, RNN, BiLSTM, Variational

__all__ = ["Status", "fma_peak", "serves", "status", "trains"]

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
        and isinstance(recipe.objective, Clicks)
        and isinstance(recipe.optimiser, Nesterov)
        and not recipe.objective.teacher
    )
