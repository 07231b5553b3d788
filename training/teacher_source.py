"""The teacher that a user names, and the recipe as it completes it. Free of torch, as training.launch."""

from dataclasses import replace

from schemas.errors import UsageError
from schemas.stage import StageResult, open_result
from training.recipe import Recipe, default_of

SHARE = 0.5  # of the loss, where the recipe does not say


def teacher_in(folder: str, recipe: Recipe) -> StageResult:
    """The model, or the models side by side, in a stage's folder. Raises UsageError for the output of another stage."""
    found = open_result(folder)
    if (stage := found.manifest.request.stage) not in ("train", "combine"):
        raise UsageError(
            asked=f"{recipe.name} was to be taught by the model in {folder}",
            found=f"it is the output of {stage}",
            do="give the folder that `clicktower train` or `clicktower combine` printed",
        )
    return found


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
