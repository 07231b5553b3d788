"""Towers: a text, read word by word, becomes one vector.

Shapes: N texts, U distinct words, P packed rows (see training.text_batch), d cells, G columns (gates times cells).
"""

from typing import Any, Protocol

import torch

from training.recipes import Recipe
from training.text_batch import TextBatch
from training.towers.lstm import LSTM
from training.towers.rnn import RNN


class Tower(Protocol):
    """What training and encoding need of a tower. W l(t) and its gradient are training.trigram_embedding's."""

    @property
    def cells(self) -> int: ...

    @property
    def columns(self) -> int: ...

    def forward(self, word_UG: torch.Tensor, recurrent_dG: torch.Tensor, batch: TextBatch) -> tuple[torch.Tensor, Any]:
        """(y at the last word of each sorted text [N, d], what backward needs). `word_UG`: W l + b of each word."""

    def backward(
        self, trace: Any, last_Nd: torch.Tensor, recurrent_dG: torch.Tensor, batch: TextBatch, steps: int = 0
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients (of W l(t) + b in every packed row [P, G], of W_rec [d, G]) for `last_Nd`, that of the result.

        `steps`: how many steps from a text's last word gradients reach back; 0 is all of them. Uses up the trace.
        """


def tower_of(recipe: Recipe) -> Tower:
    """The tower a recipe names."""
    return LSTM(recipe.cells) if recipe.tower == "lstm" else RNN(recipe.cells)
