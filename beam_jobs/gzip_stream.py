"""A gzip file as a stream of bytes, as Python's own `gzip` gives it, in a fifth of the time.

The work is that of ISA-L, in pieces as they are read, so that whatever lies before a damage is given. (Its own file
object has larger buffers, and nothing of the last one.)
"""

import io
from typing import IO, Any

from isal import isal_zlib

_PIECE_BYTES = 1 << 17  # of packed data: a thousand times as much unpacked at most
_GZIP = 16 + isal_zlib.MAX_WBITS  # data with gzip's header and checksum, as zlib counts
_MAGIC = b"\x1f\x8b"
DAMAGED: type[Exception] = isal_zlib.error  # type: ignore[assignment]  # a class, whatever its stub says


class GzipStream(io.RawIOBase):
    """What the members of a gzip file hold, one after the other; there may be zeros behind each.

    Reading raises EOFError where the file ends within a member, DAMAGED where one is damaged or something else
    follows.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._member: Any = isal_zlib.decompressobj(_GZIP)
        self._packed = b""  # what was read behind the end of a member
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, room) -> int:  # type: ignore[no-untyped-def]  # any buffer that can be written to
        while not self._ready:
            if not self._unpack():
                return 0
        size = min(len(room), len(self._ready))
        room[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size

    def _unpack(self) -> bool:
        """Whether there was anything more to unpack; it may have given nothing."""
        packed = self._packed or self._file.read(_PIECE_BYTES)
        self._packed = b""
        if not packed:
            if self._member:
                raise EOFError("the file ends within a member")
            return False
        if not self._member:
            packed = packed.lstrip(b"\0")
            if not packed:
                return True
            if not _MAGIC.startswith(packed[: len(_MAGIC)]):  # or else taken for the beginning of a header
                raise DAMAGED("what follows a member is none")
            self._member = isal_zlib.decompressobj(_GZIP)
        self._ready = memoryview(self._member.decompress(packed))
        if self._member.eof:
            self._packed, self._member = self._member.unused_data, None
        return True
