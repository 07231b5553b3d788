"""A tower's parameters as one matrix: a row for each trigram (W of eq. 1 and 2), then all its other parts.

A model with word vectors has more rows in W: after the trigrams', one for each known word (WordRows).

Each part (W_rec, b, ...) is laid out flat, row after row of the matrix, and padded with zeros to a whole row; the
gradient of the padding is zero, so it stays zero. In one matrix, every operation on parameters (catching up, stepping,
adding gradients over workers, norms, checkpoints) is an operation on rows and is written once.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch.nn.functional import pad

from clicktower.schemas.errors import UsageError
from clicktower.schemas.process import memory_bytes
from clicktower.schemas.section import code_of
from clicktower.training.model.model_folder import NO_OUTPUTS, Outputs
from clicktower.training.model.recipe import Recipe
from clicktower.training.towers.text_table import WordRows
from clicktower.training.towers.tower_settings import GatedRecurrent, Recurrent, Shapes

if TYPE_CHECKING:
    from clicktower.training.towers.tower import Tower


class Layer(Protocol):
    """What an objective adds to the tower: a head above it, or a decoder.

    Its parts are in the tower's matrix after the tower's own, so every operation on parameters includes them.
    """

    @property
    def parts(self) -> Shapes: ...

    def initial(self, generator: np.random.Generator) -> Mapping[str, torch.Tensor]:
        """Initial values of the parts, float64, drawn in their order."""


def tower_of(recipe: Recipe) -> "Tower":
    """A recipe's tower, above word vectors if it has some."""
    tower: Tower = code_of(recipe.tower)(recipe.tower)
    if not recipe.word_vectors:
        return tower
    from clicktower.training.towers.tower import Projected

    return Projected(tower)


RECURRENT = {"W_rec", "b", "W_peep"}  # a recurrent tower's parts besides W
DTYPES = {"float32": torch.float32, "float64": torch.float64}
_BLOCK_ROWS = 1024


Parts = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class RowGradient:
    """The gradient of one tower: of some rows of W (ascending, none twice; zero elsewhere), and of all parts."""

    rows: torch.Tensor
    table_RG: torch.Tensor
    parts: Parts


# Of a micro-batch: the gradient of each side's tower, by its name, and the loss.
LossGradient = tuple[list[tuple[str, RowGradient]], torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the parameters of a recipe's tower are in its matrix [rows, columns]."""

    recipe: Recipe
    word_rows: WordRows  # the meaning of the rows of W
    outputs: Outputs = NO_OUTPUTS  # of the objective's parts

    @property
    def columns(self) -> int:
        return self.recipe.columns

    @cached_property
    def layer(self) -> Layer | None:
        """The layer of the objective for these outputs; None if there are none."""
        has_outputs = self.outputs.classes or self.outputs.vocabulary
        return resolve_name(self.recipe.objective.layer)(self.recipe, self.outputs) if has_outputs else None

    @cached_property
    def parts(self) -> Shapes:
        """The tower's, then the objective's."""
        return self.recipe.tower_parts + (self.layer.parts if self.layer else ())

    @property
    def table_rows(self) -> int:
        """Of W."""
        return self.word_rows.num_rows

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of all parameters, W among them."""
        return {"W": (self.table_rows, self.columns), **dict(self.parts)}

    @property
    def part_rows(self) -> int:
        return sum(self.rows_of(shape) for _, shape in self.parts)

    @property
    def rows(self) -> int:
        return self.table_rows + self.part_rows

    @property
    def rows_of_parts(self) -> slice:
        return slice(self.table_rows, self.rows)

    def trained(self, table_rows: torch.Tensor) -> torch.Tensor:
        """The rows among some rows of W, ascending, that training moves: the first ones."""
        words = self.recipe.word_vectors
        is_moved = words is None or words.kind != "frozen"
        return table_rows if is_moved else table_rows[table_rows < self.word_rows.trigram_rows]

    def touched(self, table_rows: torch.Tensor) -> torch.Tensor:
        """The matrix rows that a batch touching these rows of W touches: those, and all rows of the parts."""
        part_rows = torch.arange(self.table_rows, self.rows, device=table_rows.device)
        return torch.cat([table_rows, part_rows])

    def step_of(self, part: str) -> float:
        """ε of a part."""
        tower = self.recipe.tower
        recurrent = (isinstance(tower, Recurrent) and tower.recurrent_step) or 0.0
        return (part in RECURRENT and recurrent) or self.recipe.optimiser.step

    def stretches(self, num_rows: int) -> list[tuple[int, int, float]]:
        """(first, last, ε) of the rows that a batch touches, `num_rows` with those of the parts, and their step
        sizes.
        """
        last = num_rows - self.part_rows
        ranges = [(0, last, self.recipe.optimiser.step)]
        for name, shape in self.parts:
            first, last, step = last, last + self.rows_of(shape), self.step_of(name)
            if step == ranges[-1][2]:
                ranges[-1] = (ranges[-1][0], last, step)
            else:
                ranges.append((first, last, step))
        return ranges

    def split(self, matrix: torch.Tensor) -> tuple[torch.Tensor, Parts]:
        """(W or the touched rows of it, each part in its own shape) as views of a contiguous matrix."""
        num_table_rows = len(matrix) - self.part_rows
        return matrix[:num_table_rows], self.split_parts(matrix[num_table_rows:])

    def split_parts(self, matrix: torch.Tensor) -> Parts:
        """Each part in its own shape as a view of the rows of all parts."""
        parts, row = {}, 0
        for name, shape in self.parts:
            flat = matrix[row : row + self.rows_of(shape)].view(-1)
            parts[name] = flat[: math.prod(shape)].view(shape)
            row += self.rows_of(shape)
        return parts

    def arrays(self, matrix: torch.Tensor) -> dict[str, np.ndarray]:
        """As `split`, of a matrix on the CPU, as NumPy's views by name."""
        table, parts = self.split(matrix)
        return {name: part.numpy() for name, part in {"W": table, **parts}.items()}

    def join(self, table: torch.Tensor, parts: Parts) -> torch.Tensor:
        """The matrix of W, or some rows of it, and all parts: the inverse of `split`."""
        flat = (parts[name].reshape(-1) for name, _ in self.parts)
        return torch.cat([table, *(pad(f, (0, -len(f) % self.columns)).view(-1, self.columns) for f in flat)])

    def rows_of(self, shape: tuple[int, ...]) -> int:
        """The matrix rows of a part."""
        return -(-math.prod(shape) // self.columns)


def layout_of(recipe: Recipe, table_rows: int) -> Layout:
    """Without words that have a row of their own, and without outputs. `table_rows`: of letter trigrams."""
    return Layout(recipe=recipe, word_rows=WordRows(table_rows))


def training_bytes(layout: Layout) -> int:
    """The memory that the parameters of a training take at least: with the optimiser's, and a tower that is written."""
    recipe = layout.recipe
    kept = recipe.optimiser.matrices * len(recipe.objective.towers) + 1
    return kept * layout.rows * layout.columns * DTYPES[recipe.dtype].itemsize


def require_memory(layout: Layout, workers: int = 1) -> None:
    """Raise UsageError if `workers` processes that train a recipe do not fit in the memory of this machine."""
    recipe, needed, there = layout.recipe, workers * training_bytes(layout), memory_bytes()
    if needed <= there:
        return

    def is_too_large(cells: int) -> bool:
        with_cells = replace(layout, recipe=replace(recipe, tower=replace(recipe.tower, cells=cells)))
        return workers * training_bytes(with_cells) > there

    fits = bisect_left(range(1, recipe.tower.cells), True, key=is_too_large)
    smaller = f"Set tower.cells to at most {fits:,}" if fits else "Set smaller sizes in the recipe, or fewer table_rows"
    raise UsageError(
        f"To train {recipe.name} with {workers} worker{'s' * (workers > 1)} takes {needed / 1e9:,.1f} GB of memory for"
        f" its parameters and the optimiser's, and this machine has {there / 1e9:,.1f} GB.",
        f"{smaller}, or train on a machine with more memory.",
    )


def initial_parameters(
    layout: Layout, name: str, row_weights: np.ndarray | None = None, word_vectors: np.ndarray | None = None
) -> torch.Tensor:
    """Uniform in ±initial_range, a function of the seed alone, or of it and the tower's name: [rows, columns].

    W_rec, b and W_peep start in ±recurrent_range if that is set; b of the forget gate is shifted by forget_bias. Parts
    beside the tower have their own start (`initial`), from numbers of their own.

    `row_weights`: float32 [rows of W], a factor for each row (rarity); None: 1. `word_vectors`: float32 [words,
    columns], the start of the words' rows. W_in starts uniform in ±√(6 / (rows + columns)) (Glorot and Bengio, AISTATS
    2010, eq. 16), independent of initial_range: the inner tower's inputs are then as large as the vectors.

    Two towers with the same start give two texts with the same words the same embedding before the first update: cosine
    begins as a measure of shared trigrams, not as noise that clicks must first undo.
    """
    recipe = layout.recipe
    stream = 0 if recipe.clicks.same_start else ("query", "document", "shared").index(name)
    drawn = np.random.Generator(np.random.Philox(key=np.array([recipe.seed, stream], np.uint64)))
    matrix = torch.empty(layout.rows, layout.columns, dtype=DTYPES[recipe.dtype])
    for block in matrix.split(_BLOCK_ROWS):  # a whole matrix of random numbers would take twice its memory
        block.copy_(torch.from_numpy((2 * drawn.random(block.shape) - 1) * recipe.initial_range))
    if row_weights is not None:
        matrix[: layout.table_rows] *= torch.from_numpy(row_weights).to(matrix.dtype)[:, None]
    if word_vectors is not None:
        matrix[layout.word_rows.trigram_rows : layout.table_rows] = torch.from_numpy(word_vectors).to(matrix.dtype)
    table_RG, parts = layout.split(matrix)
    if "W_in" in parts:
        parts["W_in"] *= math.sqrt(6 / sum(parts["W_in"].shape)) / recipe.initial_range
    tower = recipe.tower
    if isinstance(tower, Recurrent) and tower.recurrent_range:
        for part in RECURRENT & parts.keys():
            parts[part] *= tower.recurrent_range / recipe.initial_range
    if isinstance(tower, GatedRecurrent) and tower.forget_bias:
        # b is gates (o, f, i, y_g) times cells, of each direction.
        parts["b"].view(-1, 4, tower.cells)[:, 1] += tower.forget_bias
    if layout.layer:
        numbers = np.random.Generator(np.random.Philox(key=np.array([recipe.seed, 1 << 62], np.uint64)))
        parts = {**parts, **{part: values.to(matrix.dtype) for part, values in layout.layer.initial(numbers).items()}}
    return layout.join(table_RG, parts)  # the padding has no random numbers


# Where a run computes, and all parameters of a model at one point (forward: texts through its towers).
#
#     open_device("cuda")    the device of a request, on this process's GPU (training.trainer.gpu_check)
#
# A run computes on the CPU, or on a CUDA GPU with the recurrence step by step (eager) or in fused kernels. Float32 sums
# depend on the order of addition, so each of the three is an arithmetic of its own. Within one of them (and one kind of
# GPU, one build of torch and Triton) a model's bytes do not depend on the number of workers or threads or on restarts,
# given exact reduction; between them models agree to a tolerance.


@dataclass(frozen=True, slots=True)
class Device:
    """Where tensors are, and what computes the recurrence."""

    place: torch.device
    fused: bool = False

    def tower(self, recipe: Recipe) -> "Tower":
        """A recipe's tower on this device. The kernels know float32; everything else is computed eagerly."""
        tower = tower_of(recipe)
        if not self.fused or recipe.dtype != "float32":
            return tower
        from clicktower.training.towers.gpu_recurrent import fused  # imports Triton, which no other run needs

        return fused(tower)


CPU = Device(torch.device("cpu"))


@dataclass(frozen=True, slots=True)
class Encoder:
    """All parameters at one point: where a gradient is taken, the published Λ, or a model's.

    `table_at(name, rows)` gives some rows [R, G] of a tower's W; `parts` are its other parameters.
    """

    layout: Layout
    table_at: Callable[[str, torch.Tensor], torch.Tensor]
    parts: Mapping[str, Parts]
    device: Device = CPU

    @staticmethod
    def of(layout: Layout, towers: Mapping[str, torch.Tensor], device: Device = CPU) -> "Encoder":
        """Of whole matrices [rows, G], by the towers' names."""
        split = {name: layout.split(matrix) for name, matrix in towers.items()}
        parts = {name: parts for name, (_, parts) in split.items()}
        return Encoder(layout, lambda name, rows: split[name][0].index_select(0, rows), parts, device)

    @staticmethod
    def of_arrays(layout: Layout, towers: Mapping[str, Mapping[str, np.ndarray]]) -> "Encoder":
        """Of the towers of a model, by their names."""
        tensors = {name: {p: torch.from_numpy(array) for p, array in parts.items()} for name, parts in towers.items()}
        tables = {name: parts.pop("W") for name, parts in tensors.items()}
        return Encoder(layout, lambda name, rows: tables[name].index_select(0, rows), tensors)
