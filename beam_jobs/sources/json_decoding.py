"""Lines of JSON -> typed structs: the fields that are needed, of the types they must have, and nothing else built.

msgspec parses every line in full and is as strict as the standard (no NaN, no bare control characters, no lone
surrogates), whether a value is needed or skipped. Two things it leaves to us: whether skipped text is UTF-8, and how
deep values may nest, which in it hangs on how deep the caller's own stack is.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from beam_jobs.sources.lines import not_utf8

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
