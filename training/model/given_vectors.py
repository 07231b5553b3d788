"""Vectors that a user gives: of words to start from, and of texts to be learnt from.

Word vectors: those of the words that occur in the shards start the rows of these words.

A word that the file knows is one row of the table W, its vector; any other word is the sum of its letter trigrams'
rows, which start small and random as ever. The words stand in the order of their code points, so the model depends
neither on the file's order nor on its format.

A file is in one of the three forms that word vectors are published in, compressed (.gz, .bz2) or not:

    GloVe text       a word and its numbers a line
    word2vec text    the same below a first line with the numbers of words and of columns
    word2vec binary  the same first line, then words and their float32 numbers as bytes

Nothing is unpickled: gensim's own format is refused.

Shapes: K words that both the file and the shards have, D columns.
"""

import os
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Literal

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas import storage
from schemas.errors import StageError, UsageError
from schemas.section import changed
from schemas.shard import WORDS, open_table
from schemas.stage import open_result
from schemas.text_contract import normalise_column
from training.model.embedding import unit
from training.model.objective_settings import Clicks
from training.model.recipe import Recipe, Tuned


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
        if recipe.word_vectors:
            raise UsageError(
                asked=f"{recipe.name} was to be trained with {recipe.word_vectors.kind} word vectors",
                found="no file of them was given",
                do="give --word-vectors FILE, or set word_vectors=none",
            )
        return recipe
    columns = columns_of(path)
    asked = recipe.word_vectors or Tuned()
    if asked.columns not in (0, columns):
        raise UsageError(
            asked=f"{recipe.name} was to be trained with word vectors of {asked.columns} columns",
            found=f"those in {path} have {columns}",
            do=f"set word_vectors.columns={columns}, or give another file",
        )
    return replace(recipe, word_vectors=replace(asked, columns=columns))


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


_BLOCK_BYTES = 1 << 20  # more than a first line has
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2"}
_PICKLE, _ZIP = b"\x80", b"PK\x03\x04"


@dataclass(frozen=True, slots=True)
class _Form:
    columns: int
    num_words: int | None  # as the first line has it; None: there is none, as in GloVe
    binary: bool


def columns_of(path: str) -> int:
    """How many numbers each vector of a file has. Raises UsageError and StageError."""
    return _form(path).columns


def read_vectors(path: str, wanted: Collection[str]) -> tuple[list[str], np.ndarray]:
    """(those of the wanted words that a file knows, in its order; their vectors, float32 [words, columns]).

    Raises UsageError and StageError; no word of the file is in their text.
    """
    form = _form(path)
    words: set[bytes] = set()
    vectors: dict[str, np.ndarray] = {}
    repeated = 0
    with _opened(path) as file:
        entries = _binary_entries(file, form) if form.binary else _text_entries(path, file, form)
        for word, numbers in entries:
            repeated += word in words
            words.add(word)
            if (known := word.decode()) in wanted:
                read = np.frombuffer(numbers, "<f4") if form.binary else np.array([float(n) for n in numbers.split()])
                vectors[known] = read.astype(np.float32)
    if repeated:
        raise _not_such(
            path, f"{repeated:,} of its words are in it more than once",
            "keep one line of each word, so that it is clear which vector is meant",
        )  # fmt: skip
    found = np.array(list(vectors.values()), np.float32).reshape(len(vectors), form.columns)
    if odd := int((~np.isfinite(found)).any(axis=1).sum()):
        raise StageError(
            asked=f"word vectors were to be read from {path}",
            found=f"those of {odd:,} of the words that are needed are not finite",
            follows="every embedding of a text with such a word would be NaN",
            do="leave these words out of the file, or give another one",
        )
    return list(vectors), found


def _text_entries(path: str, file: IO[bytes], form: _Form) -> Iterator[tuple[bytes, bytes]]:
    """(word, numbers) of each line."""
    num_lines, line = 0, b"\n"
    if form.num_words is not None:
        file.readline()
    for num_lines, line in enumerate(file, start=1):
        whole = line.rstrip()
        if whole.count(b" ") != form.columns:
            raise _not_such(path, f"line {num_lines + (form.num_words is not None):,} is not a word and "
                            f"{form.columns:,} numbers")  # fmt: skip
        word, _, numbers = whole.partition(b" ")
        yield word, numbers
    if form.num_words not in (None, num_lines):
        raise _not_such(path, f"its first line promises {form.num_words:,} vectors, and there are {num_lines:,}")
    if not line.endswith(b"\n"):
        raise _not_such(path, "its last line has no end, as if it were cut off", "copy it again; if it is whole, "
                        "end its last line")  # fmt: skip


def _binary_entries(file: IO[bytes], form: _Form) -> Iterator[tuple[bytes, bytes]]:
    """(word, numbers) of each vector. Raises EOFError where the file ends before."""
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
            asked=f"word vectors were to be read from {path}",
            found="there is no such file on this machine",
            do="give the path of a local file; with several machines, one that each of them sees",
        )
    with _opened(path) as file:
        head = file.read(_BLOCK_BYTES)
    if head.startswith((_PICKLE, _ZIP)):
        what = "a pickle, as gensim's own format is" if head.startswith(_PICKLE) else "a zip archive"
        raise _not_such(path, f"it is {what}, and only plain vectors are read", "unpack it, or use gensim's "
                        "save_word2vec_format where the vectors were made")  # fmt: skip
    first, _, rest = head.partition(b"\n")
    fields = first.split()
    if len(fields) == 2 and all(field.isdigit() for field in fields):
        num_words, columns = map(int, fields)
        if not num_words or not columns:
            raise _not_such(path, "its first line says that there are no vectors")
        form = _Form(columns, num_words, binary=_is_binary(rest.partition(b"\n")[0], columns))
        least = num_words * columns * (4 if form.binary else 2)  # a digit and a space
        if not path.endswith(tuple(_COMPRESSED)) and os.path.getsize(path) < least:
            raise _not_such(path, f"it is cut off: {num_words:,} vectors of {columns:,} numbers take at least "
                            f"{least:,} bytes, and it has {os.path.getsize(path):,}")  # fmt: skip
        return form
    columns = _numbers_of(first)
    if not columns:
        raise _not_such(path, "its first line is neither a word and its numbers nor two counts")
    return _Form(columns, None, binary=False)


def _is_binary(line: bytes, columns: int) -> bool:
    """Whether what stands behind the first line is no text."""
    try:
        return _numbers_of(line) != columns and not line.decode().isprintable()
    except UnicodeDecodeError:
        return True


def _numbers_of(line: bytes) -> int:
    """How many numbers stand behind the word of a line; 0 where it is not such a line."""
    try:
        return len([float(field) for field in line.decode().split()[1:]])
    except ValueError:
        return 0


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    """A file's content, unpacked. Raises StageError where it cannot be read, also while it is."""
    try:
        with fsspec.open(path, "rb", compression=_COMPRESSED.get(os.path.splitext(path)[1])) as file:
            yield file
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise _not_such(path, f"it is cut off or damaged ({type(error).__name__})") from None


def _not_such(path: str, found: str, do: str = "") -> StageError:
    return StageError(
        asked=f"word vectors were to be read from {path}, as GloVe text, word2vec text or word2vec binary",
        found=found,
        do=do or "give a whole file of one of the three forms",
    )


# Vectors of texts that some other encoder made, to be learnt from (objectives.clicks): any transformer, any service.
#
# A Parquet file with a column `text` and a column `vector` of as many numbers each. Both sides of a comparison are
# normalised, so it may hold texts as they were written or as `clicktower texts` lists them; of those that
# are one text then, the first counts. Vectors are compared by cosine, whatever their lengths.
#
# Shapes: T texts, D columns.


SUFFIX = ".parquet"  # by which such a file differs from a model's folder


@dataclass(frozen=True, kw_only=True, slots=True)
class TextVectors:
    """What a file holds, as teacher asks an encoder for it."""

    path: str
    texts: pa.Array  # normalised
    vectors_TD: np.ndarray  # float32, of length 1 or 0

    @property
    def similarity(self) -> Literal["cosine"]:
        return "cosine"

    @property
    def dimensions(self) -> int:
        return self.vectors_TD.shape[1]

    def encode(self, texts: Sequence[str], side: str, *, empty: str = "zero") -> np.ndarray:
        """The vectors of some normalised texts, float32 [texts, D]; a text is the same on either side.

        Raises UsageError where the file lacks some: they are counted, not shown.
        """
        rows = pc.index_in(pa.array(texts, pa.string()), self.texts)
        if rows.null_count:
            raise UsageError(
                asked=f"the vectors in {self.path} were to teach",
                found=f"{rows.null_count:,} of {len(texts):,} texts ({side}) have none there",
                follows="nothing could be learnt of them",
                do="write the texts with `clicktower texts --shards FOLDER --to texts.parquet`, and give all of them a"
                " vector",
            )
        vectors: np.ndarray = self.vectors_TD[rows.to_numpy()]
        return vectors


def require_text_vectors(path: str) -> None:
    """Raise UsageError for a file that is not there or has other columns. Reads no more than that takes."""
    if not storage.exists(path):
        raise UsageError(
            asked=f"vectors of texts were to be read from {path}",
            found="there is no such file",
            do="check the path; with several machines, give one that each of them sees",
        )
    try:
        with storage.open_read(path) as file:
            schema = pq.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        raise _no_text_vectors(path, str(error).splitlines()[0][:160]) from None
    kinds = {name: schema.field(name).type for name in ("text", "vector") if name in schema.names}
    if len(kinds) < 2 or not pa.types.is_floating(getattr(kinds["vector"], "value_type", pa.null())):
        has = ", ".join(f"{name} ({kind})" for name, kind in zip(schema.names, schema.types, strict=True))
        raise _no_text_vectors(path, f"its columns are {has}")


def read_text_vectors(path: str) -> TextVectors:
    """Raises UsageError for a file that is not there or is none such, StageError for numbers that are not finite."""
    require_text_vectors(path)
    with storage.open_read(path) as file:
        table = pq.read_table(file, columns=["text", "vector"])
    if any(column.null_count for column in table.columns):
        raise _no_text_vectors(path, "some rows have no text or no vector")
    texts, vectors = normalise_column(table["text"].cast(pa.string())), table["vector"].combine_chunks()
    lengths = pc.unique(pc.list_value_length(vectors)).to_pylist()
    if len(lengths) != 1 or not lengths[0]:
        raise _no_text_vectors(path, "its vectors are not all of one length" if lengths else "it has no rows")
    numbers = vectors.flatten().cast(pa.float32())
    values_TD = numbers.to_numpy(zero_copy_only=False).reshape(len(texts), lengths[0])
    if odd := int((~np.isfinite(values_TD)).any(axis=1).sum()):
        raise StageError(
            asked=f"the vectors in {path} were to teach",
            found=f"those of {odd:,} of {len(texts):,} texts are not finite",
            follows="every parameter would become NaN",
            do="make them again, or leave these texts out",
        )
    return TextVectors(path=path, texts=texts, vectors_TD=unit(values_TD))


def _no_text_vectors(path: str, found: str) -> UsageError:
    return UsageError(
        asked=f"vectors of texts were to be read from {path}",
        found=found,
        do="give a Parquet file with a column `text` and a column `vector`: lists of as many numbers each",
    )


# The teacher that a user names, and the recipe as it completes it. Free of torch, as launch.


@dataclass(frozen=True, slots=True)
class TeacherSource:
    path: str  # of a model's data folder, or of a file of vectors
    digest: str  # which one it is


def teacher_in(path: str, recipe: Recipe) -> TeacherSource:
    """The model or ensemble in a stage's folder, or a file of vectors.

    Raises UsageError for the output of another stage or another file.
    """
    if path.endswith(SUFFIX):
        require_text_vectors(path)
        return TeacherSource(storage.absolute(path), storage.fingerprint(path))
    asked = f"{recipe.name} was to be taught by the model in {path}"
    do = "give the folder that `clicktower train` or `clicktower combine` printed, or a Parquet file of vectors"
    found = open_result(path, "train", "combine", asked=asked, do=do)
    return TeacherSource(storage.absolute(found.data), found.manifest.digest)


def recipe_taught(recipe: Recipe, teacher: str | None) -> Recipe:
    """A recipe as a teacher's folder completes it: half of the loss where it does not say.

    Raises UsageError where there is one without the other, or the objective has no use for it.
    """
    if teacher is None and recipe.clicks.teacher:
        raise UsageError(
            asked=f"{recipe.name} was to be trained with {recipe.clicks.teacher.share:g} of its loss a teacher's",
            found="no teacher was given",
            follows="there would be nothing to agree with",
            do="give `train --teacher FOLDER`, or set objective.teacher=none",
        )
    if teacher and not isinstance(recipe.objective, Clicks):
        raise UsageError(
            asked=f"{recipe.name} was to be taught by the model in {teacher}",
            found=f"its objective is {recipe.objective.kind}",
            follows="there would be no candidates whose scores it could agree with",
            do="leave the teacher out, or train on clicks",
        )
    return recipe if not teacher or recipe.clicks.teacher else changed(recipe, {"objective.teacher": {}})
