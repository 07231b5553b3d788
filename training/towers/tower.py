"""What every tower is: texts, read as bags of letter trigrams, become one vector each.

Shapes: N texts, U distinct words, G columns of the trigram table W, d dimensions of the embedding.
"""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import torch

from training.text_batch import TextBatch

Shapes = tuple[tuple[str, tuple[int, ...]], ...]  # names and shapes of parameters, in the order they are stored in
Parts = Mapping[str, torch.Tensor]  # those parameters, or their gradients


class Tower(Protocol):
    """What training and encoding need of a tower. W l(t) and its gradient are training.trigram_embedding's."""

    @property
    def columns(self) -> int:
        """Of the trigram table: what one trigram adds to."""

    @property
    def dimensions(self) -> int:
        """Of the embedding."""

    @property
    def parts(self) -> Shapes:
        """All other parameters."""

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> tuple[torch.Tensor, Any]:
        """(the embedding of each sorted text [N, d], what backward needs). `word_UG`: W l of each distinct word."""

    def backward(
        self, trace: Any, by_vectors_Nd: torch.Tensor, parts: Parts, batch: TextBatch, steps: int = 0
    ) -> tuple[torch.Tensor, Parts]:
        """Gradients (of W l of each distinct word [U, G], of each part), given that of the embeddings.

        `steps`: how many steps from the word a text ends with gradients reach back; 0 is all of them. Uses up the
        trace.
        """


@runtime_checkable
class Penalised(Protocol):
    """A tower that adds a term of its own to the loss. Its `backward` adds that term's gradient."""

    def own_loss(self, trace: Any) -> torch.Tensor:
        """That term, summed over the texts of a batch, []; to be asked for before `backward` uses up the trace."""
