"""Words -> letter-trigram ids: W_h of eq. 1 as a public contract, with a version and a golden file.

A word stands between two boundary marks and is cut into letter trigrams: `good` -> #go goo ood od#. The mark is a
position, not a character; a literal `#` in a text is an ordinary other character. A word of L characters has
L trigrams, and l(t) is the vector of their counts.

A trigram of marks, a-z and 0-9 has the id 37² a + 37 b + c < 50,653 with mark 0, a-z 1-26 and 0-9 27-36: no vocabulary,
no state, no collision. Any other is hashed into the rest of the table, from its three code points (mark:
0x110000) as 64-bit unsigned numbers: FNV-1a over the three, then the finaliser of MurmurHash3, modulo the rest's size.
"""

from collections.abc import Sequence
from importlib import resources

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

CONTRACT_VERSION = "1.0"
COMPUTED_IDS = 37**3
DEFAULT_TABLE_ROWS = 65_536
MARK = 0x110000  # one past the last code point

_FNV_OFFSET, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_MIX_1, _MIX_2, _SHIFT = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53), np.uint64(33)

_LETTER_CODE = np.full(128, -1, np.int32)
for _code, _letter in enumerate("abcdefghijklmnopqrstuvwxyz0123456789", start=1):
    _LETTER_CODE[ord(_letter)] = _code


def trigram_ids(
    words: Sequence[str] | pa.StringArray, table_rows: int = DEFAULT_TABLE_ROWS
) -> tuple[np.ndarray, np.ndarray]:
    """The ids of many words at once: (offsets, ids), where word w has ids[offsets[w]:offsets[w + 1]].

    offsets: int64 (len(words) + 1); ids: uint32, in reading order, repeated as often as they occur. No word may be
    empty. A column of words need not become Python strings. Raises ValueError for a table without room for hashed
    trigrams.
    """
    if table_rows <= COMPUTED_IDS:
        raise ValueError(
            f"table_rows = {table_rows} leaves no row for hashed trigrams; it must be above {COMPUTED_IDS}"
        )
    if isinstance(words, pa.StringArray):
        lengths = pc.utf8_length(words).to_numpy().astype(np.int64)
        line = _joined(words).encode("utf-32-le")
    else:
        lengths = np.fromiter((len(word) for word in words), np.int64, len(words))
        line = "".join(words).encode("utf-32-le", "surrogatepass")
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    # All words in one line, one mark between neighbours: it ends the one word and begins the next.
    points = np.full(int(offsets[-1]) + len(words) + 1, MARK, np.uint32)
    letter_at = np.arange(offsets[-1]) + np.repeat(np.arange(1, len(words) + 1), lengths)
    points[letter_at] = np.frombuffer(line, np.uint32)

    codes = np.where(points < 128, _LETTER_CODE[np.minimum(points, 127)], -1)
    codes[points == MARK] = 0
    before, here, after = codes[letter_at - 1], codes[letter_at], codes[letter_at + 1]
    ids = (before * 37 + here) * 37 + after
    hashed = np.flatnonzero((before < 0) | (here < 0) | (after < 0))
    if len(hashed):
        at = letter_at[hashed]
        digest = _hash(points[at - 1], points[at], points[at + 1])
        ids[hashed] = COMPUTED_IDS + (digest % np.uint64(table_rows - COMPUTED_IDS)).astype(np.int64)
    return offsets, ids.astype(np.uint32)


def golden_cases() -> list[tuple[str, list[str], list[list[int]]]]:
    """The golden file that ships with the package: (text, its words, the ids of each word at 65,536 rows)."""
    content = (resources.files("schemas") / "golden" / "trigrams.tsv").read_text(encoding="utf-8")
    cases = []
    for line in content.splitlines():
        if line.startswith("# "):
            continue
        text, words, ids = line.split("\t")
        cases.append((text, words.split(), [[int(i) for i in word.split(" ")] for word in ids.split("|") if word]))
    return cases


def _joined(words: pa.StringArray) -> str:
    """All words in one string."""
    if not len(words):
        return ""
    _, offset_buffer, data_buffer = words.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[words.offset : words.offset + len(words) + 1]
    return str(data_buffer.slice(int(offsets[0]), int(offsets[-1] - offsets[0])), "utf-8")


def _hash(*points: np.ndarray) -> np.ndarray:
    digest = np.full(len(points[0]), _FNV_OFFSET)
    for point in points:
        digest = (digest ^ point.astype(np.uint64)) * _FNV_PRIME
    digest = (digest ^ (digest >> _SHIFT)) * _MIX_1
    digest = (digest ^ (digest >> _SHIFT)) * _MIX_2
    return digest ^ (digest >> _SHIFT)
