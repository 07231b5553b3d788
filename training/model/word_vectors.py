"""Files of word vectors: words that occur in the shards start their rows from them.

A word that the file has is one row of the table W, its vector; any other word is the sum of its letter trigrams' rows,
which start small and random as usual. The words are in code point order, so the model depends neither on the file's
order nor on its format. Three formats are read, compressed (.gz, .bz2) or not:

    GloVe text       a word and its numbers per line
    word2vec text    the same below a first line with the numbers of words and of columns
    word2vec binary  the same first line, then words and their float32 numbers as bytes

gensim's reader accepts files that are truncated, repeat a word or promise another number of words, and takes a line
with one number for a whole vector; it also keeps every vector of the file in memory. This one refuses such files,
quotes none of their words, unpickles nothing and keeps only what the shards need.

Shapes: K words that both the file and the shards have, D columns.
"""

import os
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import fsspec
import numpy as np

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.shard import WORDS, open_table
from clicktower.training.model.recipe import Recipe
from clicktower.training.model.recipe_kinds import Tuned


@dataclass(frozen=True, kw_only=True, slots=True)
class WordVectors:
    words: tuple[str, ...]
    vectors_KD: np.ndarray  # float32
    num_shard_words: int

    def metrics(self) -> dict[str, int]:
        """How many of the shards' words the file has."""
        return {"known_words": len(self.words), "shard_words": self.num_shard_words}


def with_word_vectors(recipe: Recipe, path: str | None) -> Recipe:
    """A recipe completed for a file of word vectors: tuned by default, with the file's number of columns.

    Raises UsageError if only one of the two is given, StageError if the file has no word vectors.
    """
    if path is None:
        if recipe.word_vectors:
            raise UsageError(
                f"{recipe.name} trains with {recipe.word_vectors.kind} word vectors, and no file of them is given.",
                "Give --word-vectors FILE, or set word_vectors=none.",
            )
        return recipe
    columns, settings = _form(path).columns, recipe.word_vectors or Tuned()
    if settings.columns not in (0, columns):
        raise UsageError(
            f"{recipe.name} takes word vectors of {settings.columns} columns, and those in {path} have {columns}.",
            f"Set word_vectors.columns={columns}, or give another file.",
        )
    return replace(recipe, word_vectors=replace(settings, columns=columns))


def vectors_of_shards(folder: str, path: str) -> WordVectors:
    """The vectors of the words in a build's data folder (training, held-out and pool).

    Raises StageError for a damaged file, one without any of the words, or shards without words.
    """
    vocabulary: set[str] = set()
    try:
        for table in Path(folder).glob("*/words.arrow"):
            vocabulary.update(open_table(str(table), WORDS)["word"].to_pylist())
    except (OSError, ValueError) as error:
        raise StageError(
            f"A file of the shards in {folder} is missing or unreadable ({type(error).__name__}).",
            "Build the shards again.",
        ) from None
    words, vectors_KD = read_vectors(path, vocabulary)
    if not words:
        raise UsageError(
            f"None of the shards' {len(vocabulary):,} words (in lower case) has a vector in {path}.",
            "Give word vectors of the texts' language, in lower case, or none.",
        )
    order = sorted(range(len(words)), key=words.__getitem__)
    return WordVectors(
        words=tuple(words[at] for at in order), vectors_KD=vectors_KD[order], num_shard_words=len(vocabulary)
    )


_BLOCK_BYTES = 1 << 20  # more than the first line
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2"}
_PICKLE, _ZIP = b"\x80", b"PK\x03\x04"


@dataclass(frozen=True, slots=True)
class _Form:
    columns: int
    num_words: int | None  # from the first line; None if there is none, as in GloVe
    binary: bool


def read_vectors(path: str, vocabulary: Collection[str]) -> tuple[list[str], np.ndarray]:
    """(the wanted words that a file has, in its order; their vectors, float32 [words, columns]).

    Raises UsageError and StageError, without quoting any word of the file.
    """
    form = _form(path)
    words: set[bytes] = set()
    vectors: dict[str, np.ndarray] = {}
    repeated = 0
    with _opened(path) as file:
        for word, numbers in _binary_entries(file, form) if form.binary else _text_entries(path, file, form):
            repeated += word in words
            words.add(word)
            if (known_word := word.decode()) in vocabulary:
                values = np.frombuffer(numbers, "<f4") if form.binary else np.array([float(n) for n in numbers.split()])
                vectors[known_word] = values.astype(np.float32)
    if repeated:
        raise _refused(path, f"{repeated:,} words are there more than once.", "Keep one vector of each word.")
    vectors_KD = np.array(list(vectors.values()), np.float32).reshape(len(vectors), form.columns)
    if num_odd := int((~np.isfinite(vectors_KD)).any(axis=1).sum()):
        raise _refused(
            path, f"The vectors of {num_odd:,} words that are needed are not finite.", "Leave these words out."
        )
    if len(vectors_KD) and not vectors_KD.any():
        raise _refused(
            path, f"The vectors of all {len(vectors_KD):,} words that are needed are zeros.", "Make it again."
        )
    return list(vectors), vectors_KD


def _text_entries(path: str, file: IO[bytes], form: _Form) -> Iterator[tuple[bytes, bytes]]:
    """(word, numbers) of each line."""
    num_lines, line = 0, b"\n"
    if form.num_words is not None:
        file.readline()
    for num_lines, line in enumerate(file, start=1):
        word, _, numbers = line.rstrip().partition(b" ")
        if numbers.count(b" ") + bool(numbers) != form.columns:
            number = num_lines + (form.num_words is not None)
            raise _refused(path, f"Line {number:,} is not a word and {form.columns:,} numbers.")
        yield word, numbers
    if form.num_words not in (None, num_lines):
        raise _refused(path, f"The first line promises {form.num_words:,} vectors, and there are {num_lines:,}.")
    if not line.endswith(b"\n"):
        raise _refused(path, "The last line has no end, as if it were cut off.", "Copy it again, or end its last line.")


def _binary_entries(file: IO[bytes], form: _Form) -> Iterator[tuple[bytes, bytes]]:
    """(word, numbers) of each vector. Raises EOFError if the file ends early."""
    file.readline()
    block, at = b"", 0
    for _ in range(form.num_words or 0):
        while (numbers := block.find(b" ", at) + 1) == 0 or len(block) < numbers + 4 * form.columns:
            more = file.read(_BLOCK_BYTES)
            if not more:
                raise EOFError
            block, at = block[at:] + more, 0
        yield block[at : numbers - 1].lstrip(b"\n"), block[numbers : numbers + 4 * form.columns]
        at = numbers + 4 * form.columns


def _form(path: str) -> _Form:
    if not storage.is_local(path) or not os.path.isfile(path):
        raise UsageError(
            f"There is no file {path} of word vectors on this machine.",
            "Give the path of a local file; with several machines, one that each of them sees.",
        )
    with _opened(path) as file:
        head = file.read(_BLOCK_BYTES)
    if head.startswith((_PICKLE, _ZIP)):
        kind = "a pickle, as gensim's own format is" if head.startswith(_PICKLE) else "a zip archive"
        raise _refused(path, f"It is {kind}.", "Unpack it, or save it by gensim's save_word2vec_format.")
    first, _, body = head.partition(b"\n")
    fields = first.split()
    if len(fields) == 2 and all(field.isdigit() for field in fields):
        num_words, columns = map(int, fields)
        if not num_words or not columns:
            raise _refused(path, "The first line says that there are no vectors.")
        form = _Form(columns, num_words, binary=_is_binary(body.partition(b"\n")[0], columns))
        least, size = num_words * columns * (4 if form.binary else 2), os.path.getsize(path)  # a digit and a space
        if not path.endswith(tuple(_COMPRESSED)) and size < least:
            promise = f"{num_words:,} vectors of {columns:,} numbers take at least {least:,} bytes"
            raise _refused(path, f"It is cut off: {promise}, and it has {size:,}.")
        return form
    columns = _count_numbers(first)
    if not columns:
        raise _refused(path, "The first line is neither a word and its numbers nor two counts.")
    return _Form(columns, None, binary=False)


def _is_binary(line: bytes, columns: int) -> bool:
    """Whether the bytes after the first line are not text."""
    try:
        return _count_numbers(line) != columns and not line.decode().isprintable()
    except UnicodeDecodeError:
        return True


def _count_numbers(line: bytes) -> int:
    """The number of values after the word of a line; 0 for another kind of line."""
    try:
        return len([float(field) for field in line.decode().split()[1:]])
    except ValueError:
        return 0


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    """A file's content, decompressed. Raises StageError if it is unreadable, also in the middle."""
    try:
        with fsspec.open(path, "rb", compression=_COMPRESSED.get(os.path.splitext(path)[1])) as file:
            yield file
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise _refused(path, f"It is cut off or damaged ({type(error).__name__}).") from None


def _refused(path: str, problem: str, fix: str = "") -> StageError:
    return StageError(
        f"{path} cannot be read as word vectors. {problem}",
        fix or "Give a whole file of GloVe text, word2vec text or word2vec binary.",
    )
