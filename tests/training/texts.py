"""Small random texts as trigram ids, for tests that need no shards."""

import numpy as np

from clicktower.training.towers.text_table import Ragged, TextTable, list_offsets

Text = list[list[int]]


def random_texts(
    rng: np.random.Generator, num_texts: int, *, longest: int, num_trigrams: int
) -> tuple[TextTable, list[Text]]:
    """A table of texts of 1 to `longest` words, some of which they share, and the same texts as plain lists."""
    vocabulary = [rng.integers(0, num_trigrams, rng.integers(1, 6)).tolist() for _ in range(12)]
    vocabulary[0] = [3, 3, 3]  # a trigram that occurs more than once in a word counts more than once
    texts = [rng.integers(0, len(vocabulary), rng.integers(1, longest + 1)).tolist() for _ in range(num_texts)]
    return table_of(texts, vocabulary), [[vocabulary[w] for w in text] for text in texts]


def table_of(texts: list[list[int]], vocabulary: list[list[int]]) -> TextTable:
    return TextTable(_ragged(texts), _ragged(vocabulary))


def _ragged(lists: list[list[int]]) -> Ragged:
    return Ragged(list_offsets(np.array([len(x) for x in lists])), np.array([v for x in lists for v in x], np.int64))
