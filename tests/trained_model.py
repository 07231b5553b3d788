"""The output of a train stage without the training: a real model folder with the weights training would start from."""

import torch

from clicktower.schemas.manifest import Outcome, Request
from clicktower.schemas.stage import run_stage
from clicktower.training.model.model import Model, write_model
from clicktower.training.model.parameters import NO_OUTPUTS, Layout, Outputs, initial_parameters
from clicktower.training.model.recipe import Recipe
from clicktower.training.model.recipe import recipe as named_recipe
from clicktower.training.towers.text_table import WordRows
from tests.recipes import varied

TABLE_ROWS = 51_000


def trained_stage(
    store: str, *, seed: int = 1, labels: dict | None = None, recipe: Recipe | None = None, inputs: dict | None = None
) -> str:
    """The folder of a small model below a store; both sides share a tower, so a title's nearest title is itself."""
    recipe = recipe or varied(named_recipe("lstm-96"), cells=8, seed=seed)

    def produce(folder: str) -> Outcome:
        model = untrained(recipe)
        write_model(folder, model)
        return Outcome(labels=labels or {})

    request = Request(stage="train", stage_version=1, config={"seed": seed, "recipe": recipe.name}, inputs=inputs or {})
    return run_stage(store, request, produce).folder


def untrained(recipe: Recipe) -> Model:
    """The model that training would start from."""
    outputs = Outputs(unit="pairs", classes=("0", "1")) if recipe.objective.kind == "classify" else NO_OUTPUTS
    layout = Layout(recipe=recipe, word_rows=WordRows(TABLE_ROWS), outputs=outputs)
    towers = {name: initial_parameters(layout, name) for name in recipe.objective.towers}
    return Model.of(layout, towers)


def matrix_of(model: Model, tower: str) -> torch.Tensor:
    """A tower's parameters as training lays them out, [rows, columns]."""
    parts = {part: torch.from_numpy(array) for part, array in model.towers[tower].items()}
    return model.layout.join(parts["W"], parts)
