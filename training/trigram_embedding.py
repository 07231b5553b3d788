"""W l(t) of every tower's equations, and its gradient: gather-sums over the rows of W that occur, each word once.

Both scatters of the gradient are written as gathers over the inverse index: no two threads write one row, the order of
each sum is fixed, and it is several times faster than index_add.

Shapes: R rows of W that a batch touches, U distinct words, P packed rows, G columns of W.
"""

import torch
from torch.nn.functional import embedding_bag

from training.text_batch import TextBatch


def word_inputs(table_RG: torch.Tensor, batch: TextBatch) -> torch.Tensor:
    """W l of each distinct word, [U, G]; towers look words up by position."""
    return embedding_bag(batch.word_trigrams, table_RG, batch.word_offsets, mode="sum")


def sum_by_word(packed_PG: torch.Tensor, batch: TextBatch) -> torch.Tensor:
    """[U, G] for each distinct word, the sum of the packed rows in which it stands."""
    return embedding_bag(batch.words_packed, packed_PG, batch.words_packed_offsets, mode="sum")


def table_gradient(by_word_UG: torch.Tensor, batch: TextBatch) -> torch.Tensor:
    """The gradient of the touched rows of W, [R, G], given that of W l of each distinct word."""
    return embedding_bag(batch.trigram_words, by_word_UG, batch.trigram_offsets, mode="sum")
