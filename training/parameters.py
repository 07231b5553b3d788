"""A tower's parameters as one matrix: a row for each trigram (W of eq. 1 and 2), then W_rec row by row, then b.

W, W_rec and b have the same columns (gates times cells). In one matrix, everything that is done to parameters (catching
up, stepping, adding gradients over workers, norms, checkpoints) is done to rows and written once.
"""

from dataclasses import dataclass

import numpy as np
import torch

from training.recipes import Recipe
from training.towers import tower_of

DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    table_rows: int
    cells: int
    columns: int

    @property
    def rows(self) -> int:
        return self.table_rows + self.cells + 1

    def touched(self, trigram_rows: torch.Tensor) -> torch.Tensor:
        """The matrix rows that a batch touching these rows of W touches: those, all of W_rec, and b."""
        rest = torch.arange(self.table_rows, self.rows, device=trigram_rows.device)
        return torch.cat([trigram_rows, rest])

    def split(self, matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(W or the touched rows of it, W_rec [cells, columns], b [columns]) as views."""
        return matrix[: -self.cells - 1], matrix[-self.cells - 1 : -1], matrix[-1]


def layout_of(recipe: Recipe, table_rows: int) -> Layout:
    return Layout(table_rows=table_rows, cells=recipe.cells, columns=tower_of(recipe).columns)


def tower_names(recipe: Recipe) -> tuple[str, ...]:
    """The parameter sets a recipe trains: Λ_Q and Λ_D, or one that both sides share."""
    return ("shared",) if recipe.tie_towers else ("query", "document")


def tower_name(recipe: Recipe, side: str) -> str:
    """The parameter set that encodes a side, `query` or `document`."""
    return "shared" if recipe.tie_towers else side


def initial_parameters(recipe: Recipe, layout: Layout, name: str) -> torch.Tensor:
    """Uniform in ±initial_range, a function of the seed alone, or of it and the tower's name: [rows, columns].

    Two towers with the same start give two texts of the same words the same embedding before the first update: cosine
    begins as a measure of shared trigrams, not as noise that clicks must first undo.
    """
    stream = 0 if recipe.same_start else ("query", "document", "shared").index(name)
    key = [recipe.seed, stream]
    uniform = np.random.Generator(np.random.Philox(key=np.array(key, np.uint64))).random((layout.rows, layout.columns))
    return torch.from_numpy((2 * uniform - 1) * recipe.initial_range).to(DTYPES[recipe.dtype])
