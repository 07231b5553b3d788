import numpy as np
import pytest
import torch

from clicktower.training.model.head import draw_masks, head_of
from clicktower.training.model.label_settings import Classify
from tests.training.finite_differences import STEP, by_autograd
from tests.training.model import reference_head as reference

torch.set_num_threads(1)
ROWS, WIDTH, CLASSES, SIZE = 2, 4, 3, 5
FEATURES = {"plain": {}, "w2": {}, "siamese": {}, "gated": {"factors": 3}}
KINDS = {"mlp": {"units": 6}, "pruned": {"row_units": 3, "column_units": 2}}
HEADS = [(features, kind) for features in FEATURES for kind in KINDS]
every_head = pytest.mark.parametrize(("features", "kind"), HEADS, ids=["-".join(head) for head in HEADS])


def small(features: str, kind: str, **changes):
    settings = Classify(
        features={"kind": features, **FEATURES[features]}, head={"kind": kind, **KINDS[kind]}, **changes
    )
    unit = "texts" if features == "plain" else "pairs"
    return head_of(settings, dimensions=ROWS * WIDTH, rows=ROWS, classes=CLASSES, unit=unit)


def random_case(head, features: str):
    """Vectors, and parts whose biases are not zero."""
    generator = np.random.Generator(np.random.Philox(key=7))
    parts = head.initial(generator)
    for name in ("head.b_1", "head.b_2"):
        parts[name] += torch.from_numpy(generator.normal(size=tuple(parts[name].shape)))
    number = 1 if features == "plain" else 2
    vectors = tuple(torch.from_numpy(generator.normal(size=(SIZE, ROWS * WIDTH))) for _ in range(number))
    return vectors, parts


def by_reference(features, vectors, parts, masks=None, dropout=0.0) -> np.ndarray:
    p = {name: part.numpy() for name, part in parts.items()}
    found = []
    for i in range(SIZE):
        kept = {}
        if masks is not None:
            kept = {"keep_features": masks.features[i].numpy(), "keep_hidden": masks.hidden[i].numpy()}
        of_one = tuple(vector[i].numpy() for vector in vectors)
        found.append(reference.logits(features, of_one, p, ROWS, **kept, dropout=dropout))
    return np.array(found)


@every_head
def test_logits_equal_the_printed_equations_number_by_number(features, kind):
    head = small(features, kind)
    vectors, parts = random_case(head, features)
    logits_BC = head.logits(vectors, parts)
    np.testing.assert_allclose(logits_BC.numpy(), by_reference(features, vectors, parts), rtol=1e-12, atol=1e-13)


@every_head
def test_logits_under_dropout_equal_those_of_what_is_kept_scaled_up(features, kind):
    head = small(features, kind, dropout=0.4)
    vectors, parts = random_case(head, features)
    masks = draw_masks(head, SIZE, np.random.Generator(np.random.Philox(key=3)))
    assert not masks.features.all()
    assert not masks.hidden.all()
    logits_BC = head.logits(vectors, parts, masks)
    expected = by_reference(features, vectors, parts, masks, 0.4)
    np.testing.assert_allclose(logits_BC.numpy(), expected, rtol=1e-12, atol=1e-13)


@every_head
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("stretch", [1 << 19, 12], ids=["whole", "stretches"])  # numbers of a matrix at once
def test_gradients_of_every_part_and_vector_equal_finite_differences(features, kind, dropout, stretch, monkeypatch):
    monkeypatch.setattr("clicktower.training.model.head._STRETCH", stretch)
    head = small(features, kind, dropout=dropout)
    vectors, parts = random_case(head, features)
    masks = draw_masks(head, SIZE, np.random.Generator(np.random.Philox(key=3)))
    by_logits_BC = torch.from_numpy(np.random.default_rng(1).normal(size=(SIZE, CLASSES)))
    moved = {**{f"vector {place}": vector for place, vector in enumerate(vectors)}, **parts}

    def weighted(*at: torch.Tensor) -> torch.Tensor:
        of_vectors, of_parts = at[: len(vectors)], dict(zip(parts, at[len(vectors) :], strict=True))
        return head.logits(of_vectors, of_parts, masks) * by_logits_BC

    found = dict(zip(moved, by_autograd(weighted, *moved.values())[1:], strict=True))
    for name, numbers in moved.items():
        expected, flat = np.zeros(tuple(numbers.shape)), numbers.view(-1)
        for at in range(flat.numel()):
            middle, ends = flat[at].item(), []
            for end in (middle + STEP, middle - STEP):
                flat[at] = end
                logits_BC = head.logits(vectors, parts, masks)
                ends.append((logits_BC * by_logits_BC).sum().item())
            flat[at] = middle
            expected.flat[at] = (ends[0] - ends[1]) / (2 * STEP)
        np.testing.assert_allclose(found[name].numpy(), expected, rtol=1e-6, atol=1e-8, err_msg=name)


@every_head
def test_float32_stays_float32_and_what_went_in_is_left_as_it_was(features, kind):
    head = small(features, kind, dropout=0.4)
    vectors, parts = random_case(head, features)
    vectors, parts = tuple(v.float() for v in vectors), {name: part.float() for name, part in parts.items()}
    before = [tensor.clone() for tensor in (*vectors, *parts.values())]
    for masks in (None, draw_masks(head, SIZE, np.random.Generator(np.random.Philox(key=3)))):
        assert head.logits(vectors, parts, masks).dtype == torch.float32
    for now, then in zip((*vectors, *parts.values()), before, strict=True):
        assert torch.equal(now, then)


@every_head
def test_a_text_or_pair_has_the_same_logits_alone_and_among_others(features, kind):
    head = small(features, kind)
    vectors, parts = random_case(head, features)
    together = head.logits(vectors, parts)
    for i in range(SIZE):
        alone = head.logits(tuple(vector[i : i + 1] for vector in vectors), parts)
        np.testing.assert_allclose(alone[0].numpy(), together[i].numpy(), rtol=1e-12, atol=1e-13)
