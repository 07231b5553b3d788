import math

import pytest
import torch

from clicktower.training.model.head import head_of, pruned
from clicktower.training.model.label_settings import MLP, Classify, Pruned

# Table 4 of Lin et al.: 30 hops, an LSTM of 300 cells in each direction, so M is 30 x 600 (the appendix calls it r by
# u, but with 300 columns no row of the table comes out). Softmax layer: (r p + 2u q) C weights, without its C biases.
#   Yelp  (30 · 150 + 600 · 10) · 5 = (4,500 + 6,000) · 5 = 52,500
#   Age   (30 · 25 + 600 · 20) · 5 = (750 + 12,000) · 5 = 63,750
#   SNLI  (30 · 300 + 600 · 10) · 3 = (9,000 + 6,000) · 3 = 45,000
# Hidden layer: M^v has 30 · 600 p weights, M^h 600 · 30 q; and there are 30 p + 600 q biases.
#   Yelp  2,700,000 + 180,000 + 10,500 = 2,890,500, printed 2.7M: M^v alone
#   Age     450,000 + 360,000 + 12,750 =   822,750, printed 822K: all, with the biases
#   SNLI  5,400,000 + 180,000 + 15,000 = 5,595,000, printed 5.6M: all
# So the paper counts Yelp's hidden layer in another way than Age's: it leaves M^h out.
PRINTED = {
    "Yelp": (150, 10, 5, 52_500, 2_890_500),
    "Age": (25, 20, 5, 63_750, 822_750),
    "SNLI": (300, 10, 3, 45_000, 5_595_000),
}


@pytest.mark.parametrize("data", PRINTED)
def test_pruned_heads_have_the_printed_sizes(data):
    p, q, classes, softmax, hidden = PRINTED[data]
    features, unit = ("gated", "pairs") if data == "SNLI" else ("plain", "texts")
    settings = Classify(features={"kind": features}, head=Pruned(row_units=p, column_units=q))
    head = head_of(settings, dimensions=30 * 600, rows=30, classes=classes, unit=unit)
    sizes = {name: math.prod(shape) for name, shape in head.parts}
    assert sizes["head.W_2"] == softmax
    assert sizes["head.W_v"] + sizes["head.W_h"] + sizes["head.b_1"] == hidden
    if data == "Yelp":
        assert sizes["head.W_v"] == 2_700_000


def test_the_head_that_is_pruned_has_the_printed_size():
    # Yelp before pruning, b = 3,000: 30 · 600 · 3,000 = 54M, and 3,000 · 5 = 15K in the softmax layer.
    head = head_of(Classify(head=MLP(units=3000)), dimensions=18_000, rows=30, classes=5, unit="texts")
    sizes = {name: math.prod(shape) for name, shape in head.parts}
    assert (sizes["head.W_1"], sizes["head.W_2"]) == (54_000_000, 15_000)


def test_a_unit_hears_of_its_own_row_or_column_alone():
    features_BF = torch.tensor([[1.0, 2.0, 4.0, 8.0, 16.0, 32.0]])  # rows (1, 2, 4) and (8, 16, 32)
    # M^v: 1 + 2 + 4 = 7 twice, 8 + 16 + 32 = 56 twice; M^h: 1 + 8 = 9, 2 + 16 = 18, 4 + 32 = 36
    assert pruned(features_BF, torch.ones(2, 3, 2), torch.ones(3, 2, 1)).tolist() == [[7, 7, 56, 56, 9, 18, 36]]
