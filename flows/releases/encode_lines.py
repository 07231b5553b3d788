"""Vectors of any lines of text, by a model's folder or a live release."""

import codecs
import json
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import BinaryIO

import numpy as np

from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.release import MODEL, read_release
from clicktower.schemas.stage import Progress, open_result, silent
from clicktower.schemas.text_contract import words
from clicktower.training.model.embedding import AnyEncoder, Side, search_vectors
from clicktower.training.model.model import load_encoder

_BLOCK_BYTES = 1 << 20


def open_encoder(model: str | None, release: str | None) -> AnyEncoder:
    """The model of a stage's folder or of a live release. Raises UsageError unless exactly one is given."""
    if model is not None and release is None:
        return load_encoder(open_result(model).data)
    if release is not None and model is None:
        return load_encoder(f"{read_release(release)[0]}/{MODEL}")
    raise UsageError(
        f"Texts are encoded by one model, and {'two are' if model else 'none is'} named.",
        "Give --model FOLDER or --release URI.",
    )


def encode(
    encoder: AnyEncoder, texts: Sequence[str], side: Side, progress: Progress = silent
) -> tuple[np.ndarray, list[bool]]:
    """(the search vectors of any texts, float32 [texts, dimensions]; whether each has a word, zero vectors if not)."""
    has_word = [bool(words(text)) for text in texts]
    vectors = np.zeros((len(texts), encoder.dimensions), "<f4")
    if any(has_word):
        vectors[has_word] = search_vectors(encoder, list(compress(texts, has_word)), side, progress=progress)
    return vectors, has_word


def encode_lines(
    encoder: AnyEncoder,
    stream: BinaryIO,
    side: Side,
    *,
    raw: bool = False,
    objects: bool = False,
    progress: Progress = silent,
) -> Iterator[bytes]:
    """The vectors of every line, in order, in blocks; it does not wait for a block to fill.

    One line per vector, a JSON array or {"vector": array}, null if the text has no word; or with `raw` little-endian
    float32, zeros for such a text. Raises StageError for bytes that are not UTF-8.
    """
    number = 0
    for block in _blocks(stream):
        texts = []
        for line in block:
            number += 1
            line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
            try:
                texts.append(line.decode().removesuffix("\r"))
            except UnicodeDecodeError:
                raise StageError(
                    f"Line {number:,} is not UTF-8: no line after it is encoded.", "Convert the text to UTF-8."
                ) from None
        vectors, has_word = encode(encoder, texts, side)
        progress("encode lines", number, None)
        if raw:
            yield vectors.tobytes()
            continue
        rows = [row if is_known else None for row, is_known in zip(vectors.tolist(), has_word, strict=True)]
        yield "".join(json.dumps({"vector": row} if objects else row, allow_nan=False) + "\n" for row in rows).encode()


def _blocks(stream: BinaryIO) -> Iterator[list[bytes]]:
    """The lines of each read, without their ends."""
    remainder = b""
    while chunk := stream.read1(_BLOCK_BYTES):  # type: ignore[attr-defined]
        *lines, remainder = (remainder + chunk).split(b"\n")
        if lines:
            yield lines
    if remainder:
        yield [remainder]
