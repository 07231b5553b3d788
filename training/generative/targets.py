"""Texts as a decoder learns to say them: at each position the word that was said before it, and the one to say there.

A text of n words has n + 1 positions, the last of which is its end. P counts the positions of all texts, in reading
order, one text after the other. For the LSTM each position is a word of its own, with an input of its own.
"""

from dataclasses import dataclass, fields, replace

import numpy as np
import torch

from training.generative.vocabulary import END, UNKNOWN
from training.ragged import Ragged, invert
from training.text_batch import TextBatch, TextTable, copied, text_batch


@dataclass(frozen=True, kw_only=True, slots=True)
class Targets:
    """Index arrays only: nothing here depends on parameters, so it can be made ahead of time."""

    batch: TextBatch  # of the texts with their ends, whose distinct words are the positions
    said: torch.Tensor  # [P] the word to say at each position
    text: torch.Tensor  # [P] the text each position belongs to, in the caller's order
    text_begins: torch.Tensor  # [B] each text's first position
    read: torch.Tensor  # [U] the distinct words that are read: all that were said before, and the start
    read_at: torch.Tensor  # [P] which of them is read at each position
    positions_of_read: torch.Tensor  # [P] the same the other way round, for the gradient: where each of them is read
    positions_of_read_begin: torch.Tensor  # [U]

    def to(self, device: torch.device) -> "Targets":
        """These targets, from the CPU, on a device."""
        if device.type == "cpu":
            return self
        arrays = {f.name: copied(getattr(self, f.name), device) for f in fields(self) if f.name != "batch"}
        return replace(self, batch=self.batch.to(device), **arrays)


def targets_of(ids: Ragged, vocabulary: int, kept: np.ndarray | None = None) -> Targets:
    """The targets of some texts (training.generative.vocabulary.Vocabulary.ids), in a vocabulary of so many ids.

    The start of a text is read as the id after the last, `vocabulary`. `kept`, bool [P]: whether the word before each
    position is read as it is; where not, it is read as unknown, so that more has to come from z (word dropout, Bowman
    et al., arXiv:1511.06349, section 3.1.2). Starts are always read. None: all are.

    Raises ValueError for a text that does not end with its end, and for ids of another vocabulary.
    """
    begins, ends, said = ids.offsets[:-1], ids.offsets[1:] - 1, ids.values
    if not len(ids) or ids.lengths.min() == 0 or said[ends].any() or np.count_nonzero(said == END) != len(ids):
        raise ValueError("every text to be said has one end, after its last word")
    if said.min() < 0 or said.max() >= vocabulary:
        raise ValueError("a word to be said is not in the decoder's vocabulary")
    before = np.empty_like(said)
    before[1:] = said[:-1]
    if kept is not None:
        before[~kept] = UNKNOWN
    before[begins] = vocabulary
    read, read_at = np.unique(before, return_inverse=True)
    positions_of_read = invert(read_at, len(read))
    positions = np.arange(len(said))
    of_its_own = TextTable(Ragged(ids.offsets, positions), Ragged(np.arange(len(said) + 1), np.zeros_like(positions)))
    return Targets(
        batch=text_batch([(of_its_own, np.arange(len(ids)))]),
        said=torch.from_numpy(said),
        text=torch.from_numpy(np.repeat(np.arange(len(ids)), ids.lengths)),
        text_begins=torch.from_numpy(begins),
        read=torch.from_numpy(read),
        read_at=torch.from_numpy(read_at),
        positions_of_read=torch.from_numpy(positions_of_read.values),
        positions_of_read_begin=torch.from_numpy(positions_of_read.offsets[:-1]),
    )
