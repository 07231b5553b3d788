"""Small files of text, as people and their programs write them -> text, lines and a name's ending.

With a byte order mark or without, lines ended by LF, CRLF or CR, blanks at their ends, compressed by gzip or zstd:
whatever reads queries, judgments, lists of terms, ids or settings reads them all alike, through this module.
"""

import codecs
import gzip
import zlib
from collections.abc import Mapping

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError

PLAIN, GZIP, ZSTD, PARQUET, TAR = "plain", "gzip", "zstd", "parquet", "tar"
COMPRESSED = {".gz": GZIP, ".zst": ZSTD, ".zstd": ZSTD}
HEAD_BYTES = 512  # a file's first bytes, which tell its kind
_MAGICS = {
    b"\x1f\x8b": GZIP,
    b"\x28\xb5\x2f\xfd": ZSTD,
    b"\x50\x2a\x4d\x18": ZSTD,  # a skippable frame, which pzstd begins with
    b"PAR1\x15": PARQUET,  # with the first byte of a page or a footer: an id such as PAR1001 is text
    **{b"BZh%d1AY" % level: "bzip2" for level in range(1, 10)},
    b"\xfd7zXZ\x00": "xz",
    b"\x04\x22\x4d\x18": "lz4",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"PK\x03\x04": "zip",
    b"ARROW1\0\0": "Arrow",
    b"Obj\x01": "Avro",
}
_TAR_MAGIC, _TAR_AT = b"ustar", 257
NOT_TEXT = {  # the kinds of files that nothing here unpacks, and what to do with each
    **dict.fromkeys(("bzip2", "xz", "lz4", "7z", "zip"), "Unpack it, or pack it with gzip or zstd."),
    **dict.fromkeys(("Arrow", "Avro", PARQUET), "Write it as text."),
    TAR: "Unpack it, and give a file of text from it.",
}
# The marks that some programs write before text; those of UTF-32 begin as one of UTF-16 does.
_OTHER_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_MARK = "\ufeff"
RETURNS_FIX = "Write line feeds: tr '\\r' '\\n' < FILE > NEW."


def ending(uri: str) -> str:
    """The ending of a file's name in lower case, such as .jsonl, without that of its compression; or nothing.

    .ndjson is .jsonl.
    """
    name = uri.rsplit("/", 1)[-1].lower()
    for compressed in COMPRESSED:
        name = name.removesuffix(compressed)
    _, dot, last = name.rpartition(".")
    return "" if not dot else ".jsonl" if last == "ndjson" else f".{last}"


def kind_of(start: bytes) -> str:
    """The kind of a file that starts with these bytes (HEAD_BYTES of them suffice): PLAIN if nothing tells."""
    if start[_TAR_AT:].startswith(_TAR_MAGIC):
        return TAR
    return next((kind for magic, kind in _MAGICS.items() if start.startswith(magic)), PLAIN)


def require_text(name: str, start: bytes, fixes: Mapping[str, str] = NOT_TEXT) -> None:
    """Raise StageError for a file that is no text by its first bytes, unpacked. `fixes`: what to do with each kind."""
    kind = kind_of(start)
    if kind in (GZIP, ZSTD):
        raise StageError(f"{name} is packed twice.", "Unpack it once.")
    if kind != PLAIN:
        raise StageError(f"{name} should be text, and is a file of the kind {kind}.", fixes[kind])


def require_promised(uri: str, kind: str) -> None:
    """Raise StageError for a file whose name promises another compression than its first bytes have."""
    promised = next((named for suffix, named in COMPRESSED.items() if uri.lower().endswith(suffix)), kind)
    if kind != promised:
        raise StageError(
            f"{uri} is named like a {promised} file, and its first bytes are not those of one.",
            "Pack it as its name says, or change the name.",
        )


def other_encoding(start: bytes) -> str:
    """The encoding that text in some other one than UTF-8 is in by its first bytes; "" if nothing tells."""
    if by_mark := next((name for mark, name in _OTHER_MARKS.items() if start.startswith(mark)), ""):
        return by_mark
    for half, name in enumerate(("utf-16-be", "utf-16-le")):  # Latin letters have a byte of zeros each
        if start[half::2].count(0) * 8 > len(start) and 0 not in start[1 - half :: 2]:
            return name
    return ""


def read_text(uri: str) -> str:
    """The text of a file. Raises OSError, and StageError as `decoded`."""
    return decoded(storage.read_bytes(uri), uri)


def decoded(content: bytes, name: str) -> str:
    """The text in the bytes of a file, which may be compressed. `name`: for the errors.

    Raises StageError for text that is not UTF-8, for a compressed file that is not whole and for other kinds of files.
    """
    kind = kind_of(content[:HEAD_BYTES])
    try:
        if kind == GZIP:
            content = gzip.decompress(content)
        elif kind == ZSTD:
            import pyarrow as pa  # most commands that read settings need none of it

            content = pa.CompressedInputStream(pa.BufferReader(content), "zstd").read()
    except (EOFError, OSError, zlib.error):
        raise StageError(f"The compressed file {name} is not whole.", "Copy it again.") from None
    require_text(name, content[:HEAD_BYTES])
    binary = "a binary file (it holds bytes of zero)" if b"\0" in content else ""
    if other := other_encoding(content[:HEAD_BYTES]).upper() or binary:
        raise StageError(f"{name} is {other}, not UTF-8.", "Convert the file to UTF-8.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise StageError(f"Byte {error.start:,} of {name} is not UTF-8.", "Convert the file to UTF-8.") from None


def is_utf8(text: bytes | None) -> bool:
    """Whether bytes are UTF-8; true for no bytes."""
    try:
        (text or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def ends_lines_by_returns(text: bytes) -> bool:
    """Whether lines end in carriage returns alone, as in Excel's CSV for Macintosh; `text` may be a file's start."""
    return b"\n" not in text and b"\r" in text.rstrip(b"\r")


def lines(text: str) -> list[tuple[int, str]]:
    """The lines that are not blank, with their numbers from 1, without blanks and returns at their ends.

    A byte order mark at the start of a line, where files were joined, goes too.
    """
    if "\n" not in text:
        text = text.replace("\r", "\n")
    bare = ((number, line.removeprefix(_MARK).rstrip(" \r")) for number, line in enumerate(text.split("\n"), start=1))
    return [(number, line) for number, line in bare if line.strip()]
