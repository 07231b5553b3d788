"""The texts of a shard's folder (schemas.shard), as the trainer uses them."""

import pyarrow as pa

from schemas.shard import TEXTS, WORDS, open_table
from training.ragged import from_arrow
from training.recipe import Recipe
from training.text_batch import TextTable
from training.word_rows import WordRows


def shard_texts(folder: str, recipe: Recipe, word_rows: WordRows) -> tuple[TextTable, pa.ChunkedArray]:
    """(the texts, as long as a recipe reads; their strings, normalised). Raises OSError, ArrowInvalid, ValueError."""
    words, texts = open_table(f"{folder}/words.arrow", WORDS), open_table(f"{folder}/texts.arrow", TEXTS)
    rows = from_arrow(words["trigrams"])
    if word_rows.words:
        rows = word_rows.known(words["word"].to_pylist(), rows)
    table = TextTable(from_arrow(texts["words"]), rows)
    return table.limited(recipe.max_words, recipe.overflow), texts["text"]
