import pytest
import torch

from clicktower.training.model.head import gated, siamese, w2
from tests.training.finite_differences import by_autograd

# Two normal distributions of two dimensions: μ = (1, -2), σ = (0.5, 3) and μ = (4, 0.5), σ = (1.5, 1).
FIRST = torch.tensor([[1.0, -2.0, 0.5, 3.0]], dtype=torch.float64)
SECOND = torch.tensor([[4.0, 0.5, 1.5, 1.0]], dtype=torch.float64)


def test_w2_features_are_the_hand_worked_ones():
    # (1 - 4)² = 9, (-2 - 0.5)² = 6.25; (0.5 - 1.5)² = 1, (3 - 1)² = 4; 1 · 4 = 4, -2 · 0.5 = -1
    features_BF = w2(FIRST, SECOND)
    assert features_BF.tolist() == [[9.0, 6.25, 1.0, 4.0, 4.0, -1.0]]


def test_w2_features_without_the_product_add_up_to_the_squared_distance_of_the_embeddings():
    features_BF = w2(FIRST, SECOND)
    assert features_BF[0, :4].sum().item() == pytest.approx(torch.dist(FIRST, SECOND).item() ** 2)  # 20.25


def test_w2_gradient_is_the_hand_worked_one():
    # Of Σ features. By μ_1: 2 (μ_1 - μ_2) + μ_2 = (2 · -3 + 4, 2 · -2.5 + 0.5) = (-2, -4.5); by σ_1: 2 (-1, 2).
    # By μ_2: -2 (μ_1 - μ_2) + μ_1 = (6 + 1, 5 - 2) = (7, 3); by σ_2: -2 (-1, 2).
    _, by_first, by_second = by_autograd(w2, FIRST, SECOND)
    assert by_first.tolist() == [[-2.0, -4.5, -2.0, 4.0]]
    assert by_second.tolist() == [[7.0, 3.0, 2.0, -4.0]]


def test_siamese_features_are_the_hand_worked_ones():
    features_BF = siamese(FIRST, SECOND)
    assert features_BF.tolist() == [
        [*(1, -2, 0.5, 3), *(4, 0.5, 1.5, 1), *(3, 2.5, 1, 2), *(4, -1, 0.75, 3)]
    ]  # a, b, |a - b|, a ∘ b


def test_siamese_features_of_matrices_are_four_matrices_one_below_the_other():
    features_BF = siamese(FIRST, SECOND)
    features_rw = features_BF.view(8, 2)
    assert features_rw[:2].tolist() == [[1, -2], [0.5, 3]]  # a
    assert features_rw[4:6].tolist() == [[3, 2.5], [1, 2]]  # |a - b|


@pytest.mark.parametrize("features", [w2, siamese])
def test_equal_texts_are_not_driven_apart_by_their_distance(features):
    distances = slice(0, 4) if features is w2 else slice(8, 12)
    found, by_first, by_second = by_autograd(lambda *pair: features(*pair)[:, distances], FIRST, FIRST.clone())
    assert not found.any()
    assert not by_first.any()
    assert not by_second.any()


def test_gated_features_are_the_hand_worked_ones():
    # M_p = [[1, -2], [0.5, 3]], M_h = [[4, 0.5], [1.5, 1]], one factor for each row.
    # F_p: 1 · 2 - 2 · 1 = 0 and 0.5 · 4 + 3 · 1 = 5; F_h: 4 · 1 + 0.5 · 2 = 5 and 1.5 · 2 - 1 · 1 = 2; F_r = (0, 10)
    parts = {
        "W_fp": torch.tensor([[[2.0], [1.0]], [[4.0], [1.0]]], dtype=torch.float64),
        "W_fh": torch.tensor([[[1.0], [2.0]], [[2.0], [-1.0]]], dtype=torch.float64),
    }
    features_BF = gated(FIRST, SECOND, **parts)
    assert features_BF.tolist() == [[0.0, 10.0]]
