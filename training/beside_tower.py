"""The parameters that an objective puts beside the tower's: a head above it, or a decoder.

They stand in the tower's matrix after its own parts (training.parameters), so whatever is done to parameters is done
to them.
"""

import numpy as np
import torch

from training.generative.decoder import Decoder, initial_decoder
from training.generative.vocabulary import FIRST_WORD
from training.heads.head import Head
from training.heads.head_of import head_of
from training.heads.initial import initial_head
from training.heads.settings import HeadSettings
from training.outputs import Outputs
from training.recipe import Recipe
from training.towers import Shapes, tower_of


def parts_beside(recipe: Recipe, outputs: Outputs) -> Shapes:
    """Names and shapes of the parameters that are not the tower's."""
    if outputs.classes:
        return head_of_model(recipe, outputs).parts
    return decoder_of_model(recipe, outputs).parts if outputs.vocabulary else ()


def initial_beside(recipe: Recipe, outputs: Outputs) -> dict[str, torch.Tensor]:
    """Their first values, float64, a function of the seed."""
    numbers = np.random.Generator(np.random.Philox(key=np.array([recipe.seed, 1 << 62], np.uint64)))
    if outputs.classes:
        return initial_head(head_of_model(recipe, outputs), numbers)
    return dict(initial_decoder(decoder_of_model(recipe, outputs), numbers)) if outputs.vocabulary else {}


def is_beside(part: str) -> bool:
    """Whether a part's name is not one of a tower's own."""
    return part.startswith(("head.", "decoder."))


def head_of_model(recipe: Recipe, outputs: Outputs) -> Head:
    """The head that tells a recipe's classes."""
    settings = HeadSettings(
        kind=recipe.head,
        features=recipe.features,
        hidden=recipe.head_units,
        factors=recipe.factors,
        row_units=recipe.row_units,
        column_units=recipe.column_units,
        dropout=recipe.dropout,
    )
    tower = tower_of(recipe)
    rows = recipe.hops if recipe.hops and not recipe.average_hops else 1
    return head_of(
        settings, dimensions=tower.dimensions, rows=rows, classes=len(outputs.classes), unit=outputs.unit or "texts"
    )


def decoder_of_model(recipe: Recipe, outputs: Outputs) -> Decoder:
    """The decoder that says a text's words."""
    return Decoder(
        latent=tower_of(recipe).dimensions // 2,
        cells=recipe.decoder_cells,
        vocabulary=FIRST_WORD + len(outputs.vocabulary),
        word_columns=recipe.decoder_columns,
    )
