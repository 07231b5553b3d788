"""The CRC-32 of many texts, compiled."""

from zlib import crc32

import numpy as np
import pyarrow as pa

from beam_jobs.compiled.library import library
from beam_jobs.compiled.text_buffers import text_buffers

NO_TEXT = np.uint64(crc32(b""))  # the hash of the empty text, and of none


def text_hashes(texts: pa.Array) -> np.ndarray:
    """The CRC-32 of each text's UTF-8 bytes, uint64 [texts]. `texts`: string or binary; null is as the empty text."""
    compiled = library()
    if compiled is None or not len(texts):
        return np.array([crc32(text or b"") for text in texts.cast(pa.binary()).to_pylist()], np.uint64)
    hashes = np.empty(len(texts), np.uint64)
    compiled.text_hashes(*text_buffers(texts), len(texts), hashes.ctypes.data)
    if texts.null_count:  # whatever lies in its place
        hashes[texts.is_null().to_numpy(zero_copy_only=False)] = NO_TEXT
    return hashes
