"""The logical digest of many rows (schemas.shard.LogicalDigest), compiled."""

import numpy as np
import pyarrow as pa

from beam_jobs.compiled.library import library
from schemas.shard import LogicalDigest


def row_digest(rows: pa.Array | pa.ChunkedArray, *, plain: bool = False) -> str:
    """The hexdigest of a LogicalDigest of these texts. `rows`: string or binary, without nulls.

    `plain`: without the processor's instructions for SHA-256, where there are any.
    """
    rows = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
    compiled = library()
    if compiled is None or not len(rows):
        digest = LogicalDigest()
        digest.add(rows.cast(pa.binary()).to_pylist())
        return digest.hexdigest()
    _, offsets, data = rows.buffers()
    sums = np.zeros(8, np.uint64)
    begin = offsets.address + rows.offset * np.dtype(np.int32).itemsize
    compiled.row_digests(data.address if data else None, begin, len(rows), plain, sums.ctypes.data)
    return f"{sum(word << (32 * (7 - place)) for place, word in enumerate(sums.tolist())) % (1 << 256):064x}"
