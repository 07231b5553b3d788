"""numpy arrays over memory that belongs to the kernels."""

import ctypes
from typing import Any

import numpy as np

_CTYPES: dict[Any, Any] = {np.int32: ctypes.c_int32, np.int64: ctypes.c_int64, np.uint32: ctypes.c_uint32}


def view(owner: object, address: int | None, length: int, dtype: Any) -> np.ndarray:
    """`length` numbers at an address, read only and without a copy; `owner` lives as long as the array does."""
    if not length:
        return np.empty(0, dtype)
    memory = (_CTYPES[dtype] * length).from_address(address)
    memory.owner = owner
    array = np.frombuffer(memory, dtype)
    array.flags.writeable = False
    return array
