"""The job of a training worker."""

from dataclasses import dataclass

from schemas.judgments import Judged
from schemas.manifest import OutputFile
from training.recipes.recipe import Recipe
from training.run.arithmetic import REFERENCE


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingJob:
    """The job of a worker. The recipe, shards, start, vectors, teacher and arithmetic alone determine the model."""

    shards: str
    shard_files: tuple[OutputFile, ...]  # as the build's manifest has them
    recipe: Recipe
    judged: Judged | None
    threads: int
    start: str | None  # a model folder whose tower training starts from (worker)
    digest: str  # of the request: a checkpoint of another one is refused
    checkpoints: str
    output: str
    checkpoint_seconds: float
    word_vectors: str | None = None  # a file (word_vectors)
    teacher: str | None = None  # a model folder or a file of vectors (teacher)
    device: str = "cpu"  # device: cpu, cuda or cuda-eager
    arithmetic: str = REFERENCE  # arithmetic: every worker adds up like this
    stop_after: int | None = None  # epochs, after which a checkpoint is kept instead of a model written
