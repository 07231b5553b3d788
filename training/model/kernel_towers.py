"""Texts as words and trigrams, and on the kernels: as the index of a batch, through towers, and through a whole model.

Texts are split by the text contract (schemas.text_contract): ASCII texts are lower-cased and split in C++. Any other
text is split by Python's own `words`, and its words are counted and split into trigrams with the rest.

The index of a batch (batch.h) is made in linear time. It is what `text_batch` is on the reference path: the same words,
trigrams and inverse relations, in chunks of texts.
"""

import ctypes
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from clicktower.schemas.errors import UsageError
from clicktower.schemas.text_contract import words
from clicktower.training.kernel.kernel_library import Owned, fields, library, require_memory, status
from clicktower.training.model.embedding import Empty
from clicktower.training.model.objective_settings import Clicks
from clicktower.training.model.recipe import Nesterov, Recipe
from clicktower.training.towers.text_table import Ragged, TextTable, WordRows, list_offsets
from clicktower.training.towers.tower_settings import SIGMA_MIN, GatedRecurrent

KERNELS = ("rnn", "lstm", "bag", "dssm")  # the cells, by their numbers


def can_encode(recipe: Recipe) -> bool:
    """Whether the compiled path encodes with this recipe's towers, on this machine."""
    return (
        status().available
        and bool(recipe.tower.kernel)
        and recipe.tower.cells % 16 == 0
        and recipe.tower.columns % 16 == 0
        and recipe.dtype == "float32"
        and recipe.word_vectors is None
    )


def can_train(recipe: Recipe) -> bool:
    """Whether it also trains them."""
    return (
        can_encode(recipe)
        and recipe.tower.kernel_trains
        and isinstance(recipe.optimiser, Nesterov)
        and isinstance(recipe.objective, Clicks)
        and not recipe.objective.teacher
    )


def moves_rows(recipe: Recipe) -> bool:
    """Whether it updates a recipe's rows from given gradients."""
    return (
        status().available
        and recipe.dtype == "float32"
        and isinstance(recipe.optimiser, Nesterov)
        and recipe.word_vectors is None
        and recipe.columns % 16 == 0
    )


def tokenised(texts: Sequence[str] | pa.StringArray | pa.LargeStringArray, table_rows: int) -> TextTable:
    """Texts split into words and trigrams by the text contract, each distinct word once, numbered by first appearance.

    A text without a word has an empty list. Raises MemoryError for a text of 2^31 bytes.
    """
    utf8 = _Utf8(texts)
    not_ascii = np.empty(len(utf8), np.int64)
    num_not_ascii = library().find_not_ascii(utf8.address, utf8.offsets.ctypes.data, len(utf8), not_ascii.ctypes.data)
    not_ascii = not_ascii[:num_not_ascii]
    normalised = _Utf8([" ".join(words(utf8.text(at))) for at in not_ascii.tolist()])
    handle = library().tokens_new(
        utf8.address, utf8.offsets.ctypes.data, len(utf8),
        normalised.address, normalised.offsets.ctypes.data, not_ascii.ctypes.data, num_not_ascii, table_rows,
    )  # fmt: skip
    tokens = Owned("tokens", handle, f"{len(utf8):,} texts cut into words, or one of them is too large")
    return TextTable(
        words=Ragged(tokens.numbers(0, np.int64), tokens.numbers(1, np.int32)),
        trigrams=Ragged(tokens.numbers(2, np.int64), tokens.numbers(3, np.uint32)),
    )


def require_side(side: str) -> None:
    """Raises UsageError for any side other than query and document."""
    if side not in ("query", "document"):
        raise UsageError(f"There is no side {side!r}.", "Use query or document.")


def require_words(has_word: np.ndarray) -> None:
    """Raises UsageError for a text without a word; `has_word`: of each text."""
    if not has_word.all():
        raise UsageError(
            f"{np.count_nonzero(~has_word):,} of {len(has_word):,} texts have no word (the first is number"
            f" {int(has_word.argmin()) + 1:,}), so they have no embedding.",
            "Leave them out, or ask for zero vectors (empty='zero').",
        )


def encodable(texts: Sequence[str], recipe: Recipe, word_rows: WordRows, empty: Empty) -> TextTable:
    """Texts as a recipe's towers read them. Raises UsageError for a text without a word, unless `empty` is zero."""
    table = text_table(texts, word_rows)
    if empty == "error":
        require_words(table.words.lengths > 0)
    return table.limited(recipe.max_words, recipe.overflow)


def text_table(texts: Sequence[str], word_rows: WordRows) -> TextTable:
    """Texts split into words by the text contract, each distinct word once, numbered by appearance, as rows of W."""
    if status().available and not word_rows.words:
        return tokenised(texts, word_rows.trigram_rows)
    return tokenised_in_python(texts, word_rows)


def tokenised_in_python(texts: Sequence[str], word_rows: WordRows) -> TextTable:
    """`text_table` by the functions that define the contract."""
    number: dict[str, int] = {}
    of_texts = [[number.setdefault(word, len(number)) for word in words(text)] for text in texts]
    offsets = list_offsets(np.fromiter(map(len, of_texts), np.int64, len(of_texts)))
    flat = np.fromiter((word for text in of_texts for word in text), np.int32, int(offsets[-1]))
    return TextTable(Ragged(offsets, flat), word_rows.of(list(number)))


class _Utf8:
    """Texts in one buffer, text i from offsets[i] to offsets[i + 1]."""

    def __init__(self, texts: Sequence[str] | pa.StringArray | pa.LargeStringArray) -> None:
        if isinstance(texts, pa.Array):
            if texts.null_count:
                raise TypeError(f"{texts.null_count:,} of {len(texts):,} texts are missing (null)")
            column = texts.cast(pa.large_string())
            _, offsets, characters = column.buffers()
            start, end = column.offset, column.offset + len(column) + 1
            self.offsets = np.frombuffer(offsets, np.int64)[start:end] if offsets else np.zeros(1, np.int64)
        else:  # lone surrogates too, which Arrow cannot represent
            encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
            self.offsets, characters = np.cumsum([0, *map(len, encoded)], dtype=np.int64), b"".join(encoded)
        self._bytes = np.frombuffer(characters or b"", np.uint8)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def address(self) -> int | None:
        return self._bytes.ctypes.data if len(self._bytes) else None

    def text(self, at: int) -> str:
        start, end = self.offsets[at : at + 2].tolist()
        return self._bytes[start:end].tobytes().decode("utf-8", "surrogatepass")


CHUNK_TEXTS = 128
ARRAYS = (
    "order", "begins", "chunk_sequences", "chunk_steps", "step_rows", "packed_words", "packed_words_reversed",
    "word_offsets", "word_trigrams", "rows", "word_rows", "row_word_offsets", "row_words",
)  # fmt: skip

_FOR_GRADIENT, _BOTH_DIRECTIONS, _SHARED_PREFIXES = 1, 2, 4
_NO_WORDS, _OUT_OF_RANGE, _TOO_LARGE = 1, 2, 3


class _TextPart(ctypes.Structure):
    _fields_ = fields(
        word_offsets="p", words="p", trigram_offsets="p", trigrams="p",
        num_texts="q", num_words="q", index="p", num_taken="q",
    )  # fmt: skip


class BatchIndex(Owned):
    __slots__ = ("num_texts",)

    def __init__(self, handle: int, num_texts: int) -> None:
        super().__init__("batch", handle, f"{num_texts:,} texts")
        self.num_texts = num_texts

    def array(self, name: str) -> np.ndarray:
        """One of ARRAYS, int32, read only and without a copy."""
        return self.numbers(ARRAYS.index(name), np.int32)


def kernel_batch(
    parts: Sequence[tuple[TextTable, np.ndarray]],
    *,
    place: np.ndarray | None = None,
    ungrouped: int = 0,
    group: int = 0,
    for_gradient: bool = True,
    both_directions: bool = False,
    share_prefixes: bool = False,
) -> BatchIndex:
    """The batch of the texts `index` of each table, one part after the other.

    `place`: the caller's number of each text, int32 [texts]; None: their order. `group`: each run of `group` texts
    after the first `ungrouped` ones, by the caller's numbers, is a chunk of its own; the others, and with group 0 all,
    are in chunks of CHUNK_TEXTS, longest first. Only with `for_gradient` are there rows and the words of each, only
    with `both_directions` the arrays of the reversed texts. With `share_prefixes`, if not both ways, common first words
    of texts are there once. Raises ValueError for a text without words, which has no embedding, and IndexError for an
    invalid text, word or trigram.
    """
    # A shard's own memory has these types, so this copies nothing. C++ recognises a table of two parts by its
    # addresses.
    tables = {
        id(table): (
            np.ascontiguousarray(table.words.offsets, np.int64),
            np.ascontiguousarray(table.words.values, np.int32),
            np.ascontiguousarray(table.trigrams.offsets, np.int64),
            np.ascontiguousarray(table.trigrams.values, np.uint32),
        )
        for table, _ in parts
    }
    indices = [np.ascontiguousarray(index, np.int64) for _, index in parts]
    array = (_TextPart * len(parts))()
    for at, ((table, _), index) in enumerate(zip(parts, indices, strict=True)):
        addresses = (values.ctypes.data for values in tables[id(table)])
        array[at] = _TextPart(*addresses, len(table), len(table.trigrams), index.ctypes.data, len(index))
    num_texts = sum(len(index) for _, index in parts)
    if place is not None:
        place = np.ascontiguousarray(place, np.int32)
        if len(place) != num_texts:
            raise ValueError(f"{num_texts:,} texts were given {len(place):,} places")
    error = ctypes.c_int32()
    options = _FOR_GRADIENT * for_gradient | _BOTH_DIRECTIONS * both_directions
    options |= _SHARED_PREFIXES * (share_prefixes and not both_directions)
    handle = library().batch_new(
        array, len(parts), None if place is None else place.ctypes.data, ungrouped, group, options, ctypes.byref(error)
    )
    if error.value == _NO_WORDS:
        raise ValueError("every text of a batch needs at least one word")
    if error.value == _OUT_OF_RANGE:
        raise IndexError("a batch names a text, a word or a trigram that is not in its table")
    if error.value == _TOO_LARGE:
        raise MemoryError(f"a batch of {num_texts:,} texts has too many words")
    return BatchIndex(handle, num_texts)


# Towers on the compiled path: texts to embeddings, many at once over all cores, or one in microseconds.
#
# The reference is encoder. In float32; both ways give a text the same bits, in any batch, on any thread.
#
# Shapes: R rows of W, G columns, N texts, D states of both directions, h dimensions of a distribution.


# Texts per batch: more texts share more words; fewer are spread more evenly over threads.
MOST_TEXTS = 2_048
BATCHES_OF_A_THREAD = 8
SHORT_BYTES = 4_096  # up to this size counting the words first is not worth it


class _Cell(ctypes.Structure):
    _fields_ = fields(cells="i", kind="i", forget_gate="i", peepholes="i", outputs="i")


class TowerStruct(ctypes.Structure):
    _fields_ = fields(weights="p", table="p", place="p")


class TowerPoint:
    """A tower at one point of parameter space, as the kernels read it: its parts packed, its table in place.

    `table_RG`: rows of W, float32 and contiguous. `place`, int32 [table rows]: which of them is a trigram's; None:
    the trigram's id.
    """

    __slots__ = ("_kept", "dimensions", "struct")

    def __init__(
        self, recipe: Recipe, table_RG: np.ndarray, parts: Mapping[str, np.ndarray], place: np.ndarray | None = None
    ) -> None:
        assert table_RG.dtype == np.float32
        assert table_RG.flags.c_contiguous
        tower, names = recipe.tower, ("W_rec", "b", "W_peep")
        cell = _Cell(tower.cells, KERNELS.index(tower.kernel))
        if isinstance(tower, GatedRecurrent):
            cell.forget_gate, cell.peepholes = tower.forget_gate, tower.peepholes
        elif tower.kernel == "dssm":
            cell.cells, cell.outputs, names = tower.columns, tower.cells, ("W_s", "b", "b_s")
        dense = [np.ascontiguousarray(parts[name]) for name in names if name in parts]
        pointers = [part.ctypes.data for part in dense] + [None] * (3 - len(dense))
        handle = library().weights_new(ctypes.byref(cell), tower.ways, *pointers)
        weights = Owned("weights", handle, f"a tower of {tower.cells:,} cells")
        self._kept = (weights, table_RG, place)
        self.dimensions = tower.cells * tower.ways
        self.struct = TowerStruct(weights.handle, table_RG.ctypes.data, None if place is None else place.ctypes.data)

    def encode(self, batch: BatchIndex, out_Nd: np.ndarray) -> None:
        """Write the embeddings of a batch's texts to `out_Nd`, float32, contiguous."""
        status_code = library().tower_encode(ctypes.byref(self.struct), batch.handle, out_Nd.ctypes.data)
        require_memory(status_code >= 0, f"{batch.num_texts:,} texts in a tower of {self.dimensions:,} dimensions")


class CompiledTower:
    """A compiled tower with fixed parameters that encodes texts."""

    def __init__(
        self,
        recipe: Recipe,
        table_RG: np.ndarray,
        parts: Mapping[str, np.ndarray],
        *,
        table_rows: int,
        place: np.ndarray | None = None,
    ) -> None:
        """`table_RG`, `place`: as in TowerPoint, which reads them in place. `table_rows`: of the whole W."""
        self._point = point = TowerPoint(recipe, table_RG, parts, place)
        self._above = Distribution(parts) if "W_mu" in parts else None
        self._both_directions = recipe.tower.ways == 2
        self._share_prefixes = not recipe.tower.adds_up
        self._read = table_rows, recipe.max_words, recipe.overflow == "merge"
        self._address = ctypes.addressof(point.struct)
        self._text_encode = library().text_encode

    @property
    def dimensions(self) -> int:
        return self._above.dimensions if self._above else self._point.dimensions

    def encode(self, table: TextTable) -> np.ndarray:
        """The embeddings of all texts of a table, float32 [texts, dimensions]; zero for a text without a word."""
        states = np.zeros((len(table), self._point.dimensions), np.float32)
        vectors = np.zeros((len(table), self.dimensions), np.float32) if self._above else states
        order = _alike(table.words)

        def encode_some(start: int) -> None:
            index = order[start : start + size]
            batch = kernel_batch(
                [(table, index)], place=index,
                for_gradient=False, both_directions=self._both_directions, share_prefixes=self._share_prefixes,
            )  # fmt: skip
            self._point.encode(batch, states)
            if self._above:
                vectors[index] = self._above(states[index])

        num_threads = len(os.sched_getaffinity(0))
        chunks = -(-len(order) // (num_threads * BATCHES_OF_A_THREAD * CHUNK_TEXTS))
        size = min(max(chunks, 1) * CHUNK_TEXTS, MOST_TEXTS)
        batches = range(0, len(order), size)
        if len(batches) == 1:  # not worth a pool
            encode_some(0)
        elif batches:
            with ThreadPoolExecutor(min(len(batches), num_threads)) as threads:
                list(threads.map(encode_some, batches))
        return vectors

    def encode_short(self, text: str) -> np.ndarray | None:
        """The embedding of a text, float32 [1, dimensions]; None for a text without words, or a long one."""
        ascii_text = text.isascii()
        line = text.encode() if ascii_text else " ".join(words(text)).encode("utf-8", "surrogatepass")
        if len(line) > SHORT_BYTES:
            return None
        vector = np.empty((1, self._point.dimensions), np.float32)
        num_words = self._text_encode(self._address, line, len(line), not ascii_text, *self._read, vector.ctypes.data)
        if num_words <= 0:
            require_memory(not num_words, f"a text of {len(line):,} bytes")
            return None
        return self._above(vector) if self._above else vector


def _alike(texts: Ragged) -> np.ndarray:
    """The texts that have a word, int64, ordered so that texts with the same first words are neighbours.

    A batch then shares prefixes; three words distinguish most texts, and the order changes no vector.
    """
    rows = np.flatnonzero(texts.lengths)
    first, last = texts.offsets[rows], texts.offsets[rows + 1] - 1
    keys = np.zeros(len(rows), np.int64)
    for place in range(3):
        keys = (keys << 21) + (texts.values[np.minimum(first + place, last)] & 0x1FFFFF)
    return rows[np.argsort(keys)]


class Distribution:
    """States -> μ and σ concatenated, one text at a time, so that its bits do not depend on the rest of the batch.

    The variational tower's means and deviations (bilstm), above the states that the kernels give.
    """

    def __init__(self, parts: Mapping[str, np.ndarray]) -> None:
        self._weights_De = np.concatenate([parts["W_mu"], parts["W_sigma"]], axis=1)
        self._bias_e = np.concatenate([parts["b_mu"], parts["b_sigma"]])
        self.dimensions = len(self._bias_e)

    def __call__(self, state_ND: np.ndarray) -> np.ndarray:
        """float32 [N, 2 h]."""
        outputs_Ne = np.matmul(state_ND[:, None, :], self._weights_De)[:, 0] + self._bias_e
        argument_Nh = outputs_Ne[:, self.dimensions // 2 :]
        argument_Nh[:] = np.logaddexp(argument_Nh, np.float32(0)) + np.float32(SIGMA_MIN)
        return outputs_Ne
