"""Named arrays as the bytes of a safetensors file and back, without a second copy of them in memory.

safetensors' own functions make the whole file beside the arrays, twice. Of a model of gigabytes and its velocity that
decides which machine can train it.
"""

import json
from collections.abc import Mapping

import numpy as np

# In the order in which safetensors lays arrays out, so that a file has the bytes that it would give it.
_TYPES = {"int64": "I64", "float64": "F64", "float32": "F32", "int32": "I32"}
_LENGTH = 8  # bytes of the header's own length, and what the header is filled up to a multiple of


def pieces(arrays: Mapping[str, np.ndarray]) -> list[bytes | memoryview]:
    """The parts of a file of some arrays: its header, then the memory of each as it is.

    Raises KeyError for another type than 32 or 64 bits of integer or floating point.
    """
    types = {name: _TYPES[array.dtype.name] for name, array in arrays.items()}
    names = sorted(arrays, key=lambda name: (list(_TYPES.values()).index(types[name]), name))
    header, end = {}, 0
    for name in names:
        begin, end = end, end + arrays[name].nbytes
        header[name] = {"dtype": types[name], "shape": arrays[name].shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _LENGTH)
    return [len(text).to_bytes(_LENGTH, "little") + text, *(_bytes(arrays[name]) for name in names)]


def arrays_of(content: bytearray) -> dict[str, np.ndarray]:
    """The arrays of a file, as views of its bytes. Raises ValueError, KeyError or TypeError where they are damaged."""
    data = _LENGTH + int.from_bytes(content[:_LENGTH], "little")
    header = json.loads(content[_LENGTH:data])
    numpy_names = {written: name for name, written in _TYPES.items()}
    found = {}
    for name, entry in header.items():
        dtype, (begin, end) = np.dtype(numpy_names[entry["dtype"]]), entry["data_offsets"]
        flat = np.frombuffer(content, dtype, (end - begin) // dtype.itemsize, data + begin)
        found[name] = flat.reshape(entry["shape"])
    return found


def _bytes(array: np.ndarray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
