"""Lines of text -> vectors, in blocks, without delaying lines that are available."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, Literal

import numpy as np

from schemas.errors import StageError, UsageError
from schemas.release import MODEL, read_release
from schemas.stage import open_result
from schemas.text_contract import words
from training.models.ensemble import Ensemble, load_encoder
from training.models.model import Model
from training.ranking.embedding import search_vectors

BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """The search vectors of some lines, float32 [lines, dimensions]; zeros where a line has no word."""

    values: np.ndarray
    has_word: list[bool]

    def lines(self, *, objects: bool = False) -> bytes:
        """One line per vector: a JSON array, or {"vector": array}; null where there is no word."""
        rows = [row if known else None for row, known in zip(self.values.tolist(), self.has_word, strict=True)]
        return "".join(json.dumps({"vector": row} if objects else row) + "\n" for row in rows).encode()

    def raw(self) -> bytes:
        """Little-endian float32, one vector after the other."""
        return self.values.astype("<f4").tobytes()


def open_encoder(model: str | None, release: str | None) -> Model | Ensemble:
    """The model of a stage's folder or of a live release. Raises UsageError unless exactly one is given."""
    if (model is None) == (release is None):
        raise UsageError(asked="texts were to be encoded", found="a model is needed, and one only",
                         do="give --model FOLDER or --release URI")  # fmt: skip
    if release is not None:
        return load_encoder(f"{read_release(release)[0]}/{MODEL}")
    assert model is not None
    return load_encoder(open_result(model).data)


def encode_lines(encoder: Model | Ensemble, stream: BinaryIO, side: Literal["query", "document"]) -> Iterator[Vectors]:
    """The vectors of every line, in order, without waiting for a block to fill.

    Raises StageError for bytes that are not UTF-8.
    """
    number = 0
    for block in _blocks(stream):
        texts = []
        for line in block:
            number += 1
            try:
                texts.append(line.decode().removesuffix("\r"))
            except UnicodeDecodeError:
                raise StageError(asked="lines of text were to be encoded", found=f"line {number:,} is not UTF-8",
                                 follows="no line after it is encoded; lines before it may be",
                                 do="convert the text to UTF-8") from None  # fmt: skip
        has_word = [bool(words(text)) for text in texts]
        values = np.zeros((len(texts), encoder.dimensions), np.float32)
        if any(has_word):
            kept = [text for text, known in zip(texts, has_word, strict=True) if known]
            values[has_word] = search_vectors(encoder, kept, side)
        yield Vectors(values, has_word)


def _blocks(stream: BinaryIO) -> Iterator[list[bytes]]:
    """The lines of each read, without their ends."""
    rest = b""
    while chunk := stream.read1(BLOCK_BYTES):  # type: ignore[attr-defined]
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]
