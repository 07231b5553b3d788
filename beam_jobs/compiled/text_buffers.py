"""Where Arrow keeps the texts of a column, as compiled functions are told."""

import numpy as np
import pyarrow as pa

_OFFSET_BYTES = np.dtype(np.int32).itemsize


def text_buffers(texts: pa.Array) -> tuple[int | None, int]:
    """(address of the bytes, None where there are none; address of the first text's offset, int32).

    `texts`: string or binary, with at least one row; it must outlive what is returned. Raises TypeError for others,
    whose offsets are twice as long.
    """
    if not (pa.types.is_string(texts.type) or pa.types.is_binary(texts.type)):
        raise TypeError(f"texts are to be string or binary, not {texts.type}")
    _, offsets, data = texts.buffers()
    return data.address if data else None, offsets.address + texts.offset * _OFFSET_BYTES
