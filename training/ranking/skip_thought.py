"""Skip-Thought with the published weights (combine-skip): the sentence vectors of the paper's Table IV.

A text's vector is that of the one-directional encoder (uni-skip, 2,400) beside that of the encoder of both directions
(bi-skip, 1,200 each), each of the two scaled to length 1, as its authors use it (Kiros et al. 2015). An encoder is a
gated recurrent unit over the word vectors x of its own table, from h = 0; the text's vector is the last h:

    r, u = sigmoid(x W + b + h U)          the first half of the columns is r, the second u
    h'   = tanh(x Wx + bx + r * (h Ux))
    h    = u * h + (1 - u) * h'

The folder holds the published files, dictionary.txt, utable.npy, btable.npy, uni_skip.npz and bi_skip.npz. All sizes
are read from them. Nothing is unpickled: the options in the .pkl files beside them are not needed.

A core encodes about a hundred titles a second, and a title's vector takes 19 kB.

Words are those of the text contract. One that the dictionary lacks is cut at its punctuation, as the tokeniser of the
published code would; what the dictionary still lacks has the vector of its word UNK.

Suffixes: B texts, E the dimensions of a word vector, H of h.
"""

import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal
from zipfile import BadZipFile

import numpy as np

from schemas.errors import StageError, UsageError
from schemas.release import Similarity
from schemas.text_contract import words
from training.model.embedding import Side

_BATCH_TEXTS = 128
_UNKNOWN = "UNK"
_PIECES = re.compile(r"\w+|[^\w\s]")
_FILES = ("dictionary.txt", "utable.npy", "btable.npy", "uni_skip.npz", "bi_skip.npz")


class SkipThought:
    """The encoder; queries and titles have the same one."""

    similarity: Similarity = "cosine"

    def __init__(self, folder: str) -> None:
        """Raises UsageError without the folder or a file of it, StageError for a file that is not as published."""
        if not Path(folder).is_dir():
            raise _missing(folder, "there is no such folder")
        self._row_of = _dictionary(Path(folder, "dictionary.txt"))
        self._uni = _Encoder(Path(folder), "utable.npy", "uni_skip.npz", ("encoder",), len(self._row_of))
        self._bi = _Encoder(Path(folder), "btable.npy", "bi_skip.npz", ("encoder", "encoder_r"), len(self._row_of))

    @property
    def dimensions(self) -> int:
        return self._uni.dimensions + self._bi.dimensions

    @property
    def parameters(self) -> int:
        """The numbers held: both tables of word vectors and the weights of the three recurrent units."""
        return self._uni.parameters + self._bi.parameters

    def encode(self, texts: Sequence[str], side: Side) -> np.ndarray:
        """float32 [texts, dimensions]; every text has at least one word."""
        rows_of = [self._rows(text) for text in texts]
        if not all(rows_of):
            raise ValueError("a text without a word has no vector")
        of_length: dict[int, list[int]] = {}
        for at, rows in enumerate(rows_of):
            of_length.setdefault(len(rows), []).append(at)
        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        for same in of_length.values():  # encoded together, so that no padding takes part
            for start in range(0, len(same), _BATCH_TEXTS):
                batch = same[start : start + _BATCH_TEXTS]
                rows_BT = np.array([rows_of[at] for at in batch])
                vectors[batch] = np.hstack([self._uni.encode(rows_BT), self._bi.encode(rows_BT)])
        return vectors

    def _rows(self, text: str) -> list[int]:
        pieces = [p for word in words(text) for p in ([word] if word in self._row_of else _PIECES.findall(word))]
        return [self._row_of.get(piece, self._row_of[_UNKNOWN]) for piece in pieces]


class _Encoder:
    """A table of word vectors, and one recurrent unit for each direction."""

    def __init__(self, folder: Path, table: str, weights: str, prefixes: Sequence[str], num_words: int) -> None:
        self._table = _array(folder / table, mmap_mode="r")  # two gigabytes, of which few rows are needed
        if self._table.ndim != 2 or len(self._table) != num_words:
            wanted = f"a row for each of the {num_words:,} words of dictionary.txt"
            raise _not_as_published(folder / table, wanted, f"an array has the shape {self._table.shape}")
        self._units = [_unit_of(folder / weights, prefix, self._table.shape[1]) for prefix in prefixes]

    @property
    def dimensions(self) -> int:
        return sum(len(unit["Ux"]) for unit in self._units)

    @property
    def parameters(self) -> int:
        return self._table.size + sum(array.size for unit in self._units for array in unit.values())

    def encode(self, rows_BT: np.ndarray) -> np.ndarray:
        """Unit vectors of texts of one length, [B, dimensions]; the second direction reads from the end."""
        words_TBE = np.asarray(self._table[rows_BT], np.float32).transpose(1, 0, 2)
        directions = (words_TBE, words_TBE[::-1])
        found = np.hstack([_run(unit, read) for unit, read in zip(self._units, directions, strict=False)])
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        return np.divide(found, lengths, out=np.zeros_like(found), where=lengths > 0)


def _run(unit: dict[str, np.ndarray], words_TBE: np.ndarray) -> np.ndarray:
    """The last h, [B, H]."""

    def sigmoid(x: np.ndarray) -> np.ndarray:
        return 0.5 * (1 + np.tanh(0.5 * x))  # without overflow

    size = len(unit["Ux"])
    h_BH = np.zeros((words_TBE.shape[1], size), np.float32)
    for x_BE in words_TBE:
        gates = sigmoid(x_BE @ unit["W"] + unit["b"] + h_BH @ unit["U"])
        r_BH, u_BH = gates[:, :size], gates[:, size:]
        new_BH = np.tanh(x_BE @ unit["Wx"] + unit["bx"] + r_BH * (h_BH @ unit["Ux"]))
        h_BH = u_BH * h_BH + (1 - u_BH) * new_BH
    return h_BH


def _dictionary(path: Path) -> dict[str, int]:
    """The row of each word; of two lines that hold the same word, the last, as in the published code."""
    try:
        lines = path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    except FileNotFoundError:
        raise _missing(path.parent, f"it has no {path.name}") from None
    except UnicodeDecodeError as error:
        raise _not_as_published(path, "UTF-8 text, a word a line", f"byte {error.start:,} is not UTF-8") from None
    row_of = {line.strip(): row for row, line in enumerate(lines)}
    if _UNKNOWN not in row_of:
        raise _not_as_published(path, f"the word {_UNKNOWN}, which stands for all others", "it has no such line")
    return row_of


def _unit_of(path: Path, prefix: str, num_inputs: int) -> dict[str, np.ndarray]:
    """One recurrent unit's arrays, their shapes agreeing with each other and with the word vectors."""
    size = len(np.atleast_1d(_array(path, f"{prefix}_Ux")))
    shapes = {
        "W": (num_inputs, 2 * size), "b": (2 * size,), "U": (size, 2 * size),
        "Wx": (num_inputs, size), "bx": (size,), "Ux": (size, size),
    }  # fmt: skip
    unit = {name: _array(path, f"{prefix}_{name}") for name in shapes}
    for name, shape in shapes.items():
        if unit[name].shape != shape:
            wanted = f"{prefix}_{name} of shape {shape}, for word vectors of {num_inputs} and {size} cells"
            raise _not_as_published(path, wanted, f"an array has the shape {unit[name].shape}")
        if not np.isfinite(unit[name]).all():
            raise _not_as_published(path, f"finite numbers in {prefix}_{name}", "some are not finite")
    return {name: np.asarray(array, np.float32) for name, array in unit.items()}


def _array(path: Path, name: str | None = None, *, mmap_mode: Literal["r"] | None = None) -> np.ndarray:
    """A file's array of floating-point numbers, or the one of a name in an archive."""
    try:
        stored = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
        found = stored[name] if name else stored
    except FileNotFoundError:
        raise _missing(path.parent, f"it has no {path.name}") from None
    except KeyError:
        raise _not_as_published(path, f"the array {name}", f"it lacks {name}") from None
    except (ValueError, IndexError, EOFError, OSError, BadZipFile, zlib.error) as error:
        wanted = "plain arrays, whole and not pickled"
        raise _not_as_published(path, wanted, f"NumPy cannot read it ({error})") from None
    if not isinstance(found, np.ndarray) or not np.issubdtype(found.dtype, np.floating):
        what = f"an array of type {found.dtype}" if isinstance(found, np.ndarray) else "an archive"
        raise _not_as_published(path, "floating-point numbers", f"it has {what}")
    return found


def _missing(folder: str | Path, found: str) -> UsageError:
    return UsageError(
        asked=f"Skip-Thought's published weights were to be read from {folder}",
        found=found,
        do=f"give the local folder that holds {', '.join(_FILES)}",
    )


def _not_as_published(path: Path, wanted: str, found: str) -> StageError:
    return StageError(
        asked=f"{path} must hold {wanted}",
        found=found,
        follows="vectors made from it would mean nothing",
        do="fetch that published file again",
    )
