"""What every tower is: texts, read as bags of letter trigrams, become one vector each.

Shapes: N texts, U distinct words, G columns of the trigram table W, d dimensions of the embedding.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import torch
from torch.nn.functional import embedding_bag

from training.data.text_batch import TextBatch, copied

Shapes = tuple[tuple[str, tuple[int, ...]], ...]  # names and shapes of parameters, in the order they are stored in
Parts = Mapping[str, torch.Tensor]  # those parameters, or their gradients


class Tower(Protocol):
    """What training and encoding need of a tower. W l(t) and its gradient are tower's."""

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


# Where packed rows stand in their texts: texts read from right to left, and the words beside a word.
#
# Shapes: P packed rows (text_batch: text i of the sorted texts is in row step_offsets[s] + i at step s).


def text_of_row(batch: TextBatch) -> torch.Tensor:
    """The sorted text in each packed row, [P]."""
    return _steps_and_texts(batch)[1]


def opposite(batch: TextBatch) -> torch.Tensor:
    """The packed row in which each row's word stands when texts are read from right to left, [P].

    Texts are as long as before, so steps and sorted texts stay. Text i begins at step begin[i] and ends at the last
    one, so its word at step s is found at step begin[i] + last - s: the same exchange back and forth.
    """
    step_P, text_P = _steps_and_texts(batch)
    offsets = _offsets(batch)
    begin_P = torch.searchsorted(offsets.diff(), text_P, right=True)
    return offsets[begin_P + batch.num_steps - 1 - step_P] + text_P


def right_to_left(batch: TextBatch) -> TextBatch:
    """The batch of the same texts with their words in reverse order."""
    exchange_P = opposite(batch)
    return replace(batch, packed_words=batch.packed_words[exchange_P], words_packed=exchange_P[batch.words_packed])


def texts_of_one_length(batch: TextBatch) -> list[torch.Tensor]:
    """The packed rows of the texts of each length that occurs, longest first: [texts, words], in the texts' order.

    The sorted texts are one length after the other, so the lists are too.
    """
    offsets, found, end = batch.step_offsets, [], 0
    device = batch.packed_words.device
    for step in range(batch.num_steps):
        if (active := batch.active(step)) > end:  # these begin here
            starts_of_steps = copied(torch.tensor(offsets[step:-1]), device)
            found.append(starts_of_steps + torch.arange(end, active, device=device)[:, None])
            end = active
    return found


def neighbour(batch: TextBatch, distance: int) -> torch.Tensor:
    """The packed row of the word `distance` places to the right in the same text, [P]; P beyond the text's ends."""
    step_P, text_P = _steps_and_texts(batch)
    offsets = _offsets(batch)
    step_P += distance
    inside = (step_P >= 0) & (step_P < batch.num_steps)
    step_P.clamp_(0, batch.num_steps - 1)
    inside &= text_P < offsets.diff()[step_P]
    return torch.where(inside, offsets[step_P] + text_P, batch.step_offsets[-1])


def _steps_and_texts(batch: TextBatch) -> tuple[torch.Tensor, torch.Tensor]:
    offsets = _offsets(batch)
    num_packed = batch.step_offsets[-1]
    steps = torch.arange(batch.num_steps, device=offsets.device)
    step_P = torch.repeat_interleave(steps, offsets.diff(), output_size=num_packed)  # a GPU need not be asked for it
    return step_P, torch.arange(num_packed, device=offsets.device) - offsets[step_P]


def _offsets(batch: TextBatch) -> torch.Tensor:
    return copied(torch.tensor(batch.step_offsets), batch.packed_words.device)


# The maximum over the words of each text, unit by unit, and where it is.
#
# Shapes: N texts, P packed rows (text_batch), H units.


def highest(value_PH: torch.Tensor, batch: TextBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """(each text's maximum [N, H], the packed row that has it [N, H]); of words that share it, the earliest one's."""
    num_texts = batch.active(batch.num_steps - 1)
    highest_NH = value_PH.new_full((num_texts, value_PH.shape[1]), -torch.inf)
    winner_NH = torch.zeros_like(highest_NH, dtype=torch.int64)
    row_P1 = torch.arange(len(value_PH), device=value_PH.device)[:, None]
    for step in range(batch.num_steps):
        start, end = batch.step_offsets[step], batch.step_offsets[step + 1]
        so_far, winner = highest_NH[: end - start], winner_NH[: end - start]
        higher = value_PH[start:end] > so_far
        torch.where(higher, row_P1[start:end], winner, out=winner)
        torch.maximum(so_far, value_PH[start:end], out=so_far)
    return highest_NH, winner_NH


def by_value(by_highest_NH: torch.Tensor, winner_NH: torch.Tensor, num_rows: int) -> torch.Tensor:
    """The gradient of each row's values, [num_rows, H], given that of the maxima: zero but for the winners.

    No two texts share a row, so nothing is added.
    """
    by_value_PH = by_highest_NH.new_zeros(num_rows, by_highest_NH.shape[1])
    return by_value_PH.scatter_(0, winner_NH, by_highest_NH)


# The last layer of DSSM and CLSM: tanh(W_s h + b_s) of a text's hidden vector, itself a tanh.
#
# Shapes: N texts, H hidden units, d dimensions of the embedding.


def semantic_parts(hidden: int, dimensions: int) -> Shapes:
    """The hidden layer's bias b, then this layer's own."""
    return ("b", (hidden,)), ("W_s", (hidden, dimensions)), ("b_s", (dimensions,))


def semantic_vectors(hidden_NH: torch.Tensor, parts: Parts) -> torch.Tensor:
    """The embeddings, [N, d]."""
    return torch.addmm(parts["b_s"], hidden_NH, parts["W_s"]).tanh_()


def semantic_gradient(
    hidden_NH: torch.Tensor, vectors_Nd: torch.Tensor, by_vectors_Nd: torch.Tensor, parts: Parts
) -> tuple[torch.Tensor, Parts]:
    """Gradients (of the hidden tanh's arguments [N, H], of b, W_s and b_s), given that of the embeddings."""
    by_argument_Nd = (1 - vectors_Nd.square()).mul_(by_vectors_Nd)
    by_hidden_NH = (by_argument_Nd @ parts["W_s"].t()).mul_(1 - hidden_NH.square())
    by_parts = {
        "b": by_hidden_NH.sum(0),
        "W_s": hidden_NH.t() @ by_argument_Nd,
        "b_s": by_argument_Nd.sum(0),
    }
    return by_hidden_NH, by_parts


# W l(t) of every tower's equations, and its gradient: gather-sums over the rows of W that occur, each word once.
#
# Both scatters of the gradient are written as gathers over the inverse index: no two threads write one row, the order
# of each sum is fixed, and it is several times faster than index_add.
#
# Shapes: R rows of W that a batch touches, U distinct words, P packed rows, G columns of W.


def word_inputs(table_RG: torch.Tensor, batch: TextBatch) -> torch.Tensor:
    """W l of each distinct word, [U, G]; towers look words up by position."""
    return embedding_bag(batch.word_trigrams, table_RG, batch.word_offsets, mode="sum")


def sum_by_word(packed_PG: torch.Tensor, batch: TextBatch) -> torch.Tensor:
    """[U, G] for each distinct word, the sum of the packed rows in which it stands."""
    return embedding_bag(batch.words_packed, packed_PG, batch.words_packed_offsets, mode="sum")


def table_gradient(by_word_UG: torch.Tensor, batch: TextBatch) -> torch.Tensor:
    """The gradient of the touched rows of W, [R, G], given that of W l of each distinct word."""
    return embedding_bag(batch.trigram_words, by_word_UG, batch.trigram_offsets, mode="sum")
