"""Loads the compiled kernels once, or says why they are not available.

The package's own build makes one shared library of the C++ files here (pyproject.toml), without Python's or torch's
headers; it is optional, so that an install without a compiler succeeds. All compiled code has a reference in Python.
"""

import ctypes
import weakref
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from clicktower.schemas.process import load_compiled

# Incremented with every change of the C++ interface: an older library is not called.
INTERFACE = 13
_NAME = "clicktower.training.kernel._kernel"

# A function's result and arguments, a letter each: p a pointer, s bytes, i and q integers of 32 and 64 bits, Q an
# unsigned one, f and d floats of 32 and 64 bits.
_LETTERS: dict[str, Any] = {
    "p": ctypes.c_void_p, "s": ctypes.c_char_p, "i": ctypes.c_int32, "q": ctypes.c_int64, "Q": ctypes.c_uint64,
    "f": ctypes.c_float, "d": ctypes.c_double,
}  # fmt: skip
_FUNCTIONS = {
    "kernel_instructions": ("s", ""),
    "kernel_choose": ("i", "s"),
    "kernel_fma_peak": ("d", "d"),
    "find_not_ascii": ("q", "ppqp"),
    "tokens_new": ("p", "ppqpppqQ"),
    "tokens_free": ("", "p"),
    "tokens_array": ("p", "pip"),
    "batch_new": ("p", "pqpiiip"),
    "batch_free": ("", "p"),
    "batch_array": ("p", "pip"),
    "weights_new": ("p", "pippp"),
    "weights_free": ("", "p"),
    "tower_encode": ("i", "ppp"),
    "text_encode": ("i", "psqiqiip"),
    "workspace_new": ("p", ""),
    "workspace_free": ("", "p"),
    "workspace_addend": ("", "pip"),
    "crew_new": ("p", "i"),
    "crew_free": ("", "p"),
    "pair_gradients": ("i", "pppqp"),
    "rows_make": ("i", "ppqi"),
    "nearest_candidates": ("q", "ppppqqppp"),
    "postings_best": ("q", "ppqppp"),
    "postings_scores": ("", "pppqp"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """The status of the compiled path in this process: its instruction set, or why it is not available."""

    available: bool
    instructions: str  # avx512, avx2, generic, or "" if it is not available
    reason: str  # a sentence


@cache
def status() -> Status:
    kernel, reason = _loaded()
    instructions = kernel.kernel_instructions().decode() if kernel else ""
    return Status(available=kernel is not None, instructions=instructions, reason=reason)


def library() -> ctypes.CDLL:
    """The shared library. Raises RuntimeError, with `status().reason`, if it is not available."""
    kernel, reason = _loaded()
    if kernel is None:
        raise RuntimeError(reason)
    return kernel


@cache
def _loaded() -> tuple[ctypes.CDLL | None, str]:
    kernel, reason = load_compiled(_NAME, "kernel_interface", INTERFACE)
    if kernel is None:
        return None, reason
    for name, (gives, takes) in _FUNCTIONS.items():
        function = getattr(kernel, name)
        function.restype = _LETTERS[gives] if gives else None
        function.argtypes = [_LETTERS[letter] for letter in takes]
    if not (instructions := kernel.kernel_instructions().decode()):
        return None, (
            "this processor has neither AVX-512 nor AVX2 with fused multiply-add, "
            "or not what CLICKTOWER_INSTRUCTIONS names"
        )
    return kernel, f"compiled with the package, running with {instructions}"


def fields(**letters: str) -> Any:
    """The fields of a struct, from a letter for the type of each."""
    return tuple((name, _LETTERS[letter]) for name, letter in letters.items())


class Owned:
    """An object in the kernels' own memory, which is freed with this object (KIND_free)."""

    __slots__ = ("__weakref__", "_kind", "handle")

    def __init__(self, kind: str, handle: int | None, content: str) -> None:
        """Raises MemoryError if there is no memory for `content`."""
        require_memory(bool(handle), content)
        self._kind, self.handle = kind, handle
        weakref.finalize(self, getattr(library(), f"{kind}_free"), handle).atexit = False

    def numbers(self, which: int, dtype: Any) -> np.ndarray:
        """One of its arrays (KIND_array), read-only and without a copy; it keeps this object alive."""
        length = ctypes.c_int64()
        address = getattr(library(), f"{self._kind}_array")(self.handle, which, ctypes.byref(length))
        return np.asarray(_Numbers(self, address, length.value, dtype)) if length.value else np.empty(0, dtype)


class _Numbers:
    """Numbers in another object's memory, for NumPy: six times faster than a ctypes array of that length."""

    __slots__ = ("__array_interface__", "_owner")

    def __init__(self, owner: Owned, address: int, length: int, dtype: Any) -> None:
        self._owner = owner
        self.__array_interface__ = {
            "version": 3, "data": (address, True), "shape": (length,), "typestr": np.dtype(dtype).str,
        }  # fmt: skip


def require_memory(is_there: bool, purpose: str) -> None:
    """Raise MemoryError if a kernel ran out of memory."""
    if not is_there:
        raise MemoryError(f"there is no memory for {purpose}")
