"""What every objective is: shards become examples, micro-batches of examples a loss and its gradient.

    clicks      a clicked title against n unclicked ones (click_loss), the paper's
    classify    the class of a labelled text or pair of texts, by a head above the tower (training.model.head)
    generate    a text reconstructed, word by word, from the tower's output (training.model.decoder)

The order, the large update, checkpoints, workers and outputs are the same for all of them.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from clicktower.schemas.judgments import Judged
from clicktower.training.model.kernel_towers import CompiledTower, can_encode
from clicktower.training.model.model_folder import Outputs
from clicktower.training.model.parameters import CPU, Encoder
from clicktower.training.model.recipe import Recipe, tower_name
from clicktower.training.towers.text_table import TextTable, WordRows
from clicktower.training.trainer.large_update import LossBatch
from clicktower.training.trainer.shard_data import MicroBatch

Measured = dict[str, float | None]


class Watched(Protocol):
    """Held-out data, prepared once, measured after every epoch. It never chooses anything."""

    @property
    def source(self) -> str:
        """What was measured on, in words."""

    @property
    def table_rows(self) -> torch.Tensor:
        """The rows of W that its texts touch, ascending."""

    def measure(self, encoder: Encoder) -> Measured:
        """Figures by name, of held-out data beginning with `dev_`; None where there is nothing to measure on."""


class Task(Protocol):
    """The shards of an objective, prepared for a recipe."""

    @property
    def word_rows(self) -> WordRows: ...

    @property
    def outputs(self) -> Outputs: ...

    @property
    def lengths(self) -> Sequence[np.ndarray]:
        """For each training shard the words of each example: the sort key of the order."""

    @property
    def files(self) -> Sequence[str]:
        """The file whose rows each training shard's examples are."""

    def row_weights(self) -> np.ndarray | None:
        """The initial factor of each row of W, float32 [rows of W]; None: 1."""

    def examples(self, micro_batch: MicroBatch, epoch: int) -> Any:
        """A micro-batch's examples as indices, with everything that is drawn for them in an epoch."""

    def watched(self, judged: Judged | None) -> Watched: ...


class Objective(Protocol):
    def load(self, folder: str, recipe: Recipe, words: Sequence[str] = (), teacher: str | None = None) -> Task:
        """The shards in a folder of this machine; `words` have rows of their own (text_table.WordRows).

        `teacher`: a model folder or a file of vectors, for clicks alone.

        Raises StageError, UnknownVersionError.
        """

    def batch(self, examples: Any) -> LossBatch:
        """Examples laid out for the reference path. Raises ValueError for a text without words."""


def touched_rows(trigrams: Iterable[np.ndarray]) -> torch.Tensor:
    """The distinct rows among some parts, ascending, int64."""
    parts = [np.unique(part) for part in trigrams]
    return torch.from_numpy(np.unique(np.concatenate([np.zeros(0, np.int64), *parts])).astype(np.int64))


def encode_table(encoder: Encoder, table: TextTable, side: str) -> np.ndarray:
    """The embeddings of all texts of a table, float32 [texts, dimensions]; zero for a text without a word.

    The table's words are limited as the recipe says.
    """
    if can_encode(encoder.layout.recipe) and encoder.device == CPU:
        return _compiled(encoder, table, side).encode(table)
    from clicktower.training.model.forward import encode_in_torch

    return encode_in_torch(encoder, table, side)


def _compiled(encoder: Encoder, table: TextTable, side: str) -> CompiledTower:
    """A side's tower with the rows that the table's words have, wherever the encoder takes them from."""
    layout = encoder.layout
    used = np.zeros(layout.table_rows, bool)
    used[table.trigrams.values] = True
    rows = np.flatnonzero(used)
    place = np.zeros(layout.table_rows, np.int32)
    place[rows] = np.arange(len(rows))
    name = tower_name(layout.recipe, side)
    table_RG = encoder.table_at(name, torch.from_numpy(rows)).numpy()
    parts = {part: values.numpy() for part, values in encoder.parts[name].items()}
    return CompiledTower(layout.recipe, table_RG, parts, table_rows=layout.table_rows, place=place)
