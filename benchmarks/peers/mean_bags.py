"""What many shops train instead of towers, in plain torch: a text is the mean of its parts' rows in one table.

    bag_2019       hashed words, word pairs and letter trigrams (Nigam et al., KDD 2019, arXiv:1907.00937)
    static_table   word pieces with the vectors that the wheel of wordllama brings (0.4, 16 MB)

The loss is what such bags are trained with today: a softmax over the titles of the minibatch at temperature 1/20. Adam
steps the rows that a minibatch touches. The queries of product titles that choose (quality.py) chose steps and epochs:
of the bag among steps 0.001, 0.003 and 0.01 and 5 and 10 epochs, of the table among steps from 0.0003 to 0.03 and 1 to
10 epochs.
"""

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import numpy as np
import safetensors.torch
import torch
from tokenizers import Tokenizer
from torch.nn import EmbeddingBag
from torch.nn.functional import cross_entropy, normalize

from clicktower.schemas.text_contract import words
from clicktower.training.model.embedding import Side

ROWS, COLUMNS, RANGE = 1 << 18, 256, 0.1  # of the bag of 2019
MINIBATCH, SCALE = 256, 20.0
_TEXTS_AT_ONCE = 4096


class MeanBag:
    """A TextEncoder. `parts_of`: the rows of a text's parts in the table."""

    similarity = "cosine"

    def __init__(self, parts_of: Callable[[str], Sequence[int]], table_RC: torch.Tensor) -> None:
        self._parts_of = parts_of
        self._table = EmbeddingBag.from_pretrained(table_RC, freeze=False, mode="mean", sparse=True)

    @torch.no_grad()
    def encode(self, texts: Sequence[str], side: Side) -> np.ndarray:
        """float32 [texts, COLUMNS]; both sides alike."""
        blocks = (texts[start : start + _TEXTS_AT_ONCE] for start in range(0, len(texts), _TEXTS_AT_ONCE))
        return torch.cat([self._embed([self._parts_of(text) for text in block]) for block in blocks]).numpy()

    def train(self, pairs: Sequence[tuple[str, str]], *, seed: int, step: float, epochs: int) -> float:
        """Train on (query, clicked title) pairs; the core-seconds."""
        torch.manual_seed(seed)
        began = time.process_time()
        optimiser = torch.optim.SparseAdam(self._table.parameters(), lr=step)
        of_sides = [[self._parts_of(text) for text in side] for side in zip(*pairs, strict=True)]
        for _ in range(epochs):
            for chosen in torch.randperm(len(pairs)).split(MINIBATCH):
                queries, titles = (normalize(self._embed([side[at] for at in chosen.tolist()])) for side in of_sides)
                loss = cross_entropy(SCALE * queries @ titles.T, torch.arange(len(chosen)))
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
        return time.process_time() - began

    def _embed(self, bags: Sequence[Sequence[int]]) -> torch.Tensor:
        offsets = np.cumsum([0, *map(len, bags[:-1])])
        return self._table(torch.tensor([row for bag in bags for row in bag]), torch.from_numpy(offsets))


def bag_2019(pairs: Sequence[tuple[str, str]], *, seed: int, max_words: int | None = None) -> tuple[MeanBag, float]:
    """(the bag trained on some pairs, core-seconds). `max_words`: of a text, the first ones."""
    first = torch.empty(ROWS, COLUMNS).uniform_(-RANGE, RANGE, generator=torch.Generator().manual_seed(seed))
    bag = MeanBag(lambda text: hashed_parts(text, max_words), first)
    return bag, bag.train(pairs, seed=seed, step=0.003, epochs=10)


def tuned_table(
    wordllama: Path, pairs: Sequence[tuple[str, str]], *, seed: int, max_words: int | None = None
) -> tuple[MeanBag, float]:
    """(static_table trained on some pairs, core-seconds)."""
    table = static_table(wordllama, max_words)
    return table, table.train(pairs, seed=seed, step=0.01, epochs=5)


def hashed_parts(text: str, max_words: int | None) -> list[int]:
    """The rows of a text's words, pairs of neighbouring words, and letter trigrams."""
    of_text = words(text)[:max_words]
    trigrams = [f"#{word}#"[at : at + 3] for word in of_text for at in range(len(word))]
    kinds = ("word", of_text), ("pair", map(" ".join, pairwise(of_text))), ("trigram", trigrams)
    return [crc32(f"{kind} {part}".encode()) % ROWS for kind, named in kinds for part in named]


def static_table(wordllama: Path, max_words: int | None = None) -> MeanBag:
    """The table as it comes. `wordllama`: the package's folder, as `pip install --no-deps --target` leaves it."""
    [weights], [pieces] = wordllama.glob("weights/*_256.safetensors"), wordllama.glob("tokenizers/*.json")
    tokeniser = Tokenizer.from_file(str(pieces))

    def parts_of(text: str) -> Sequence[int]:
        kept = text if max_words is None else " ".join(text.split()[:max_words])
        return tokeniser.encode(kept, add_special_tokens=False).ids

    return MeanBag(parts_of, safetensors.torch.load_file(weights)["embedding.weight"].float())
