"""Texts -> embeddings with a trained model, many at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from schemas.errors import UsageError
from schemas.words import words
from training.data.ragged import Ragged, WordRows, grouped_order, starts
from training.data.text_batch import TextTable, text_batch
from training.gpu.device import CPU
from training.kernel import serves, status
from training.kernel.kernel_encode import CompiledTower
from training.kernel.tokenise import tokenised
from training.models.encoder import Encoder, encode_batch
from training.models.parameters import tower_name
from training.run.threads import alone, compute_threads

if TYPE_CHECKING:
    from training.models.model import Model

BATCH_TEXTS = 1_024


def encode(
    model: Model, texts: Sequence[str], side: Literal["query", "document"], *, empty: Literal["error", "zero"] = "error"
) -> np.ndarray:
    """The embeddings of texts, float32 [texts, dimensions], in their order.

    A text without a word has no embedding: `empty` error raises UsageError, zero gives the zero vector, whose
    similarity to anything is 0.
    """
    if side not in ("query", "document"):
        raise UsageError(
            asked=f"texts were to be encoded for the side {side!r}",
            found="there is no such side",
            do="use query or document",
        )
    compiled = model.compiled and model.compiled[side]
    if compiled and len(texts) == 1 and (vector := compiled.encode_short(texts[0])) is not None:
        return vector
    table = text_table(texts, model.layout.word_rows)
    wordless = np.flatnonzero(table.words.lengths == 0)
    if len(wordless) and empty == "error":
        raise UsageError(
            asked=f"{len(texts):,} texts were to be encoded",
            found=f"{len(wordless):,} of them have no word (the first is number {int(wordless[0]) + 1:,})",
            follows="a text without a word has no embedding",
            do="leave them out, or ask for zero vectors (empty='zero')",
        )
    return encode_limited(model, table, side)


def encode_limited(model: Model, table: TextTable, side: Literal["query", "document"]) -> np.ndarray:
    """The embeddings of all texts of a table, read up to the words that the recipe allows; zero without a word."""
    table = table.limited(model.recipe.max_words, model.recipe.overflow)
    compiled = model.compiled and model.compiled[side]
    return compiled.encode(table) if compiled else encode_table(model.encoder, table, side)


def encode_table(encoder: Encoder, table: TextTable, side: str) -> np.ndarray:
    """The embeddings of all texts of a table, float32 [texts, dimensions]; zero for a text without a word.

    The table's words are limited as the recipe says.
    """
    if serves(encoder.recipe) and encoder.device == CPU:
        return _compiled(encoder, table, side).encode(table)
    vectors = np.zeros((len(table), encoder.dimensions), np.float32)
    lengths = table.words.lengths
    by_length = grouped_order(lengths)
    by_length = by_length[np.count_nonzero(lengths == 0) :]

    def encode_some(start: int) -> None:
        index = by_length[start : start + BATCH_TEXTS]
        batch = text_batch([(table, index)]).to(encoder.device.place)
        vectors[index] = encode_batch(batch, side, encoder).cpu().numpy()

    batches = range(0, len(by_length), BATCH_TEXTS)
    if len(batches) == 1:  # a query being served: not worth a pool
        with alone():
            encode_some(0)
    elif batches:
        with compute_threads(min(len(batches), len(os.sched_getaffinity(0)))) as threads:
            list(threads.map(encode_some, batches))
    return vectors


def text_table(texts: Sequence[str], word_rows: WordRows) -> TextTable:
    """Texts cut into words by the text contract, each distinct word once, numbered as they appear, as rows of W."""
    if status().available and not word_rows.words:
        return tokenised(texts, word_rows.trigram_rows)
    return tokenised_in_python(texts, word_rows)


def tokenised_in_python(texts: Sequence[str], word_rows: WordRows) -> TextTable:
    """`text_table` by the functions that define the contract."""
    number: dict[str, int] = {}
    of_texts = [[number.setdefault(word, len(number)) for word in words(text)] for text in texts]
    offsets = starts(np.fromiter(map(len, of_texts), np.int64, len(of_texts)))
    flat = np.fromiter((word for text in of_texts for word in text), np.int32, int(offsets[-1]))
    return TextTable(Ragged(offsets, flat), word_rows.of(list(number)))


def _compiled(encoder: Encoder, table: TextTable, side: str) -> CompiledTower:
    """A side's tower with the rows that the table's words have, wherever the encoder takes them from."""
    layout = encoder.layout
    used = np.zeros(layout.table_rows, bool)
    used[table.trigrams.values] = True
    rows = np.flatnonzero(used)
    place = np.zeros(layout.table_rows, np.int32)
    place[rows] = np.arange(len(rows))
    matrix = encoder.rows_at(tower_name(encoder.recipe, side), layout.touched(torch.from_numpy(rows)))
    return CompiledTower(encoder.recipe, layout, *layout.split(matrix), place)
