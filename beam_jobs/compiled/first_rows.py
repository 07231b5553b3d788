"""The first row of each line hash, compiled."""

import numpy as np
import pyarrow as pa

from beam_jobs.compiled.library import library
from schemas.log_row import LOG_ROW

_HASH = LOG_ROW.field("line_hash").type


def first_rows(hashes: pa.Array) -> np.ndarray:
    """For each row whether it is the first with its hash, bool [rows]. `hashes`: LOG_ROW's line_hash, without nulls."""
    is_first = np.zeros(len(hashes), bool)
    compiled = library()
    begin = hashes.buffers()[1].address + hashes.offset * _HASH.byte_width if len(hashes) else None
    if compiled is not None and compiled.first_rows(begin, len(hashes), is_first.ctypes.data):
        return is_first
    codes = hashes.dictionary_encode().indices.to_numpy(zero_copy_only=False)  # in order of appearance
    is_first[np.flatnonzero(np.diff(np.maximum.accumulate(codes), prepend=-1))] = True
    return is_first
