"""Text in another encoding than UTF-8, read as UTF-8."""

import codecs
import io
from typing import Any

from clicktower.beam_jobs.sources.mapping import UTF8

PIECE_BYTES = 1 << 16


def _unreadable_bytes(error: UnicodeError) -> tuple[str | bytes, int]:
    """An error handler of codecs: what is no text becomes a byte that is no UTF-8, so that its line is unreadable."""
    if isinstance(error, UnicodeDecodeError):
        return "\udcff", error.end
    if isinstance(error, UnicodeEncodeError):
        return b"\xff", error.end
    raise error


_AS_UNREADABLE = "clicktower.unreadable"
codecs.register_error(_AS_UNREADABLE, _unreadable_bytes)


class AsUtf8(io.RawIOBase):
    """A stream of text in another encoding, as UTF-8."""

    def __init__(self, stream: Any, encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)(_AS_UNREADABLE)
        self._held, self._has_ended = b"", False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._held and not self._has_ended:
            piece = self._stream.read(PIECE_BYTES)
            self._has_ended = not piece
            self._held = self._decoder.decode(piece, final=not piece).encode(UTF8, _AS_UNREADABLE)
        size = min(len(buffer), len(self._held))
        buffer[:size], self._held = self._held[:size], self._held[size:]
        return size
