import numpy as np
import torch

from clicktower.training.model.head import draw_masks, dropped, head_of
from clicktower.training.model.label_settings import MLP, Classify, SiameseFeatures


def head(dropout: float):
    settings = Classify(features=SiameseFeatures(), head=MLP(units=30), dropout=dropout)
    return head_of(settings, dimensions=20, rows=1, classes=2, unit="pairs")


def generator(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key))


def test_masks_are_a_function_of_the_generators_key():
    first, again, other = (draw_masks(head(0.5), 8, generator(key)) for key in (1, 1, 2))
    assert [tuple(mask.shape) for mask in first] == [(8, 80), (8, 30)]
    for mask, same, different in zip(first, again, other, strict=True):
        assert torch.equal(mask, same)
        assert not torch.equal(mask, different)


def test_a_number_is_left_out_with_the_stated_probability():
    masks = draw_masks(head(0.3), 500, generator(5))
    for mask in masks:  # 40,000 and 15,000 draws: three standard deviations of the share are 0.007 and 0.011
        assert abs(mask.double().mean().item() - 0.7) < 3 * (0.3 * 0.7 / mask.numel()) ** 0.5


def test_a_head_without_dropout_draws_nothing():
    untouched, used = generator(1), generator(1)
    assert draw_masks(head(0.0), 8, used) is None
    assert used.random() == untouched.random()


def test_what_is_kept_is_scaled_up_to_the_same_mean():
    kept = torch.tensor([True, False, True, True])
    assert dropped(torch.tensor([3.0, 3.0, -6.0, 0.0]), kept, 0.25).tolist() == [4.0, 0.0, -8.0, 0.0]
