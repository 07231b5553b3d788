"""What a file is, told by its first bytes: plain text, gzip, zstd, or something that is no text log."""

from schemas.errors import StageError

PLAIN, GZIP, ZSTD, PARQUET = "plain", "gzip", "zstd", "parquet"
MAGIC_BYTES = 6
_MAGICS = {
    b"\x1f\x8b": GZIP,
    b"\x28\xb5\x2f\xfd": ZSTD,
    b"\x50\x2a\x4d\x18": ZSTD,  # a skippable frame, which pzstd begins with
    b"PAR1": PARQUET,
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"PK\x03\x04": "zip",
    b"ARROW1": "Arrow",
}
_SUFFIXES = {".gz": GZIP, ".zst": ZSTD, ".zstd": ZSTD}
_DO = {
    PARQUET: "read it with --format parquet and a mapping",
    "bzip2": "unpack it, or pack it with gzip or zstd",
    "xz": "unpack it, or pack it with gzip or zstd",
    "zip": "unpack it, or pack it with gzip or zstd",
    "Arrow": "write it as Parquet, or as JSON lines",
}


def kind_of(start: bytes) -> str:
    """The kind of a file that starts with these bytes (MAGIC_BYTES of them are enough)."""
    return next((kind for magic, kind in _MAGICS.items() if start.startswith(magic)), PLAIN)


def check_kind(file: str, kind: str) -> None:
    """Nothing. Raises StageError where a file is not what its name says, or cannot be read as lines of text."""
    promised = next((named for suffix, named in _SUFFIXES.items() if file.endswith(suffix)), kind)
    if kind != promised:
        raise StageError(
            asked=f"{file} was to be read as a {promised} file",
            found="its first bytes are not those of one",
            follows="nothing of it was kept",
            do="pack it as its name says, or change the name",
        )
    if kind in _DO:
        raise StageError(
            asked=f"{file} was to be read as lines of text",
            found=f"it is a file of the kind {kind}",
            follows="nothing of it was kept",
            do=_DO[kind],
        )
