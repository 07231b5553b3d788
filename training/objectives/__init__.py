"""What a recipe learns, by name."""

from training.objectives.objective import Objective, Task, Watched
from training.recipes.recipe import Recipe

__all__ = ["Objective", "Task", "Watched", "objective_of"]


def objective_of(recipe: Recipe) -> Objective:
    """The objective a recipe names."""
    match recipe.objective:
        case "clicks":
            from training.objectives.clicks import Clicks

            return Clicks()
        case "classify":
            from training.objectives.classify import Classify

            return Classify()
        case "generate":
            from training.objectives.generate import Generate

            return Generate()
