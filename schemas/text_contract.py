"""Text -> words -> letter-trigram ids: W_h of eq. 1 as a public contract, with a version and a golden file.

A system that serves a model, in any language, must split a text into the same words and trigrams. Python's
`unicodedata` and `str.lower` define the words; the Unicode version in use is recorded with every model.

A word stands between two boundary marks and is cut into letter trigrams: `good` -> #go goo ood od#. The mark is a
position, not a character; a literal `#` in a text is an ordinary other character. A word of L characters has
L trigrams, and l(t) is the vector of their counts.

A trigram of marks, a-z and 0-9 has the id 37² a + 37 b + c < 50,653 with mark 0, a-z 1-26 and 0-9 27-36: no vocabulary,
no state, no collision. Any other is hashed into the rest of the table, from its three code points (mark:
0x110000) as 64-bit unsigned numbers: FNV-1a over the three, then the finaliser of MurmurHash3, modulo the rest's size.

Queries have a form in which they are compared, one for all spellings of a question (`comparison_forms`).

    LED-Bulb,    led_bulb    bulb led    lеd bulb (a Cyrillic е)    ->    bulb led

A log contains such spellings by accident: another order, a slash, a keyboard, a page that text was copied from. A
reader, or a model with a bag of words, cannot tell them apart: a judged query keeps all of them out of training, and
all of them are on one side of the split.

Ids and texts as they were meant, whatever a program on the way wrote around them.

Ids that passed through floating point come out as `10.0` or `1.2E7`; text that was copied from a page brings characters
that nobody sees. Two spellings of one person would count as two behind k, and an id that the log and the catalogue
spell differently joins nothing. So every reader of ids calls this module.
"""

import hashlib
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from importlib import resources
from pkgutil import resolve_name

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

CONTRACT_VERSION = "1.1"  # 1.0 kept characters that nobody sees, and the dot of a lower-case İ
UNICODE_VERSION = unicodedata.unidata_version

# Scripts written without spaces between words, as code point ranges:
# Han, Hiragana, Katakana, Thai, Lao, Khmer, Myanmar.
UNSPACED_RANGES = (
    (0x0E01, 0x0E3A), (0x0E40, 0x0E5B), (0x0E80, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x19E0, 0x19FF),
    (0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x3029), (0x3038, 0x303B), (0x3041, 0x30FF), (0x31F0, 0x31FF),
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F), (0xF900, 0xFAFF),
    (0x1B000, 0x1B16F), (0x20000, 0x323AF),
)  # fmt: skip
# Characters that nobody sees, as code point ranges: Unicode's Cc (but for white space), Cf and
# Default_Ignorable_Code_Point.
UNSEEN_RANGES = (
    (0x0000, 0x0008), (0x000E, 0x001B), (0x007F, 0x0084), (0x0086, 0x009F), (0x00AD, 0x00AD), (0x034F, 0x034F),
    (0x0600, 0x0605), (0x061C, 0x061C), (0x06DD, 0x06DD), (0x070F, 0x070F), (0x0890, 0x0891), (0x08E2, 0x08E2),
    (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F),
    (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFFB), (0x110BD, 0x110BD),
    (0x110CD, 0x110CD), (0x13430, 0x1343F), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
_UNSEEN = re.compile("[" + "".join(f"{chr(a)}-{chr(b)}" for a, b in UNSEEN_RANGES) + "]+")
_BLANK_BRAILLE = "\u2800"  # the space between words in Braille
_DOTTED_I = re.compile("i\u0307+")

_UNSPACED_RUN = re.compile("([" + "".join(f"{chr(a)}-{chr(b)}" for a, b in UNSPACED_RANGES) + "]+)")


def normalise(text: str) -> str:
    """The normalised form of a text: visible, NFKC, lower case, NFKC again, runs of white space as one space.

    Digits stay and there is no stemming. Two queries with the same form are the same query.

    Characters that nobody sees go without a trace, as in NFKC_Casefold of Unicode: a soft hyphen, a byte order mark, a
    zero-width space, and the joiners too, since Persian is written with, without and with a space for U+200C, and a
    joiner in Hindi or in an emoji chooses a glyph. İ in lower case is i; the dotless ı is a letter of its own.
    """
    if text.isascii() and text.isprintable():  # NFKC is the identity on ASCII
        return " ".join(text.lower().split())
    visible = _UNSEEN.sub("", text).replace(_BLANK_BRAILLE, " ")
    lowered = _DOTTED_I.sub("i", unicodedata.normalize("NFKC", visible).lower())
    return " ".join(unicodedata.normalize("NFKC", lowered).split())


def words(text: str) -> list[str]:
    """The words of a text in reading order; a text without words has no embedding.

    White space separates words. A run of an unspaced script is cut into overlapping pairs of characters, as Lucene's
    CJKBigramFilter does; a lone character stays alone.
    """
    return split_normalised(normalise(text))


def split_normalised(normalised: str) -> list[str]:
    """`words` of a text that is already normalised."""
    if normalised.isascii():
        return normalised.split()
    result: list[str] = []
    for spaced in normalised.split():
        for piece in _UNSPACED_RUN.split(spaced):
            if not piece:
                continue
            if len(piece) > 1 and _UNSPACED_RUN.fullmatch(piece):
                result.extend(piece[i : i + 2] for i in range(len(piece) - 1))
            else:
                result.append(piece)
    return result


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
    empty. A column of words need not become Python strings. A table without a row beyond the computed ids hashes every
    trigram.
    """
    num_computed = COMPUTED_IDS if table_rows > COMPUTED_IDS else 0
    if isinstance(words, pa.StringArray):
        lengths = pc.utf8_length(words).to_numpy().astype(np.int64)
        line = _bytes_of(words)[1].tobytes().decode().encode("utf-32-le")
    else:
        lengths = np.fromiter((len(word) for word in words), np.int64, len(words))
        line = "".join(words).encode("utf-32-le", "surrogatepass")
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    # All words in one line, with one mark between neighbours: it ends one word and begins the next.
    points = np.full(int(offsets[-1]) + len(words) + 1, MARK, np.uint32)
    letter_at = np.arange(offsets[-1]) + np.repeat(np.arange(1, len(words) + 1), lengths)
    points[letter_at] = np.frombuffer(line, np.uint32)

    codes = np.where(points < 128, _LETTER_CODE[np.minimum(points, 127)], -1)
    codes[points == MARK] = 0
    before, here, after = codes[letter_at - 1], codes[letter_at], codes[letter_at + 1]
    ids = (before * 37 + here) * 37 + after
    hashed = np.flatnonzero((before < 0) | (here < 0) | (after < 0) | (not num_computed))
    if len(hashed):
        at = letter_at[hashed]
        digest = _hash(points[at - 1], points[at], points[at + 1])
        ids[hashed] = num_computed + (digest % np.uint64(table_rows - num_computed)).astype(np.int64)
    return offsets, ids.astype(np.uint32)


def keyed_digest(text: str, seed: int, purpose: bytes, size: int = 8) -> bytes:
    """A pseudo-random order or split of texts, the same on every machine: the keyed BLAKE2b of a text."""
    key = seed.to_bytes(8, "big", signed=True)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size, key=key, person=purpose).digest()


def golden_cases() -> list[tuple[str, list[str], list[list[int]]]]:
    """The golden file that ships with the package: (text, its words, the ids of each word at 65,536 rows)."""
    content = (resources.files("clicktower.schemas") / "golden" / "trigrams.tsv").read_text(encoding="utf-8")
    cases = []
    for line in content.splitlines():
        if line.startswith("# "):
            continue
        text, words, ids = line.split("\t")
        cases.append((text, words.split(), [[int(i) for i in word.split(" ")] for word in ids.split("|") if word]))
    return cases


def _hash(*points: np.ndarray) -> np.ndarray:
    digest = np.full(len(points[0]), _FNV_OFFSET)
    for point in points:
        digest = (digest ^ point.astype(np.uint64)) * _FNV_PRIME
    digest = (digest ^ (digest >> _SHIFT)) * _MIX_1
    digest = (digest ^ (digest >> _SHIFT)) * _MIX_2
    return digest ^ (digest >> _SHIFT)


# The same rules for whole columns, a million texts per second. Nearly every title is ASCII, and for ASCII the rules are
# a few operations on the column's bytes. Other texts are normalised individually, and words of other scripts are split
# individually, each distinct one once.

_SPACE, _DELETE = 32, 127


def normalise_column(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """`normalise` of each text. `texts`: string, without nulls."""
    texts, data, offsets = _bytes_of(texts)
    is_odd = _has_odd_character(data, offsets) | ~pc.string_is_ascii(texts).to_numpy(zero_copy_only=False)
    lowered = pc.ascii_lower(texts)
    if not is_odd.any():
        return lowered
    odd = pa.array(is_odd)
    one_by_one = pa.array([normalise(text) for text in texts.filter(odd).to_pylist()], pa.string())
    return pc.replace_with_mask(lowered, odd, one_by_one)


def words_of_column(normalised: pa.Array | pa.ChunkedArray) -> tuple[np.ndarray, pa.DictionaryArray]:
    """The words of normalised texts, concatenated: (offsets, words).

    Text t has words[offsets[t]:offsets[t + 1]]; offsets: int64 (len(normalised) + 1). The dictionary holds each
    distinct word once, in order of first appearance.
    """
    offsets, pieces = spaced_pieces(normalised)
    rows = np.flatnonzero(~pc.string_is_ascii(pieces.dictionary).to_numpy(zero_copy_only=False))
    parts = map(split_normalised, pieces.dictionary.take(pa.array(rows)).to_pylist())
    return cut_pieces(
        offsets, pieces, {row: cut for row, cut in zip(rows.tolist(), parts, strict=True) if len(cut) > 1}
    )


def spaced_pieces(normalised: pa.Array | pa.ChunkedArray) -> tuple[np.ndarray, pa.DictionaryArray]:
    """What white space separates in normalised texts: (offsets, pieces), as `words_of_column`."""
    normalised, data, offsets = _bytes_of(normalised)
    # Each piece takes the space after it, if there is one: they cover the bytes without gaps, so they form a column
    # without moving any byte.
    is_bound = np.zeros(len(data) + 1, bool)
    is_bound[1:] = data == _SPACE
    is_bound[offsets] = True
    bounds = np.flatnonzero(is_bound).astype(np.int32)
    spaced = pa.StringArray.from_buffers(len(bounds) - 1, pa.py_buffer(bounds), pa.py_buffer(data)).dictionary_encode()
    # With or without its space: the few distinct pieces are encoded once more.
    distinct = pc.utf8_rtrim(spaced.dictionary, " ").dictionary_encode()
    codes = distinct.indices.take(spaced.indices)
    return np.searchsorted(bounds, offsets), pa.DictionaryArray.from_arrays(codes, distinct.dictionary)


def cut_pieces(
    offsets: np.ndarray, pieces: pa.DictionaryArray, parts_of: Mapping[int, Sequence[str]]
) -> tuple[np.ndarray, pa.DictionaryArray]:
    """Texts of pieces with some pieces replaced by parts: `parts_of` has the parts, none or several, of a piece's code.

    The dictionary stays in order of first appearance: the first appearance of a part is in the first piece that has it.
    """
    if not parts_of:
        return offsets, pieces
    every_part = [
        part for code, piece in enumerate(pieces.dictionary.to_pylist()) for part in parts_of.get(code, (piece,))
    ]
    encoded = pa.array(every_part, pa.string()).dictionary_encode()
    num_parts = np.ones(len(pieces.dictionary), np.int64)
    num_parts[list(parts_of)] = list(map(len, parts_of.values()))
    first_part = np.cumsum(num_parts) - num_parts
    piece = pieces.indices.to_numpy()
    parts_before = np.concatenate([[0], np.cumsum(num_parts[piece])])
    part = np.arange(parts_before[-1]) + np.repeat(first_part[piece] - parts_before[:-1], num_parts[piece])
    codes = encoded.indices.take(pa.array(part))
    return parts_before[offsets], pa.DictionaryArray.from_arrays(codes, encoded.dictionary)


def _has_odd_character(data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Whether each text has control characters, or white space other than single spaces between words, bool; only
    ASCII is checked.
    """
    at = np.flatnonzero((data <= _SPACE) | (data == _DELETE))
    codes = data[at]
    is_space = codes == _SPACE
    # A space may not stand at the start of a text, after another space, or at the end.
    is_border = np.zeros(len(data) + 1, bool)
    is_border[offsets] = True
    follows = np.zeros(len(at), bool)
    follows[1:] = (at[1:] == at[:-1] + 1) & is_space[:-1]
    is_odd = ~is_space | follows | is_border[at] | is_border[at + 1]
    odd_texts = np.zeros(len(offsets) - 1, bool)
    odd_texts[np.searchsorted(offsets, at[is_odd], side="right") - 1] = True
    return odd_texts


def _bytes_of(texts: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """(the column in one piece, its bytes, where each text begins in them and the last one ends)."""
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    if texts.null_count:
        raise AssertionError("a column of texts holds nulls")
    if len(texts) and not texts.offset and np.frombuffer(texts.buffers()[1], np.int32, 1)[0]:
        texts = pa.concat_arrays([texts])  # a part of a large_string, cast: Arrow 25.0's ascii_lower misreads it
    _, offset_buffer, data_buffer = texts.buffers()
    if not len(texts) or data_buffer is None:
        return texts, np.zeros(0, np.uint8), np.zeros(len(texts) + 1, np.int32)
    offsets = np.frombuffer(offset_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    data = np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]]
    return texts, data, offsets - offsets[0]


def comparison_forms(queries: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The form of each normalised query: its bare words in ascending order, with spaces between them.

    Bare words consist of letters, digits and the marks on them, and all else separates them. They are the contract's
    words: a run of an unspaced script is its pairs of characters, so two texts of characters have one form if their
    bags are equal and not because one is an anagram of the other. Look-alike letters are as look_alikes says. A query
    without a bare word keeps its text. The form of a form is itself. `queries`: string, without nulls, normalised,
    those of earlier days perhaps by an earlier version of the text contract.
    """
    if isinstance(queries, pa.ChunkedArray):
        queries = queries.combine_chunks()
    texts = _changed(queries, r"[^ -~]", normalise_column)
    bare = _changed(texts, r"[^a-z0-9 ]", _bare)
    offsets, words = words_of_column(bare)
    seen = _changed(words.dictionary, r"[^ -~]", _latin_forms).dictionary_encode()
    # The words of each text are sorted as numbers: text, then the word's place among all words.
    order = pc.sort_indices(seen.dictionary).to_numpy()
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    text_of_word = np.repeat(np.arange(len(bare)), np.diff(offsets)) * len(order)
    keys = text_of_word + place[seen.indices.to_numpy()[words.indices.to_numpy()]]
    keys.sort()
    in_order = seen.dictionary.take(pa.array(order[keys - text_of_word]))
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), in_order), " ")
    return pc.if_else(pc.equal(joined, ""), texts, joined)


def _changed(texts: pa.Array, pattern: str, change: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """The texts, those that match the pattern changed: on an ordinary log few do."""
    matches = pc.match_substring_regex(texts, pattern)
    if not pc.any(matches).as_py():
        return texts
    return pc.replace_with_mask(texts, matches, change(texts.filter(matches)))


def _bare(texts: pa.Array) -> pa.Array:
    return pc.utf8_trim(pc.replace_substring_regex(texts, r"[^\p{L}\p{N}\p{M}]+", " "), " ")


def _latin_forms(words: pa.Array) -> pa.Array:
    latin_form = resolve_name("clicktower.schemas.look_alikes:latin_form")  # loaded where a word is not ASCII
    return pa.array(map(latin_form, words.to_pylist()), pa.string())


# What programs write where there is no value: Hive and MySQL, SQL clients, Python, pandas, R, JavaScript. None of them
# is an id, a rank or a time.
MARKS_OF_NOTHING = (
    "", "\\N", "NULL", "Null", "null", "(null)", "None", "none", "NaN", "nan", "NaT", "NA", "N/A", "<NA>", "undefined",
)  # fmt: skip

# Classes of characters, for Arrow's RE2. Unicode's White_Space, the separators U+001C to U+001F, which Python counts as
# white space too, and the Braille pattern without dots, which looks like a space.
_BLANKS = "[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\u2800]+"
_UNSEEN_CLASS = "[" + "".join(rf"\x{{{first:X}}}-\x{{{last:X}}}" for first, last in UNSEEN_RANGES) + "]+"

_MAY_BE_FLOAT = r"^-?[0-9]+(?:\.|[eE]\+)"  # one search in a column instead of two
_POINT_ZERO = r"^(-?(?:0|[1-9][0-9]*))\.0*$"
# Powers of ten as Java (`1.2345678E7`), Python and C (`1e+16`) print them. A bare `12E5` is more often a part number.
_PRINTED_POWER = r"^-?[0-9](?:\.[0-9]+[eE]\+?|[eE]\+)[0-9]{1,2}$"
_ANY_POWER = r"^-?[0-9]+(?:\.[0-9]*)?[eE]\+?[0-9]{1,2}$"


_MAY_BE_NOISE = r"[^!-~]|^-?[0-9]+[.eE]"  # in the id of a person


def visible(texts: pa.Array) -> pa.Array:
    """The visible form of texts: without characters that nobody sees, each run of white space as one space, trimmed.

    `texts`: string, may hold nulls.
    """
    if not pc.any(pc.match_substring_regex(texts, r"[^!-~]")).as_py():
        return texts
    spaced = pc.replace_substring_regex(texts, _BLANKS, " ")
    return pc.utf8_trim(
        pc.replace_substring_regex(pc.replace_substring_regex(spaced, _UNSEEN_CLASS, ""), " +", " "), " "
    )


def ids(texts: pa.Array) -> pa.Array:
    """Ids of documents and queries: trimmed, and whole numbers where a float was printed (`10.0`, `1.2E7`).

    `texts`: string, may hold nulls. An empty id stays empty.
    """
    trimmed = pc.utf8_trim_whitespace(texts)
    if not pc.any(pc.match_substring_regex(trimmed, _MAY_BE_FLOAT)).as_py():
        return trimmed
    return _whole(pc.replace_substring_regex(trimmed, _POINT_ZERO, r"\1"), _PRINTED_POWER)


def person_ids(texts: pa.Array) -> pa.Array:
    """Ids of people in the one form that is hashed: visible, composed (NFC), floats as whole numbers, `1e1` included.

    `texts`: string, may hold nulls. Case is kept, since ids in base64 differ in it. What only looks or counts like
    white space (the blank Braille pattern, NEL, the separators U+001C to U+001F) is noise in an id.
    """
    if not pc.any(pc.match_substring_regex(texts, _MAY_BE_NOISE)).as_py():
        return texts
    if not pc.all(pc.string_is_ascii(texts)).as_py():
        texts = pc.utf8_normalize(texts, "NFC")
    texts = pc.replace_substring_regex(texts, "[\x1c-\x1f\x85\u2800]+", "")
    return _whole(pc.replace_substring_regex(visible(texts), _POINT_ZERO, r"\1"), _ANY_POWER)


def id_of(text: str) -> str:
    """`ids` of one text."""
    return ids(pa.array([text], pa.string()))[0].as_py() if _MAY_CHANGE.search(text) else text


_MAY_CHANGE = re.compile(r"^\s|\s$|^-?[0-9]+(\.[0-9]*([eE]\+?[0-9]{1,2})?|[eE]\+[0-9]{1,2})$")


def _whole(texts: pa.Array, powers: str) -> pa.Array:
    """The texts with those that match `powers` written out, if they are whole numbers."""
    matches = pc.match_substring_regex(texts, powers)
    if not pc.any(matches).as_py():
        return texts
    written = []
    for text in texts.filter(matches.fill_null(False)).to_pylist():
        number = Decimal(text)
        written.append(f"{number:.0f}" if number == number.to_integral_value() else text)
    return pc.replace_with_mask(texts, matches.fill_null(False), pa.array(written, pa.string()))
