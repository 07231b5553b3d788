"""Word vectors that a user gives: those of the words that occur in the shards start the rows of these words.

A word that the file knows is one row of the table W, its vector; any other word is the sum of its letter trigrams'
rows, which start small and random as ever. The words stand in the order of their code points, so the model depends
neither on the file's order nor on its format. The file is read with gensim (training.word_vector_file).

Shapes: K words that both the file and the shards have, D columns.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from schemas.errors import StageError, UsageError
from schemas.shard import WORDS, open_table
from training.recipe import Recipe
from training.word_vector_file import columns_of, read_vectors


@dataclass(frozen=True, kw_only=True, slots=True)
class WordVectors:
    words: tuple[str, ...] = ()
    vectors_KD: np.ndarray | None = None  # float32
    num_shard_words: int = 0

    def metrics(self) -> dict[str, int]:
        """How many of the shards' words the file knows; nothing where none was given."""
        return {"known_words": len(self.words), "shard_words": self.num_shard_words} if self.words else {}


def recipe_with(recipe: Recipe, path: str | None) -> Recipe:
    """A recipe as a given file of word vectors completes it: tuned where it does not say, as many columns as there.

    Raises UsageError where one asks for what the other has not, StageError where the file is none.
    """
    if path is None:
        if recipe.word_vectors != "none":
            raise UsageError(
                asked=f"{recipe.name} was to be trained with {recipe.word_vectors} word vectors",
                found="no file of them was given",
                do="give --word-vectors FILE, or set word_vectors=none",
            )
        return recipe
    columns = columns_of(path)
    if recipe.word_columns not in (0, columns):
        raise UsageError(
            asked=f"{recipe.name} was to be trained with word vectors of {recipe.word_columns} columns",
            found=f"those in {path} have {columns}",
            do=f"set word_columns={columns}, or give another file",
        )
    how = "tuned" if recipe.word_vectors == "none" else recipe.word_vectors
    return replace(recipe, word_vectors=how, word_columns=columns)


def word_vectors_of(folder: str, path: str | None) -> WordVectors:
    """The vectors of the words in a build's data folder; none without a file.

    Raises StageError for a file that is not whole and sound, that none of the words is in, or shards without words.
    """
    if path is None:
        return WordVectors()
    try:
        wanted = _words_of_shards(folder)
    except (OSError, ValueError) as error:
        raise StageError(
            asked=f"the words of the shards in {folder} were to be looked up in {path}",
            found=f"a file is missing or unreadable ({type(error).__name__})",
            do="build the shards again",
        ) from None
    words, vectors_KD = read_vectors(path, wanted)
    if not words:
        raise UsageError(
            asked=f"words were to start from the vectors in {path}",
            found=f"none of the shards' {len(wanted):,} words is in it (they are in lower case)",
            follows="every word would be read by its letter trigrams",
            do="give word vectors of the texts' language, in lower case, or none",
        )
    order = sorted(range(len(words)), key=words.__getitem__)
    return WordVectors(
        words=tuple(words[at] for at in order), vectors_KD=vectors_KD[order], num_shard_words=len(wanted)
    )


def _words_of_shards(folder: str) -> set[str]:
    """Each word of a build: of its training texts, its held-out ones and its pool."""
    found: set[str] = set()
    for path in Path(folder).glob("*/words.arrow"):
        found.update(open_table(str(path), WORDS)["word"].to_pylist())
    return found
