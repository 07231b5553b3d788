"""The words a decoder can say: the most frequent ones of the training texts."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from schemas.words import words
from training.ragged import Ragged, starts

END, UNKNOWN, FIRST_WORD = 0, 1, 2  # ids: a text is over, a word the vocabulary lacks, words[0]
UNKNOWN_SHOWN = "<unknown>"


@dataclass(frozen=True)
class Vocabulary:
    """`words`, most frequent first, have the ids 2, 3, ...; 0 ends a text, 1 stands for any other word.

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

    def text(self, ids: Iterable[int]) -> str:
        """What ids say, for people: words with a space between them, up to the end if there is one."""
        said = []
        for i in ids:
            if i == END:
                break
            said.append(UNKNOWN_SHOWN if i == UNKNOWN else self.words[i - FIRST_WORD])
        return " ".join(said)

    @cached_property
    def _id_of(self) -> dict[str, int]:
        return {word: FIRST_WORD + at for at, word in enumerate(self.words)}


def vocabulary_of(texts: Iterable[str], max_words: int) -> Vocabulary:
    """The `max_words` most frequent words of some texts, each as often as it stands there; ties by the word."""
    counts = Counter(word for text in texts for word in words(text))
    by_count = sorted(counts.items(), key=lambda counted: (-counted[1], counted[0]))
    return Vocabulary(tuple(word for word, _ in by_count[:max_words]))
