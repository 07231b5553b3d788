"""What every objective is: shards become examples, micro-batches of examples a loss and its gradient.

    clicks      a clicked title against n unclicked ones (training.pair_gradient), the paper's
    classify    the class of a labelled text or pair of texts, by a head above the tower (training.heads)
    generate    a text said again, word by word, from what the tower made of it (training.generative)

The order, the large update, checkpoints, workers and what is written are the same for all of them.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from training.encoder import Encoder
from training.judged_files import Judged
from training.order import MicroBatch
from training.outputs import Outputs
from training.recipe import Recipe
from training.reference_path import Batch

Measured = dict[str, float | None]


class Watched(Protocol):
    """Held-out data, prepared once, measured after every epoch. It never chooses anything."""

    @property
    def source(self) -> str:
        """What is measured on, in words."""

    @property
    def table_rows(self) -> torch.Tensor:
        """The rows of W that its texts touch, ascending."""

    def measure(self, encoder: Encoder) -> Measured:
        """Figures by name, each beginning with `dev_`; None where there is nothing to measure on."""


class Task(Protocol):
    """The shards as an objective uses them, prepared for a recipe."""

    @property
    def table_rows(self) -> int:
        """Of letter trigrams."""

    @property
    def outputs(self) -> Outputs: ...

    @property
    def lengths(self) -> Sequence[np.ndarray]:
        """For each training shard the words of each example: what training.order sorts by."""

    @property
    def files(self) -> Sequence[str]:
        """The file whose rows each training shard's examples are."""

    def row_weights(self) -> np.ndarray | None:
        """What each row of W starts multiplied by, float32 [rows of W]; None: 1."""

    def examples(self, micro_batch: MicroBatch, epoch: int) -> Any:
        """A micro-batch's examples as indices, with all that is drawn for them in an epoch. Depends on nothing else."""

    def watched(self, judged: Judged | None) -> Watched: ...


class Objective(Protocol):
    def load(self, folder: str, recipe: Recipe, words: Sequence[str] = (), teacher: str | None = None) -> Task:
        """The shards in a folder of this machine; `words` have rows of their own (training.word_rows).

        `teacher`: a model folder or a file of vectors (training.teacher), for clicks alone.

        Raises StageError, UnknownVersionError.
        """

    def batch(self, examples: Any) -> Batch:
        """Examples laid out for the reference path. Raises ValueError for a text without words."""
