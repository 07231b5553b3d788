"""Small files of text, as people and their programs write them -> text, lines and a name's ending.

With a byte order mark or without, lines ended by LF, CRLF or CR, blanks at their ends, compressed by gzip or zstd:
whatever reads queries, judgments, lists of terms, ids or settings reads them all alike, through this module.
"""

import codecs
import gzip
import zlib

from clicktower.schemas import storage
from clicktower.schemas.errors import UsageError

_COMPRESSED = (".gz", ".zst")
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_OTHER_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",  # before UTF-16's, which it begins with
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
_MARK = "\ufeff"
RETURNS_FIX = "Write line feeds: tr '\\r' '\\n' < FILE > NEW."


def ending(uri: str) -> str:
    """The ending of a file's name in lower case, such as .jsonl, without that of its compression; or nothing.

    .ndjson is .jsonl.
    """
    name = uri.rsplit("/", 1)[-1].lower()
    for compressed in _COMPRESSED:
        name = name.removesuffix(compressed)
    _, dot, last = name.rpartition(".")
    return "" if not dot else ".jsonl" if last == "ndjson" else f".{last}"


def read_text(uri: str) -> str:
    """The text of a file. Raises FileNotFoundError, and UsageError as `decoded`."""
    return decoded(storage.read_bytes(uri), uri)


def decoded(content: bytes, name: str) -> str:
    """The text in the bytes of a file, which may be compressed. `name`: for the errors.

    Raises UsageError for text that is not UTF-8 and for a compressed file that is not whole.
    """
    try:
        if content.startswith(_GZIP):
            content = gzip.decompress(content)
        elif content.startswith(_ZSTD):
            import pyarrow as pa  # most commands that read settings need none of it

            content = pa.CompressedInputStream(pa.BufferReader(content), "zstd").read()
    except (EOFError, OSError, zlib.error):
        raise UsageError(f"The compressed file {name} is not whole.", "Copy it again.") from None
    encoding = next((encoding for mark, encoding in _OTHER_MARKS.items() if content.startswith(mark)), None)
    if not encoding and b"\0" in content:
        encoding = "UTF-16" if content.count(b"\0") * 4 > len(content) else "text: it holds bytes of zero"
    if encoding:
        raise UsageError(f"{name} is {encoding}, not UTF-8.", "Convert the file to UTF-8.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"Byte {error.start:,} of {name} is not UTF-8.", "Convert the file to UTF-8.") from None


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
