"""Recurrent towers on the compiled path: texts to embeddings, many at once over all cores, or one in microseconds.

The reference is encoder. Float32; both ways give a text the same bits, whatever else is in the batch, on any thread.

Shapes: R rows of W, G columns, N texts, D states of both directions, h dimensions of a distribution.
"""

import ctypes
import os
from collections.abc import Mapping

import numpy as np
import torch

from schemas.text_contract import words
from training.compute.threads import compute_threads
from training.data.text_batch import Ragged, TextTable
from training.kernel.kernel_library import Owned, fields, library, require_memory, serves
from training.kernel.kernel_texts import CHUNK_TEXTS, BatchIndex, kernel_batch
from training.network.parameters import Layout, tower_name
from training.recipes.recipe import Recipe
from training.recipes.towers import BiLSTM, GatedRecurrent, Variational
from training.towers.bilstm import SIGMA_MIN

BOTH_WAYS = (BiLSTM, Variational)  # towers that read a text from left to right and from right to left
# Texts of one batch: the more, the more words they share; the fewer, the more evenly threads share them out.
MOST_TEXTS = 2_048
BATCHES_OF_A_THREAD = 8
SHORT_BYTES = 4_096  # of a text whose words are not worth counting first


class _Cell(ctypes.Structure):
    _fields_ = fields(cells="i", is_lstm="i", forget_gate="i", peepholes="i")


class TowerStruct(ctypes.Structure):
    _fields_ = fields(weights="p", table="p", place="p")


class TowerPoint:
    """A tower at one point of parameter space, as the kernels read it: its parts packed, its table where it is.

    `table_RG`: rows of W, float32 and contiguous. `place`, int32 [table rows]: which of them is a trigram's; None:
    the trigram's id.
    """

    __slots__ = ("_kept", "dimensions", "struct")

    def __init__(
        self, recipe: Recipe, table_RG: torch.Tensor, parts: Mapping[str, torch.Tensor], place: np.ndarray | None = None
    ) -> None:
        assert table_RG.dtype == torch.float32
        assert table_RG.is_contiguous()
        tower, directions = recipe.tower, 2 if isinstance(recipe.tower, BOTH_WAYS) else 1
        cell = _Cell(tower.cells)
        if isinstance(tower, GatedRecurrent):
            cell = _Cell(tower.cells, True, tower.forget_gate, tower.peepholes)
        dense = [parts[name].contiguous() for name in ("W_rec", "b", "W_peep") if name in parts]
        pointers = [part.data_ptr() for part in dense] + [None] * (3 - len(dense))
        made = library().weights_new(ctypes.byref(cell), directions, *pointers)
        weights = Owned("weights", made, f"a tower of {tower.cells:,} cells")
        self._kept = (weights, table_RG, place)
        self.dimensions = tower.cells * directions
        self.struct = TowerStruct(weights.handle, table_RG.data_ptr(), None if place is None else place.ctypes.data)

    def encode(self, batch: BatchIndex, out_Nd: np.ndarray) -> None:
        """Write the embeddings of a batch's texts to `out_Nd`, float32, contiguous."""
        done = library().tower_encode(ctypes.byref(self.struct), batch.handle, out_Nd.ctypes.data)
        require_memory(done >= 0, f"{batch.num_texts:,} texts in a tower of {self.dimensions:,} dimensions")


class CompiledTower:
    """A compiled tower with fixed parameters that encodes texts."""

    def __init__(self, recipe: Recipe, layout: Layout, matrix: torch.Tensor, place: np.ndarray | None = None) -> None:
        """`matrix`: all parameters (parameters), which are read where they are. `place`: as of TowerPoint."""
        table_RG, parts = layout.split(matrix)
        self._point = point = TowerPoint(recipe, table_RG, parts, place)
        self._above = Distribution(parts) if isinstance(recipe.tower, Variational) else None
        self._both_directions = isinstance(recipe.tower, BOTH_WAYS)
        self._read = layout.table_rows, recipe.max_words, recipe.overflow == "merge"
        self._address = ctypes.addressof(point.struct)
        self._text_encode = library().text_encode

    def encode(self, table: TextTable) -> np.ndarray:
        """The embeddings of all texts of a table, float32 [texts, dimensions]; zero for a text without a word."""
        states = np.zeros((len(table), self._point.dimensions), np.float32)
        vectors = np.zeros((len(table), self._above.dimensions), np.float32) if self._above else states
        order = _alike(table.words)

        def encode_some(start: int) -> None:
            index = order[start : start + size]
            batch = kernel_batch(
                [(table, index)], place=index,
                for_gradient=False, both_directions=self._both_directions, share_prefixes=True,
            )  # fmt: skip
            self._point.encode(batch, states)
            if self._above:
                vectors[index] = self._above(states[index])

        num_threads = len(os.sched_getaffinity(0))
        chunks = -(-len(order) // (num_threads * BATCHES_OF_A_THREAD * CHUNK_TEXTS))
        size = min(max(chunks, 1) * CHUNK_TEXTS, MOST_TEXTS)
        batches = range(0, len(order), size)
        if len(batches) == 1:  # not worth a pool
            encode_some(0)
        elif batches:
            with compute_threads(min(len(batches), num_threads)) as threads:
                list(threads.map(encode_some, batches))
        return vectors

    def encode_short(self, text: str) -> np.ndarray | None:
        """The embedding of a text, float32 [1, dimensions]; None where it has no word, or is not short."""
        ascii_text = text.isascii()
        line = text.encode() if ascii_text else " ".join(words(text)).encode("utf-8", "surrogatepass")
        if len(line) > SHORT_BYTES:
            return None
        vector = np.empty((1, self._point.dimensions), np.float32)
        found = self._text_encode(self._address, line, len(line), not ascii_text, *self._read, vector.ctypes.data)
        if found <= 0:
            require_memory(not found, f"a text of {len(line):,} bytes")
            return None
        return self._above(vector) if self._above else vector


def compiled_towers(
    recipe: Recipe, layout: Layout, towers: Mapping[str, torch.Tensor]
) -> Mapping[str, CompiledTower] | None:
    """For each side its tower; None where the kernels do not serve them."""
    if not serves(recipe):
        return None
    return {side: CompiledTower(recipe, layout, towers[tower_name(recipe, side)]) for side in ("query", "document")}


def _alike(texts: Ragged) -> np.ndarray:
    """The texts that have a word, int64, ordered so that texts with the same first words are neighbours.

    A batch then shares prefixes; three words distinguish most texts, and the order changes no vector.
    """
    some = np.flatnonzero(texts.lengths)
    first, last = texts.offsets[some], texts.offsets[some + 1] - 1
    keys = np.zeros(len(some), np.int64)
    for place in range(3):
        keys = (keys << 21) + (texts.values[np.minimum(first + place, last)] & 0x1FFFFF)
    return some[np.argsort(keys)]


class Distribution:
    """States -> μ and σ concatenated, one text at a time, so that its bits do not depend on the rest of the batch.

    The variational tower's means and deviations (bilstm), above the states that the kernels give.
    """

    def __init__(self, parts: Mapping[str, torch.Tensor]) -> None:
        self._weights_De = np.concatenate([parts["W_mu"].numpy(), parts["W_sigma"].numpy()], axis=1)
        self._bias_e = np.concatenate([parts["b_mu"].numpy(), parts["b_sigma"].numpy()])
        self.dimensions = len(self._bias_e)

    def __call__(self, state_ND: np.ndarray) -> np.ndarray:
        """float32 [N, 2 h]."""
        found_Ne = np.matmul(state_ND[:, None, :], self._weights_De)[:, 0] + self._bias_e
        argument_Nh = found_Ne[:, self.dimensions // 2 :]
        argument_Nh[:] = np.logaddexp(argument_Nh, np.float32(0)) + np.float32(SIGMA_MIN)
        return found_Ne
