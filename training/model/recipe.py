"""A recipe: everything that determines a model's numbers, as one frozen value. recipes.toml has the named ones.

Beside it what a training begins with, and where it computes.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator

from clicktower.schemas.errors import UsageError
from clicktower.schemas.section import (
    Count,
    Factor,
    Natural,
    Positive,
    SectionFamily,
    Seed,
    Share,
    Uri,
    changed,
    none_to_null,
    one_of,
    section,
)
from clicktower.training.model.objective_settings import Clicks, Fixed, ObjectiveSettings, Pool
from clicktower.training.towers.tower_settings import LSTM, Shapes, TowerSettings


@dataclass(frozen=True, kw_only=True)
class Sources:
    """What a training begins with, and learns from besides its shards.

    Args:
        start: The folder of another training whose towers this one starts from, instead of from random numbers.
        word_vectors: A file of word vectors (GloVe text, word2vec text or binary): words in it start from their
            vectors, all others are read by their letter trigrams. They are trained further unless you --set
            word_vectors=frozen.
        teacher: The model to distil, with half of the loss or what you --set objective.teacher.share=: the folder that
            `train` or `combine` printed, or a Parquet file of another encoder's vectors (see `texts`).
    """

    start: Uri | None = None
    word_vectors: Uri | None = None
    teacher: Uri | None = None


NO_SOURCES = Sources()

DeviceName = Literal["auto", "cpu", "cuda", "cuda-eager"]
DEVICES = get_args(DeviceName)


@dataclass(frozen=True, kw_only=True)
class Compute:
    """Where and how a training computes. With the exact reduction `device` and `path` alone change its bytes.

    Raises UsageError for a number of workers or threads that is no number of any.

    Args:
        workers: Data-parallel workers; auto: one for each GPU of the Ray cluster, or without one of this machine, and
            one where there is no GPU.
        min_workers: In a Ray cluster, continue with as few workers when nodes are lost, and with more again when they
            come back; without it the run waits ten minutes for a replacement.
        threads: Threads of each worker; by default the cores of this machine, or of the Ray cluster, divided by the
            workers.
        path: On a CPU: compiled (which towers, and whether it is available, `clicktower doctor` says) or torch, the
            reference. auto: compiled where it supports the recipe. The two round differently.
        device: cpu; cuda (the recurrence in fused kernels), cuda-eager (step by step); auto: a GPU that passes its
            check (`clicktower doctor`), on this machine or, with RAY_ADDRESS set, on a node of the Ray cluster. They
            round differently, so each gives a different model.
    """

    workers: int | Literal["auto"] = 1
    min_workers: int | None = None
    threads: int | None = None
    path: Literal["auto", "compiled", "torch"] = "auto"
    device: DeviceName = "auto"

    def __post_init__(self) -> None:
        for what, option, number in (
            ("workers", "--workers", self.workers),
            ("workers to continue with", "--min-workers", self.min_workers),
            ("threads of each worker", "--threads", self.threads),
        ):
            if isinstance(number, int) and number < 1:
                raise UsageError(f"The {what} are {number}, and must be at least 1.", f"Give {option} 1 or more.")
        if self.min_workers is not None and isinstance(self.workers, int) and self.min_workers > self.workers:
            raise UsageError(
                f"At least {self.min_workers} workers are to continue, which is more than the {self.workers} that there"
                " are.",
                f"Give --min-workers {self.workers} or fewer.",
            )


ONE_WORKER = Compute()


@section
class WordVectorSettings(SectionFamily):
    """Words of a given file start from its vectors.

    Args:
        columns: Numbers of each vector; 0 is what the file has.
    """

    elsewhere: ClassVar[str] = "clicktower.training.model.recipe_kinds"
    columns: Natural = 0


@section
class OptimiserSettings(SectionFamily):
    """How a large update changes the parameters. `code` names the class of a tower's rows (trainer.optimisers).

    Args:
        step: ε of eq. 6, with L summed over the minibatch; for adam the step's length.
        clip_norm: th_G, for each tower on its own; 0 is never.
    """

    elsewhere: ClassVar[str] = "clicktower.training.model.recipe_kinds"
    matrices: ClassVar[int] = 1  # of a tower's shape that training keeps: its parameters, and what it remembers of each
    grows: ClassVar[bool] = True  # its steps grow with the gradient
    step: Positive = 0.002
    clip_norm: Factor = 0.0


@section
class Nesterov(OptimiserSettings):
    """Nesterov's momentum, as the paper has it.

    Args:
        momentum_edge: μ in the first and last 2% of all updates.
        momentum_middle: μ in between; the paper's 0.995 remembers 200 updates.
    """

    code: ClassVar[str] = "clicktower.training.trainer.optimisers:LazyRows"
    matrices: ClassVar[int] = 2
    kind: Literal["nesterov"] = "nesterov"
    momentum_edge: Share = 0.9
    momentum_middle: Share = 0.9


PRINTED_TOWERS = {"lstm", "bilstm", "rnn", "dssm", "clsm"}
# The paper's printed training settings (Algorithm 1): two towers from separate random numbers, random negatives from
# the build, μ 0.9/0.995/0.9. It also re-normalises gradients, with a th_G that it does not print.
PRINTED_CLICKS = Clicks(same_start=False, negatives=Fixed())
PRINTED_OPTIMISER = Nesterov(momentum_middle=0.995)


@section
class Recipe:
    """What to train and how. Values the paper leaves open were chosen on held-out data (docs/model.md section 4).

    Raises pydantic.ValidationError for an invalid value; `changed` says it in words.

    Args:
        name: The name of the recipe.
        tower: What makes a text's embedding (docs/model.md).
        objective: What is learnt.
        optimiser: How the parameters are updated.
        word_vectors: Whether words start from the vectors of a file.
        max_words: Words read of a text; 0 is all.
        overflow: The treatment of words beyond max_words.
        initial_range: Parameters start uniform in ± this.
        epochs: Passes over the pairs.
        minibatch: Pairs per large update.
        micro_batch: Pairs computed at once; the unit of work for workers.
        reduction: exact: the same bytes for any number of workers; fast: a plain all-reduce.
        dtype: The numbers that are computed with.
        seed: The seed of initial parameters, order and negatives.
    """

    name: str
    tower: Annotated[TowerSettings, one_of(TowerSettings)] = LSTM()
    objective: Annotated[ObjectiveSettings, one_of(ObjectiveSettings)] = Clicks()
    optimiser: Annotated[OptimiserSettings, one_of(OptimiserSettings)] = Nesterov()
    word_vectors: Annotated[WordVectorSettings | None, one_of(WordVectorSettings), BeforeValidator(none_to_null)] = None
    max_words: Natural = 0
    overflow: Literal["merge", "truncate"] = "merge"
    initial_range: Positive = 0.2
    epochs: Count = 20
    minibatch: Count = 256
    micro_batch: Count = 128
    reduction: Literal["exact", "fast"] = "exact"
    dtype: Literal["float32", "float64"] = "float32"
    seed: Seed = 1

    def __post_init__(self) -> None:
        if self.minibatch % self.micro_batch:
            raise ValueError(f"minibatch must be a multiple of micro_batch ({self.micro_batch})")
        negatives, n = self.clicks.negatives, self.clicks.num_negatives
        if isinstance(negatives, Pool) and not negatives.softmax and (negatives.size or self.micro_batch) < n:
            raise ValueError(f"a pool's size must be at least num_negatives ({n}); 0 is micro_batch")
        if reason := self.objective.refused(self.tower):
            raise ValueError(reason)

    @property
    def as_printed(self) -> bool:
        """Whether training follows everything that the paper prints, for any values that it leaves open."""
        clicks, optimiser = self.clicks, self.optimiser
        ours = ("recurrent_range", "recurrent_step", "forget_gate", "peepholes")
        return (
            self.tower.kind in PRINTED_TOWERS
            and not any(getattr(self.tower, name, 0) for name in ours)
            and clicks == replace(PRINTED_CLICKS, gamma=clicks.gamma, num_negatives=clicks.num_negatives)
            and optimiser == replace(PRINTED_OPTIMISER, step=optimiser.step, clip_norm=optimiser.clip_norm)
            and optimiser.clip_norm > 0
            and self.word_vectors is None
        )

    @property
    def columns(self) -> int:
        """Of W: the numbers that a trigram adds, or that a word's vector has."""
        return self.word_vectors.columns if self.word_vectors else self.tower.columns

    @property
    def tower_parts(self) -> Shapes:
        """The tower's parameters besides W; above word vectors W_in makes them its inputs (towers.tower)."""
        parts = self.tower.parts
        return (("W_in", (self.columns, self.tower.columns)), *parts) if self.word_vectors else parts

    @property
    def clicks(self) -> Clicks:
        """How click shards are read: as the objective says, or by Clicks' defaults for another objective."""
        return self.objective if isinstance(self.objective, Clicks) else Clicks()


LARGE_BYTES = 1 << 30


def may_be_large(recipe: Recipe, table_rows: int) -> bool:
    """Whether a tower may have parameters of a gigabyte or more, by its largest size alone, without torch."""
    largest = max(size for size in asdict(recipe.tower).values() if isinstance(size, int))
    return 4 * largest * max(table_rows, largest) > LARGE_BYTES


def tower_name(recipe: Recipe, side: str) -> str:
    """The parameter set that encodes a side, `query` or `document`."""
    return side if side in recipe.objective.towers else "shared"


DEFAULT = "lstm-pool-192-words"  # of `train`: the paper's model, and `explain` has gates to show
PRINTED = "paper-"  # begins the names of the towers as the paper prints them


@cache
def _tables() -> Mapping[str, Any]:
    return tomllib.loads((files("clicktower.training.model") / "recipes.toml").read_text(encoding="utf-8"))


def names() -> list[str]:
    """The names `recipe` knows."""
    return list(_tables())


@cache
def recipe(name: str) -> Recipe:
    """The recipe with that name. Raises UsageError for an unknown one."""
    if name not in _tables():
        raise UsageError(f"There is no recipe {name!r}.", f"Use one of {', '.join(names())}.")
    table = _tables()[name]
    start = recipe(table["recipe"]) if "recipe" in table else Recipe(name=name)
    return changed(start, {**table["set"], "name": name})
