"""Texts to embeddings in stock parts: nn.EmbeddingBag for each distinct word once, nn.LSTM on texts of one length."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from benchmarks.peers.stock_towers import Arrangement, StockTower, Tensors
from clicktower.schemas.text_contract import trigram_ids, words
from clicktower.training.towers.text_table import Ragged, TextTable, list_offsets

BATCH_TEXTS = 1_024


class StockEncoder:
    """A tower for encoding alone, on `threads` threads that each take batches of texts of one length."""

    def __init__(self, parts: Tensors, table_rows: int, threads: int) -> None:
        self._tower = StockTower(Arrangement(), parts).eval()
        self._table_rows, self._threads = table_rows, threads

    def encode(self, table: TextTable) -> np.ndarray:
        """The embeddings of all texts of a table, float32 [texts, d]; every text has a word."""
        lengths = table.words.lengths
        order = np.argsort(lengths, kind="stable")
        of_one_length = np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1)
        batches = [texts[at : at + BATCH_TEXTS] for texts in of_one_length for at in range(0, len(texts), BATCH_TEXTS)]
        vectors = np.empty((len(table), self._tower.dimensions), np.float32)
        with torch.inference_mode():
            trigrams = torch.from_numpy(table.trigrams.values.astype(np.int64))
            word_UG = self._tower.bag(trigrams, torch.from_numpy(table.trigrams.offsets[:-1]))

        def encode_some(texts: np.ndarray) -> None:
            at_TN = table.words.values[table.words.offsets[texts] + np.arange(lengths[texts[0]])[:, None]]
            with torch.inference_mode():
                last = self._tower.last(word_UG, torch.from_numpy(at_TN), torch.from_numpy(lengths[texts]))
            vectors[texts] = last.numpy()

        with ThreadPoolExecutor(self._threads, initializer=torch.set_num_threads, initargs=(1,)) as threads:
            list(threads.map(encode_some, batches))
        return vectors

    def encode_raw(self, texts: Sequence[str]) -> np.ndarray:
        """The same of texts, cut into words one after the other in Python."""
        return self.encode(self.read(texts))

    def read(self, texts: Sequence[str]) -> TextTable:
        """Texts as words and trigrams, each distinct word once."""
        number: dict[str, int] = {}
        of_texts = [[number.setdefault(word, len(number)) for word in words(text)] for text in texts]
        offsets = list_offsets(np.fromiter(map(len, of_texts), np.int64, len(of_texts)))
        flat = np.fromiter((word for text in of_texts for word in text), np.int64, int(offsets[-1]))
        return TextTable(Ragged(offsets, flat), Ragged(*trigram_ids(list(number), self._table_rows)))


class StockServing:
    """One short text at a time, each word's trigrams known from a dictionary."""

    def __init__(self, parts: Tensors, trigrams_of: Mapping[str, Sequence[int]]) -> None:
        self._tower = StockTower(Arrangement(), parts).eval()
        self._trigrams_of = trigrams_of

    def __call__(self, text: str) -> np.ndarray:
        """Its embedding, float32 [1, d]."""
        bags = [self._trigrams_of[word] for word in words(text)]
        offsets = list_offsets(np.array([len(bag) for bag in bags]))[:-1]
        with torch.inference_mode():
            flat = torch.tensor([trigram for bag in bags for trigram in bag])
            word_UG = self._tower.bag(flat, torch.from_numpy(offsets))
            _, (last, _) = self._tower.recurrence(word_UG[:, None])
        return last[0].numpy()
