"""Where packed rows stand in their texts: texts read from right to left, and the words beside a word.

Shapes: P packed rows (training.text_batch: text i of the sorted texts is in row step_offsets[s] + i at step s).
"""

from dataclasses import replace

import torch

from training.text_batch import TextBatch, copied


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
