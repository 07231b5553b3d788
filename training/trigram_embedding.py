"""W l(t) of eq. 1 and 2, and its gradient: gather-sums over the rows of W that occur, each distinct word once.

Shapes: R rows of W that a batch touches, U distinct words, P packed rows, G columns (gates times cells).
"""

import torch
from torch.nn.functional import embedding_bag

from training.text_batch import TextBatch


def word_inputs(table_RG: torch.Tensor, bias_G: torch.Tensor, batch: TextBatch) -> torch.Tensor:
    """W l + b of each distinct word, [U, G]; towers look words up by position."""
    return embedding_bag(batch.word_trigrams, table_RG, batch.word_offsets, mode="sum").add_(bias_G)


def input_gradient(packed_PG: torch.Tensor, batch: TextBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients (of the touched rows of W [R, G], of b [G]) from that of W l(t) + b in every packed row.

    Both scatters are written as gathers over the inverse index: no two threads write one row, the order of each sum
    is fixed, and it is several times faster than index_add.
    """
    word_UG = embedding_bag(batch.words_packed, packed_PG, batch.words_packed_offsets, mode="sum")
    return embedding_bag(batch.trigram_words, word_UG, batch.trigram_offsets, mode="sum"), word_UG.sum(0)
