"""Texts as a decoder learns to say them: at each position the word that was said before it, and the one to say there.

A text of n words has n + 1 positions, the last of which is its end. P counts the positions of all texts, in reading
order, one text after the other. For the LSTM each position is a word of its own, with an input of its own.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from schemas.words import words
from training.data.ragged import Ragged, invert, starts
from training.data.text_batch import OnDevice, TextBatch, TextTable, text_batch

END, UNKNOWN, FIRST_WORD = 0, 1, 2  # ids: a text is over, a word the vocabulary lacks, words[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Targets(OnDevice):
    """Index arrays only: nothing here depends on parameters, so it can be made ahead of time."""

    batch: TextBatch  # of the texts with their ends, whose distinct words are the positions
    said: torch.Tensor  # [P] the word to say at each position
    text: torch.Tensor  # [P] the text each position belongs to, in the caller's order
    text_begins: torch.Tensor  # [B] each text's first position
    read: torch.Tensor  # [U] the distinct words that are read: all that were said before, and the start
    read_at: torch.Tensor  # [P] which of them is read at each position
    positions_of_read: torch.Tensor  # [P] the same the other way round, for the gradient: where each of them is read
    positions_of_read_begin: torch.Tensor  # [U]


def targets_of(ids: Ragged, vocabulary: int, kept: np.ndarray | None = None) -> Targets:
    """The targets of some texts (targets.Vocabulary.ids), in a vocabulary of so many ids.

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


@dataclass(frozen=True)
class TargetVocabulary:
    """The words a decoder can say: `words`, most frequent first, have the ids 2, 3, ...

    0 ends a text, 1 stands for any other word.

    Raises ValueError for a word that stands there twice.
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self._id_of) != len(self.words):
            raise ValueError("a vocabulary has each of its words once")

    @property
    def size(self) -> int:
        """Ids in use."""
        return FIRST_WORD + len(self.words)

    def ids(self, texts: Sequence[str]) -> Ragged:
        """The words of each text (schemas.words) and its end, int64; of a text without words the end alone."""
        found = [[self._id_of.get(word, UNKNOWN) for word in words(text)] for text in texts]
        lengths = np.array([len(text) + 1 for text in found], np.int64)
        return Ragged(starts(lengths), np.array([i for text in found for i in (*text, END)], np.int64))

    @cached_property
    def _id_of(self) -> dict[str, int]:
        return {word: FIRST_WORD + at for at, word in enumerate(self.words)}


def vocabulary_of(texts: Iterable[str], max_words: int) -> TargetVocabulary:
    """The `max_words` most frequent words of some texts, each as often as it stands there; ties by the word."""
    counts = Counter(word for text in texts for word in words(text))
    by_count = sorted(counts.items(), key=lambda counted: (-counted[1], counted[0]))
    return TargetVocabulary(tuple(word for word, _ in by_count[:max_words]))
