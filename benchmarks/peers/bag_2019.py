"""A bag of hashed words, word pairs and letter trigrams in plain torch (Nigam et al., KDD 2019, arXiv:1907.00937).

What many shops train instead of towers: the mean of an embedding of 256 numbers for each part of a text, one table for
both sides. The loss is what such bags are trained with today: a softmax over the titles of the minibatch at temperature
1/20. Adam steps the rows that a minibatch touches. Of steps 0.001, 0.003 and 0.01 and 5 and 10 epochs, the queries of
product titles that choose (quality.py) chose STEP and EPOCHS.
"""

import time
from collections.abc import Sequence
from itertools import pairwise
from zlib import crc32

import numpy as np
import torch
from torch.nn import EmbeddingBag
from torch.nn.functional import cross_entropy, normalize

from schemas.text_contract import words
from training.model.embedding import Side

ROWS, COLUMNS = 1 << 18, 256
MINIBATCH, SCALE, RANGE, STEP, EPOCHS = 256, 20.0, 0.1, 0.003, 10
_TEXTS_AT_ONCE = 4096


class Bag2019:
    """A TextEncoder."""

    similarity = "cosine"

    def __init__(self, table: EmbeddingBag, max_words: int | None, core_seconds: float) -> None:
        self._table, self._max_words, self.core_seconds = table, max_words, core_seconds

    @torch.no_grad()
    def encode(self, texts: Sequence[str], side: Side) -> np.ndarray:
        """float32 [texts, COLUMNS]; both sides alike."""
        blocks = (texts[start : start + _TEXTS_AT_ONCE] for start in range(0, len(texts), _TEXTS_AT_ONCE))
        return torch.cat(
            [_embed(self._table, [parts(text, self._max_words) for text in block]) for block in blocks]
        ).numpy()


def train(pairs: Sequence[tuple[str, str]], *, seed: int, max_words: int | None = None) -> Bag2019:
    """A bag trained on (query, clicked title) pairs; `max_words`: of a text, the first ones."""
    torch.manual_seed(seed)
    began = time.process_time()
    table = EmbeddingBag(ROWS, COLUMNS, mode="mean", sparse=True)
    torch.nn.init.uniform_(table.weight, -RANGE, RANGE)
    optimiser = torch.optim.SparseAdam(table.parameters(), lr=STEP)
    of_sides = [[parts(text, max_words) for text in side] for side in zip(*pairs, strict=True)]
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(pairs)).split(MINIBATCH):
            queries, titles = (normalize(_embed(table, [side[at] for at in chosen.tolist()])) for side in of_sides)
            loss = cross_entropy(SCALE * queries @ titles.T, torch.arange(len(chosen)))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return Bag2019(table, max_words, time.process_time() - began)


def parts(text: str, max_words: int | None) -> list[int]:
    """The rows of a text's words, pairs of neighbouring words, and letter trigrams."""
    of_text = words(text)[:max_words]
    trigrams = [f"#{word}#"[at : at + 3] for word in of_text for at in range(len(word))]
    kinds = ("word", of_text), ("pair", map(" ".join, pairwise(of_text))), ("trigram", trigrams)
    return [crc32(f"{kind} {part}".encode()) % ROWS for kind, named in kinds for part in named]


def _embed(table: EmbeddingBag, bags: Sequence[Sequence[int]]) -> torch.Tensor:
    offsets = np.cumsum([0, *map(len, bags[:-1])])
    return table(torch.tensor([row for bag in bags for row in bag]), torch.from_numpy(offsets))
