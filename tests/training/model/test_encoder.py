import torch

from clicktower.training.model.forward import Encoded, gradients
from clicktower.training.model.parameters import Encoder, layout_of
from clicktower.training.model.recipe import recipe as named_recipe
from tests.recipes import varied


def test_each_gradient_has_memory_of_its_own():
    """Autograd gives both parts of a sum one tensor, and a part that is only summed one number for all."""
    recipe = varied(named_recipe("lstm-96"), cells=2)
    layout = layout_of(recipe, 3)
    table_RG = torch.ones(2, layout.columns, requires_grad=True)
    parts = {name: torch.ones(4, requires_grad=True) for name in ("one", "other", "summed", "unused")}
    side = Encoded(table_RG, 0.0, "query", torch.tensor([0, 2]), table_RG, parts)
    factors = torch.tensor([1.0, 2.0, 3.0, 4.0])
    loss = ((parts["one"] + parts["other"]) * factors).sum() + parts["summed"].sum() + table_RG.sum()
    ((name, gradient),) = gradients(loss, [side], Encoder(layout, None, {}))
    arrays = [gradient.table_RG, *gradient.parts.values()]
    for array in arrays:
        array.mul_(10)
    assert name == "query"
    assert gradient.table_RG.tolist() == [[10.0] * layout.columns] * 2
    expected = {"one": [10, 20, 30, 40], "other": [10, 20, 30, 40], "summed": [10] * 4, "unused": [0] * 4}
    assert {part: array.tolist() for part, array in gradient.parts.items()} == expected
