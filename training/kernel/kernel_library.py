"""Loading of the compiled kernels, once, or the reason why they are not available.

The package's own build makes one shared library of the C++ files here (pyproject.toml), without Python's or torch's
headers; it is optional, so that an install without a compiler succeeds. Everything compiled has a reference in Python.
"""

import ctypes
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from schemas.process import load_compiled

# Raised with every change of what the C++ functions take or give: a library built before is not called.
INTERFACE = 9
_NAME = "training.kernel._kernel"


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """The status of the compiled path in this process: its instruction set, or why it is not available."""

    available: bool
    instructions: str  # avx512, avx2, generic, or "" where it is not available
    reason: str  # a sentence


def library() -> ctypes.CDLL:
    """The shared library. Raises RuntimeError, with `status().reason`, where it is not available."""
    found, reason = _loaded()
    if found is None:
        raise RuntimeError(reason)
    return found


def require_memory(is_there: bool, what: str) -> None:
    """Raise MemoryError if a kernel reported that there is none for `what`."""
    if not is_there:
        raise MemoryError(f"there is no memory for {what}")


@cache
def status() -> Status:
    found, reason = _loaded()
    instructions = found.kernel_instructions().decode() if found else ""
    return Status(available=found is not None, instructions=instructions, reason=reason)


def fma_peak(seconds: float = 0.2) -> float:
    """The peak of fused multiply-adds on one thread with the instruction set in use, in GFLOP/s."""
    return library().kernel_fma_peak(seconds)


@cache
def _loaded() -> tuple[ctypes.CDLL | None, str]:
    found, reason = load_compiled(_NAME, "kernel_interface", INTERFACE)
    if found is None:
        return None, reason
    found.kernel_instructions.restype = ctypes.c_char_p
    found.kernel_choose.argtypes, found.kernel_choose.restype = (ctypes.c_char_p,), ctypes.c_int32
    found.kernel_fma_peak.argtypes, found.kernel_fma_peak.restype = (ctypes.c_double,), ctypes.c_double
    if not (instructions := found.kernel_instructions().decode()):
        return None, (
            "this processor has neither AVX-512 nor AVX2 with fused multiply-add, "
            "or not what CLICKTOWER_INSTRUCTIONS names"
        )
    return found, f"compiled with the package, running with {instructions}"


_CTYPES: dict[Any, Any] = {np.int32: ctypes.c_int32, np.int64: ctypes.c_int64, np.uint32: ctypes.c_uint32}


def view(owner: object, address: int | None, length: int, dtype: Any) -> np.ndarray:
    """A read-only array of `length` numbers at an address, without a copy; `owner` lives as long as the array."""
    if not length:
        return np.empty(0, dtype)
    memory = (_CTYPES[dtype] * length).from_address(address)
    memory.owner = owner
    array = np.frombuffer(memory, dtype)
    array.flags.writeable = False
    return array
