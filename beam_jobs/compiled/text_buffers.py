"""Where Arrow keeps the texts of a column, as compiled functions are told."""

import numpy as np
import pyarrow as pa

_OFFSET_BYTES = np.dtype(np.int32).itemsize


def text_buffers(texts: pa.Array) -> tuple[int | None, int]:
    """(address of the bytes, None where there are none; address of the first text's offset, int32).

    `texts`: string or binary, with at least one row; it must outlive what is returned.
    """
    _, offsets, data = texts.buffers()
    return data.address if data else None, offsets.address + texts.offset * _OFFSET_BYTES
