"""Recurrent towers on the compiled path: a batch of texts to embeddings, a micro-batch to its gradient.

The reference is click_loss. Float32; one call is one thread's work, and gives the same bits on any thread.

Shapes: R rows of W, G columns, N texts, B pairs, C candidates with the clicked one first.
"""

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import torch

from training.kernel.kernel_batch import BatchIndex
from training.kernel.kernel_library import library, require_memory
from training.recipes.recipe import Recipe
from training.recipes.towers import BiLSTM, GatedRecurrent, Truncated, Variational

BOTH_WAYS = (BiLSTM, Variational)  # towers that read a text from left to right and from right to left


class _Cell(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int32) for name in ("cells", "is_lstm", "forget_gate", "peepholes"))


class _TowerPoint(ctypes.Structure):
    _fields_ = (("weights", ctypes.c_void_p), ("table", ctypes.c_void_p), ("place", ctypes.c_void_p))


class _PairTask(ctypes.Structure):
    _fields_ = (
        ("query", _TowerPoint),
        ("document", _TowerPoint),
        ("queries", ctypes.c_void_p),
        ("documents", ctypes.c_void_p),
        ("candidates", ctypes.c_void_p),
        ("pair_weights", ctypes.c_void_p),
        ("num_candidates", ctypes.c_int64),
        ("gamma", ctypes.c_float),
        ("max_steps", ctypes.c_int32),
        ("table_rows", ctypes.c_int64),
        ("num_shared", ctypes.c_int64),
        ("pair_ends", ctypes.c_void_p),
    )


class CompiledAddend(ctypes.Structure):
    """One side's gradient from one micro-batch, in its workspace's memory."""

    _fields_ = (("rows", ctypes.c_void_p), ("values", ctypes.c_void_p), ("num_rows", ctypes.c_int64))


@cache
def _library() -> ctypes.CDLL:
    loaded = library()
    pointer = ctypes.c_void_p
    loaded.weights_new.argtypes = (pointer, ctypes.c_int32, pointer, pointer, pointer)
    loaded.weights_new.restype = loaded.workspace_new.restype = pointer
    loaded.weights_free.argtypes = loaded.workspace_free.argtypes = (pointer,)
    loaded.weights_free.restype = loaded.workspace_free.restype = None
    loaded.tower_encode.argtypes, loaded.tower_encode.restype = (pointer, pointer, pointer), ctypes.c_int32
    loaded.pair_gradient.argtypes, loaded.pair_gradient.restype = (pointer, pointer), ctypes.c_double
    loaded.workspace_addend.argtypes = (pointer, ctypes.c_int32, pointer)
    loaded.workspace_addend.restype = None
    return loaded


class TowerPoint:
    """A tower at one point of parameter space, as the kernels read it: its parts packed, its table where it is.

    `table_RG`: rows of W, float32 and contiguous. `place`, int32 [table rows]: which of them is a trigram's; None:
    the trigram's id.
    """

    __slots__ = ("__weakref__", "_kept", "dimensions", "struct")

    def __init__(
        self, recipe: Recipe, table_RG: torch.Tensor, parts: Mapping[str, torch.Tensor], place: np.ndarray | None = None
    ) -> None:
        assert table_RG.dtype == torch.float32
        assert table_RG.is_contiguous()
        tower, directions = recipe.tower, 2 if isinstance(recipe.tower, BOTH_WAYS) else 1
        gates = (
            (True, tower.forget_gate, tower.peepholes) if isinstance(tower, GatedRecurrent) else (False, False, False)
        )
        cell = _Cell(tower.cells, *gates)
        dense = [parts[name].contiguous() for name in ("W_rec", "b", "W_peep") if name in parts]
        pointers = [part.data_ptr() for part in dense] + [None] * (3 - len(dense))
        weights = _library().weights_new(ctypes.byref(cell), directions, *pointers)
        require_memory(bool(weights), f"a tower of {tower.cells:,} cells")
        weakref.finalize(self, _library().weights_free, weights).atexit = False
        self._kept = (table_RG, place)
        self.dimensions = tower.cells * directions
        self.struct = _TowerPoint(weights, table_RG.data_ptr(), None if place is None else place.ctypes.data)

    def encode(self, batch: BatchIndex, out_Nd: np.ndarray) -> None:
        """Write the embeddings of a batch's texts to `out_Nd`, float32, contiguous."""
        done = _library().tower_encode(ctypes.byref(self.struct), batch.handle, out_Nd.ctypes.data)
        require_memory(done >= 0, f"{batch.num_texts:,} texts in a tower of {self.dimensions:,} dimensions")


class Workspace:
    """Reusable memory for the gradient of one micro-batch at a time."""

    __slots__ = ("__weakref__", "handle")

    def __init__(self) -> None:
        self.handle = _library().workspace_new()
        require_memory(bool(self.handle), "a gradient")
        weakref.finalize(self, _library().workspace_free, self.handle).atexit = False

    def pair_gradient(
        self,
        recipe: Recipe,
        points: Sequence[TowerPoint],
        batches: Sequence[BatchIndex],
        candidates_BC: np.ndarray,
        weights_B: np.ndarray | None,
        table_rows: int,
        num_shared: int,
        pair_ends: np.ndarray,
    ) -> float:
        """The sum of the pairs' losses; the gradient stays here until the next call.

        `points` and `batches`: of queries, then of documents. `candidates_BC`: int32, -1 where there is none.
        `num_shared` and `pair_ends`, int64: which documents are of which pairs (interface.h).
        """
        assert isinstance(recipe.tower, Truncated)
        task = _PairTask(
            points[0].struct,
            points[1].struct,
            batches[0].handle,
            batches[1].handle,
            candidates_BC.ctypes.data,
            None if weights_B is None else weights_B.ctypes.data,
            candidates_BC.shape[1],
            recipe.clicks.gamma,
            recipe.tower.truncate_steps,
            table_rows,
            num_shared,
            pair_ends.ctypes.data,
        )
        loss = _library().pair_gradient(self.handle, ctypes.byref(task))
        require_memory(loss != -1, f"the gradient of {len(candidates_BC):,} pairs")
        return loss

    def addend(self, side: int) -> CompiledAddend:
        """The gradient of the queries' tower (0) or the documents' (1)."""
        found = CompiledAddend()
        _library().workspace_addend(self.handle, side, ctypes.byref(found))
        return found

    def largest(self, side: int, columns: int) -> float:
        """The largest absolute value of that gradient; infinite or NaN if one is not finite."""
        addend = self.addend(side)
        values = (ctypes.c_float * (addend.num_rows * columns)).from_address(addend.values)
        return float(np.abs(np.frombuffer(values, np.float32)).max())
