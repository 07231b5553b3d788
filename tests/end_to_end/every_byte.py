"""Every byte of every file below some folders, also as a reader of the file would see it."""

import gzip
from collections.abc import Iterable, Iterator
from hashlib import blake2b, md5, sha1, sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def places_of(needles: Iterable[str], folders: Iterable[Path]) -> set[tuple[str, str]]:
    """(needle, path) wherever a needle is: in a file's name or content, raw, decompressed or decoded, in any case."""
    forms = {needle: _forms(needle) for needle in needles}
    found = set()
    for path, content in _views(folders):
        lower = content.lower()
        for needle, written in forms.items():
            if any(form.lower() in lower for form in written):
                found.add((needle, str(path)))
    return found


def hashes_of(text: str) -> list[bytes]:
    """What an unkeyed hash of a text would look like, as bytes and as text: nobody may find a person by guessing."""
    digests = [make(text.encode()).digest() for make in (md5, sha1, sha256)]
    digests += [blake2b(text.encode(), digest_size=size).digest() for size in (8, 16)]
    short = [digest[:8] for digest in digests]
    return [*short, *(part[::-1] for part in short), *(digest.hex()[:16].encode() for digest in digests)]


def files_with(content: Iterable[bytes], folders: Iterable[Path]) -> set[str]:
    """Paths of the files in which any of these byte strings is."""
    wanted = list(content)
    return {str(path) for path, seen in _views(folders) if any(part in seen for part in wanted)}


def _forms(needle: str) -> list[bytes]:
    return [needle.encode(), needle.encode("utf-16-le"), needle.encode("utf-16-be"), needle.encode().hex().encode()]


def _views(folders: Iterable[Path]) -> Iterator[tuple[Path, bytes]]:
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            yield path, str(path.relative_to(folder)).encode()
            if path.is_file():
                raw = path.read_bytes()
                yield path, raw
                if raw[:2] == b"\x1f\x8b":
                    yield path, gzip.decompress(raw)
                for table in _tables(path, raw):
                    yield path, _decoded(table)


def _tables(path: Path, raw: bytes) -> Iterator[pa.Table]:
    if path.suffix == ".parquet":
        yield pq.read_table(path)
    for opened in (pa.ipc.open_file, pa.ipc.open_stream):
        try:
            yield opened(raw).read_all()
        except (pa.ArrowInvalid, OSError):  # another kind of file
            continue


def _decoded(table: pa.Table) -> bytes:
    """All values of a table, texts as UTF-8 and numbers as their eight bytes, and the schema's metadata."""
    parts = [str(table.schema).encode(), *(part for pair in (table.schema.metadata or {}).items() for part in pair)]
    for column in table.columns:
        flat = column.combine_chunks()
        while pa.types.is_list(flat.type) or pa.types.is_dictionary(flat.type):
            flat = flat.flatten() if pa.types.is_list(flat.type) else flat.dictionary_decode()
        if isinstance(flat, pa.StructArray):
            flat = pa.array([str(value) for value in flat.to_pylist()])
        for value in flat.to_pylist():
            if isinstance(value, int) and not isinstance(value, bool):
                parts.append((value % 2**64).to_bytes(8, "little"))
            elif value is not None:
                parts.append(value if isinstance(value, bytes) else str(value).encode())
    return b"\x00".join(parts)
