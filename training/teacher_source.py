"""The teacher that a user names, and the recipe as it completes it. Free of torch, as training.launch."""

from dataclasses import dataclass, replace

from schemas import storage
from schemas.errors import UsageError
from schemas.stage import open_result
from training.recipe import Recipe, default_of
from training.text_vectors import SUFFIX, require_text_vectors

SHARE = 0.5  # of the loss, where the recipe does not say


@dataclass(frozen=True, slots=True)
class TeacherSource:
    path: str  # of a model's data folder, or of a file of vectors
    digest: str  # which one it is


def teacher_in(path: str, recipe: Recipe) -> TeacherSource:
    """The model, or the models side by side, in a stage's folder; or a file of vectors (training.text_vectors).

    Raises UsageError for the output of another stage or another file.
    """
    if path.endswith(SUFFIX):
        require_text_vectors(path)
        return TeacherSource(storage.absolute(path), storage.fingerprint(path))
    found = open_result(path)
    if (stage := found.manifest.request.stage) not in ("train", "combine"):
        raise UsageError(
            asked=f"{recipe.name} was to be taught by the model in {path}",
            found=f"it is the output of {stage}",
            do="give the folder that `clicktower train` or `clicktower combine` printed, or a Parquet file of vectors",
        )
    return TeacherSource(storage.absolute(found.data), found.manifest.digest)


def recipe_taught(recipe: Recipe, teacher: str | None) -> Recipe:
    """A recipe as a teacher's folder completes it: half of the loss where it does not say.

    Raises UsageError where there is one without the other, or the objective has no use for it.
    """
    for field in ("teacher_share", "teacher_gamma"):
        if teacher is None and getattr(recipe, field) != default_of(field):
            raise UsageError(
                asked=f"{recipe.name} was to be trained with {field}={getattr(recipe, field):g}",
                found="no teacher was given",
                follows="there would be nothing to agree with",
                do=f"give `train --teacher FOLDER`, or set {field}={default_of(field):g}",
            )
    return replace(recipe, teacher_share=SHARE) if teacher and not recipe.teacher_share else recipe
