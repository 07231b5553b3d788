"""The texts of a shard's folder (schemas.shard), as the trainer uses them."""

import pyarrow as pa

from schemas.errors import StageError
from schemas.shard import TEXTS, WORDS, open_table, require_within
from training.ragged import from_arrow
from training.recipe import Recipe
from training.text_batch import TextTable
from training.word_rows import WordRows


def shard_texts(folder: str, recipe: Recipe, word_rows: WordRows) -> tuple[TextTable, pa.ChunkedArray]:
    """(the texts, as long as a recipe reads; their strings, normalised). Raises OSError, ArrowInvalid, ValueError."""
    words, texts = open_table(f"{folder}/words.arrow", WORDS), open_table(f"{folder}/texts.arrow", TEXTS)
    rows = from_arrow(words["trigrams"])
    require_within(from_arrow(texts["words"]).values, len(words), f"{folder}/texts.arrow")
    if word_rows.words:
        rows = word_rows.known(words["word"].to_pylist(), rows)
    table = TextTable(from_arrow(texts["words"]), rows)
    return table.limited(recipe.max_words, recipe.overflow), texts["text"]


def require_rows(table: TextTable, word_rows: WordRows, asked: str, command: str) -> None:
    """Raise StageError where a word's trigrams are not among the table's rows. `command`: what made the shards."""
    highest = int(table.trigrams.values.max(initial=0))
    if highest >= word_rows.num_rows:
        raise StageError(
            asked=asked,
            found=f"trigram id {highest:,} is not below the {word_rows.trigram_rows:,} rows of the catalogue",
            follows="a tower would have no parameters for it",
            do=f"run `clicktower {command}` again",
        )
