"""W l(t) of eq. 1 and 2, and its gradient: gather-sums over the rows of W that occur, each distinct word once.

Shapes: R rows of W that a batch touches, U distinct words, P packed rows, G columns (gates times cells).
"""

import torch
from torch.nn.functional import embedding_bag

from training.text_batch import TextBatch


def gather_sum(table_RG: torch.Tensor, bias_G: torch.Tensor, batch: TextBatch) -> torch.Tensor:
    """W l(t) + b for every packed row, [P, G]: summed once per distinct word, then looked up by position."""
    word_UG = embedding_bag(batch.word_trigrams, table_RG, batch.word_offsets, mode="sum").add_(bias_G)
    return word_UG.index_select(0, batch.packed_words)


def row_gradient(packed_PG: torch.Tensor, batch: TextBatch) -> torch.Tensor:
    """The gradient of the touched rows, [R, G], from that of every packed row.

    Both scatters are written as gathers over the inverse index: no two threads write one row, the order of each sum
    is fixed, and it is several times faster than index_add.
    """
    word_UG = embedding_bag(batch.words_packed, packed_PG, batch.words_packed_offsets, mode="sum")
    return embedding_bag(batch.trigram_words, word_UG, batch.trigram_offsets, mode="sum")
