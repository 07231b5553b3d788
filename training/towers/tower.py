"""What every tower is: texts, read as bags of letter trigrams, become one vector each.

A tower is a function of its parameters and of W l(t); its gradient is autograd's. The only other operation that it
needs is `gather_rows`, whose sums have a fixed order on any device, and which is several times faster than index_add.

Shapes: N texts, R rows of W that a batch touches, U distinct words, P packed rows (text_batch), G columns of W,
d dimensions of the embedding.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.nn.functional import embedding_bag

from clicktower.training.towers.text_batch import TextBatch, copied

Parts = Mapping[str, torch.Tensor]  # those parameters, or their gradients
# The embedding of each sorted text [N, d], and what the tower adds to the loss of the whole batch.
Embedded = tuple[torch.Tensor, torch.Tensor | float]
# The rows to take, and where each summed run of them begins; None: each row by itself.
Gather = tuple[torch.Tensor, torch.Tensor | None]


class Tower(Protocol):
    """The interface of a tower, which its settings make (tower_settings), for training and encoding."""

    def forward(self, word_UG: torch.Tensor, parts: Parts, batch: TextBatch) -> Embedded:
        """The texts of a batch.

        `word_UG`: W l of each distinct word. `parts` may hold others beside the tower's.
        """


@dataclass(frozen=True, slots=True)
class Projected:
    """Any tower above word vectors: a word's D numbers become the inner tower's inputs by one matrix.

        W l(t) of the inner tower = x(t) W_in,    x(t) the vector of word t, or the sum of its letter trigrams' rows

    D columns of W, and G of the inner tower.
    """

    inner: Tower

    def forward(self, word_UD: torch.Tensor, parts: Parts, batch: TextBatch) -> Embedded:
        return self.inner.forward(word_UD @ parts["W_in"], parts, batch)


# The building blocks of towers.


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, there: Gather, back: Gather | None) -> torch.Tensor:
        ctx.there, ctx.back, ctx.num_rows = there, back, len(rows)
        return _gather(rows, there)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, by_sums: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        back = _inverse(ctx.there, ctx.num_rows) if ctx.back is None else ctx.back
        return _gather(by_sums.contiguous(), back), None, None


def gather_rows(rows: torch.Tensor, there: Gather, back: Gather | None = None) -> torch.Tensor:
    """Rows of a matrix, or sums of them. `back`: for each row its indices in `there`; None: computed when needed."""
    return _Gathered.apply(rows, there, back)


def _gather(rows: torch.Tensor, gather: Gather) -> torch.Tensor:
    index, begins = gather
    return rows.index_select(0, index) if begins is None else embedding_bag(index, rows, begins, mode="sum")


def _inverse(gather: Gather, num_rows: int) -> Gather:
    index, begins = gather
    ordered, place = index.sort(stable=True)
    if begins is not None:
        place = torch.searchsorted(begins, place, right=True) - 1
    return place, torch.searchsorted(ordered, torch.arange(num_rows, device=index.device))


def word_inputs(table_RG: torch.Tensor, batch: TextBatch) -> torch.Tensor:
    """W l of each distinct word, [U, G]; towers look words up by position."""
    there, back = (batch.word_trigrams, batch.word_offsets), (batch.trigram_words, batch.trigram_offsets)
    return gather_rows(table_RG, there, back)


def packed_inputs(word_UG: torch.Tensor, batch: TextBatch) -> torch.Tensor:
    """W l of the word in each packed row, [P, G]."""
    return gather_rows(word_UG, (batch.packed_words, None), (batch.words_packed, batch.words_packed_offsets))


def sum_by_word(packed_PG: torch.Tensor, batch: TextBatch) -> torch.Tensor:
    """[U, G] for each distinct word, the sum of the packed rows in which it stands."""
    return _gather(packed_PG, (batch.words_packed, batch.words_packed_offsets))


def text_sums(word_UG: torch.Tensor, batch: TextBatch) -> torch.Tensor:
    """Σ_t W l(t) of each sorted text, [N, G]."""
    order_P, _, begins_N = reading_order(batch)
    back = text_of_row(batch)[batch.words_packed], batch.words_packed_offsets
    return gather_rows(word_UG, (batch.packed_words[order_P], begins_N), back)


def text_of_row(batch: TextBatch) -> torch.Tensor:
    """The sorted text in each packed row, [P]: text i of them is in row step_offsets[s] + i at step s."""
    return _steps_and_texts(batch)[1]


def reading_order(batch: TextBatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(packed rows text by text, word by word [P], each one's place among them [P], where texts begin [N])."""
    step_P, text_P = _steps_and_texts(batch)
    texts_N = torch.arange(len(batch.order), device=text_P.device)
    begin_N = torch.searchsorted(step_offsets(batch).diff(), texts_N, right=True)
    length_N = batch.num_steps - begin_N
    begins_N = length_N.cumsum(0) - length_N
    place_P = begins_N[text_P] + step_P - begin_N[text_P]
    order_P = torch.empty_like(place_P).scatter_(0, place_P, torch.arange(len(place_P), device=text_P.device))
    return order_P, place_P, begins_N


def length_groups(batch: TextBatch) -> list[tuple[int, int]]:
    """(how many sorted texts, of how many words) for each length that occurs, longest first."""
    active = [0, *(batch.active(step) for step in range(batch.num_steps))]
    begun = [(active[step + 1] - active[step], batch.num_steps - step) for step in range(batch.num_steps)]
    return [(texts, length) for texts, length in begun if texts]


def opposite(batch: TextBatch) -> torch.Tensor:
    """The packed row in which each row's word stands when texts are read from right to left, [P].

    Texts are as long as before, so steps and sorted texts stay. Text i begins at step begin[i] and ends at the last
    one, so its word at step s is found at step begin[i] + last - s: the same exchange back and forth.
    """
    step_P, text_P = _steps_and_texts(batch)
    offsets = step_offsets(batch)
    begin_P = torch.searchsorted(offsets.diff(), text_P, right=True)
    return offsets[begin_P + batch.num_steps - 1 - step_P] + text_P


def neighbour(batch: TextBatch, distance: int) -> torch.Tensor:
    """The packed row of the word `distance` places to the right in the same text, [P]; P beyond the text's ends."""
    step_P, text_P = _steps_and_texts(batch)
    offsets = step_offsets(batch)
    step_P += distance
    inside = (step_P >= 0) & (step_P < batch.num_steps)
    step_P.clamp_(0, batch.num_steps - 1)
    inside &= text_P < offsets.diff()[step_P]
    return torch.where(inside, offsets[step_P] + text_P, batch.step_offsets[-1])


def highest(value_PH: torch.Tensor, batch: TextBatch) -> torch.Tensor:
    """The maximum over the words of each sorted text, unit by unit, [N, H].

    Of words that share it, the earliest one gets the gradient. No two texts share a row, so nothing is added.
    """
    with torch.no_grad():
        highest_NH = value_PH.new_full((len(batch.order), value_PH.shape[1]), -torch.inf)
        winner_NH = torch.zeros_like(highest_NH, dtype=torch.int64)
        row_P1 = torch.arange(len(value_PH), device=value_PH.device)[:, None]
        for step in range(batch.num_steps):
            start, end = batch.step_offsets[step], batch.step_offsets[step + 1]
            so_far, winner = highest_NH[: end - start], winner_NH[: end - start]
            higher = value_PH[start:end] > so_far
            torch.where(higher, row_P1[start:end], winner, out=winner)
            torch.maximum(so_far, value_PH[start:end], out=so_far)
    return value_PH.gather(0, winner_NH)


def _steps_and_texts(batch: TextBatch) -> tuple[torch.Tensor, torch.Tensor]:
    offsets = step_offsets(batch)
    num_packed = batch.step_offsets[-1]
    steps = torch.arange(batch.num_steps, device=offsets.device)
    step_P = torch.repeat_interleave(steps, offsets.diff(), output_size=num_packed)  # this avoids a wait for a GPU
    return step_P, torch.arange(num_packed, device=offsets.device) - offsets[step_P]


def step_offsets(batch: TextBatch) -> torch.Tensor:
    """The packed rows where steps begin, on the batch's device, without waiting for it."""
    return copied(torch.tensor(batch.step_offsets), batch.packed_words.device)
