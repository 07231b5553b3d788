"""The maximum over the words of each text, unit by unit, and where it is.

Shapes: N texts, P packed rows (training.text_batch), H units.
"""

import torch

from training.text_batch import TextBatch


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
