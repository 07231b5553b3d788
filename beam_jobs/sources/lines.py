"""What text sources do with the lines of a block: cut, check, hash, decode JSON, name the places without a row."""

import re
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from beam_jobs.sources.log_rows import LINE_HASH_BYTES
from beam_jobs.sources.source import ParsedLines


def split_lines(block: bytes) -> list[bytes]:
    """The lines without their newlines; the last line of a block may lack it."""
    lines = block.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def without_returns(block: bytes, lines: list[bytes]) -> list[bytes]:
    """The lines without the carriage return that some have before the newline: it belongs to the line end."""
    if b"\r" not in block:
        return lines
    return [line.removesuffix(b"\r") for line in lines]


def not_utf8(block: bytes, lines: Sequence[bytes]) -> list[int]:
    """The numbers of the lines that are not UTF-8. `block` is all of them, so that one look mostly does."""
    bounds = pa.py_buffer(np.array([0, len(block)], np.int64))
    try:
        pa.LargeStringArray.from_buffers(1, bounds, pa.py_buffer(block)).validate(full=True)
    except pa.ArrowInvalid:
        return [number for number, line in enumerate(lines) if not line.isascii() and not _is_utf8(line)]
    return []


def line_hashes(lines: Iterable[bytes]) -> pa.FixedSizeBinaryArray:
    """The first LINE_HASH_BYTES of the SHA-256 of each line: of the strong hashes the fastest on today's processors."""
    digests = np.frombuffer(b"".join([sha256(line).digest() for line in lines]), np.uint8).reshape(-1, 32)
    hashes = np.ascontiguousarray(digests[:, :LINE_HASH_BYTES])
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(LINE_HASH_BYTES), len(hashes), [None, pa.py_buffer(hashes)])


def parsed_lines(
    rows: pa.RecordBatch, lines: Sequence[bytes], rejects: dict[int, str], num_action_lines: int = 0
) -> ParsedLines:
    """`rows` with the places of the lines that gave none: `rejects` is the reason by the line's number."""
    numbers = sorted(rejects)
    offsets = np.zeros(0, np.int64)
    if numbers:
        ends = np.cumsum(np.fromiter(map(len, lines), np.int64, len(lines)) + 1)
        offsets = np.concatenate([[0], ends])[numbers]
    return ParsedLines(
        rows=rows,
        reject_offsets=offsets,
        reject_reasons=[rejects[number] for number in numbers],
        num_action_lines=num_action_lines,
    )


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


MAX_DEPTH = 200  # no log nests as deep
NOT_JSON, NOT_UTF8, WRONG_FIELD = "unreadable_not_json", "unreadable_not_utf8", "unreadable_field"
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?')
FAILURES = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError)

as_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def decode_lines(
    block: bytes, lines: Sequence[bytes], decode: Callable[[bytes], Any]
) -> tuple[list[Any], dict[int, str]]:
    """(what `decode` makes of each line, None where it fails; why it fails, by the line's number).

    `block` is all the lines together.
    """
    rejects = dict.fromkeys(not_utf8(block, lines), NOT_UTF8)
    for number in [number for number, line in enumerate(lines) if len(line) > 2 * MAX_DEPTH]:
        if number not in rejects and is_too_deep(lines[number]):
            rejects[number] = NOT_JSON
    if rejects:
        lines = [b"" if number in rejects else line for number, line in enumerate(lines)]
    values: list[Any] = []
    decoded = map(decode, lines)
    while True:
        try:
            values.extend(decoded)  # what came before an error stays
        except FAILURES:
            number = len(values)
            values.append(None)
            if number not in rejects:
                rejects[number] = _reason(lines[number])
        else:
            return values, rejects


def is_too_deep(line: bytes) -> bool:
    """Whether a line nests more than MAX_DEPTH values. Whatever is no JSON may be called either."""
    if line.count(b"{") + line.count(b"[") <= MAX_DEPTH:
        return False
    marks = np.frombuffer(_STRING.sub(b"", line), np.uint8)
    steps = np.isin(marks, list(b"{[")).astype(np.int64) - np.isin(marks, list(b"}]"))
    return bool(np.cumsum(steps).max(initial=0) > MAX_DEPTH)


def _reason(line: bytes) -> str:
    try:
        as_object(line)
    except FAILURES:
        return NOT_JSON
    return WRONG_FIELD
