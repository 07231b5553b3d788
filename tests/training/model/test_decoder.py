import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from clicktower.training.model.decoder import END, Decoder
from tests.rounding import assert_equal_but_for_rounding
from tests.training.finite_differences import STEP, by_autograd
from tests.training.model import reference_decoder as reference
from tests.training.model.small_decoder import SMALL, TEXTS, as_arrays, some_parts, some_z, targets

torch.set_num_threads(1)


def loss_and_gradients(decoder: Decoder, z_Bh: torch.Tensor, texts: list[list[int]], parts: dict[str, torch.Tensor]):
    """(-log p of the texts, its gradient by each part and by `z`)."""
    said = targets(texts, decoder).to(z_Bh.device)

    def loss(z: torch.Tensor, *of_parts: torch.Tensor) -> torch.Tensor:
        return decoder.loss(z, said, dict(zip(parts, of_parts, strict=True)))

    value, by_z, *by_parts = by_autograd(loss, z_Bh, *parts.values())
    return value.item(), {"z": by_z, **dict(zip(parts, by_parts, strict=True))}


def test_losses_equal_the_printed_equations_cell_by_cell():
    decoder = Decoder(latent=3, cells=4, vocabulary=9, word_columns=2)
    rng = np.random.default_rng(3)
    texts = [[*rng.integers(1, 9, rng.integers(0, 7)).tolist(), END] for _ in range(30)]
    parts, z_Bh = some_parts(decoder), some_z(30, decoder)
    arrays = as_arrays(parts)
    expected = [reference.loss(arrays, z, text) for z, text in zip(z_Bh.numpy(), texts, strict=True)]
    alone = [decoder.loss(z_Bh[i : i + 1], targets([text], decoder), parts).item() for i, text in enumerate(texts)]
    np.testing.assert_allclose(alone, expected, rtol=1e-12)
    assert decoder.loss(z_Bh, targets(texts, decoder), parts).item() == pytest.approx(sum(expected), rel=1e-12)


def test_a_text_of_one_word_worked_by_hand():
    # One cell, ids end, unknown, one word; W_rec = 0, E(start) = 1, E(word) = -1, W_x = W_z = (0, 0, 0, 1), z = 0.5,
    # b = (0, 1, 0, 0): output and input gate are 0.5, the forget gate sigmoid(1) = 0.731059.
    # t = 1 reads the start: y_g = tanh(1.5) = 0.905148, c = 0.452574, y = 0.5 tanh(c) = 0.5 x 0.424013 = 0.212006
    #   W_out = (0, 0, 2), b_out = 0: scores 0, 0, 0.424013; -log p(word) = log(2 + e^0.424013) - 0.424013
    #   = log(3.528081) - 0.424013 = 1.260754 - 0.424013 = 0.836741
    # t = 2 reads the word: y_g = tanh(-0.5) = -0.462117, c = 0.731059 x 0.452574 - 0.5 x 0.462117 = 0.099800,
    #   y = 0.5 x 0.099470 = 0.049735; scores 0, 0, 0.099470; -log p(end) = log(2 + e^0.099470) = 1.132880
    decoder = Decoder(latent=1, cells=1, vocabulary=3, word_columns=1)
    parts = {
        "decoder.E": [[7.0], [7.0], [-1.0], [1.0]], "decoder.W_x": [[0.0, 0.0, 0.0, 1.0]],
        "decoder.W_z": [[0.0, 0.0, 0.0, 1.0]], "decoder.W_rec": [[0.0] * 4], "decoder.b": [0.0, 1.0, 0.0, 0.0],
        "decoder.W_out": [[0.0, 0.0, 2.0]], "decoder.b_out": [0.0] * 3,
    }  # fmt: skip
    z_Bh = torch.tensor([[0.5]])
    loss = decoder.loss(z_Bh, targets([[2, END]], decoder), {k: torch.tensor(v) for k, v in parts.items()})
    assert loss.item() == pytest.approx(0.836741 + 1.132880, abs=2e-6)


def test_gradient_of_every_parameter_and_of_z_equals_finite_differences_of_the_printed_equations():
    parts, z_Bh = some_parts(SMALL), some_z(len(TEXTS))
    _, gradients = loss_and_gradients(SMALL, z_Bh, TEXTS, parts)
    arrays = {**as_arrays(parts), "z": z_Bh.numpy().copy()}

    def total() -> float:
        return sum(reference.loss(arrays, z, text) for z, text in zip(arrays["z"], TEXTS, strict=True))

    for name, found in gradients.items():
        expected = np.zeros(arrays[name].shape)
        for at in np.ndindex(expected.shape):
            middle = arrays[name][at]
            for sign in (1, -1):
                arrays[name][at] = middle + sign * STEP
                expected[at] += sign * total() / (2 * STEP)
            arrays[name][at] = middle
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-8, err_msg=name)


def library_loss(z_Bh: torch.Tensor, texts: list[list[int]], parts: dict[str, torch.Tensor]) -> torch.Tensor:
    """The loss by nn.LSTM, whose gates are input, forget, candidate, output, and cross_entropy; padded."""

    def gates(ours: torch.Tensor) -> torch.Tensor:
        output, forget, inward, candidate = ours.chunk(4, dim=-1)
        return torch.cat([inward, forget, candidate, output], dim=-1)

    cells, vocabulary = parts["decoder.W_out"].shape
    inputs = torch.cat([parts["decoder.W_x"], parts["decoder.W_z"]])
    lstm = nn.LSTM(len(inputs), cells, batch_first=True).double()
    weights = {
        "weight_ih_l0": gates(inputs).T,
        "weight_hh_l0": gates(parts["decoder.W_rec"]).T,
        "bias_ih_l0": gates(parts["decoder.b"]),
        "bias_hh_l0": torch.zeros(4 * cells, dtype=torch.float64),
    }
    said = nn.utils.rnn.pad_sequence([torch.tensor(text) for text in texts], batch_first=True, padding_value=-100)
    read = F.pad(said[:, :-1].clamp(min=0), (1, 0), value=vocabulary)
    x = torch.cat([F.embedding(read, parts["decoder.E"]), z_Bh[:, None].expand(-1, said.shape[1], -1)], dim=2)
    states, _ = torch.func.functional_call(lstm, weights, (x,))
    scores = states @ parts["decoder.W_out"] + parts["decoder.b_out"]
    return F.cross_entropy(scores.mT, said, reduction="sum")


def test_losses_and_gradients_equal_the_librarys_lstm_and_autograd():
    decoder = Decoder(latent=6, cells=11, vocabulary=40, word_columns=7)
    rng = np.random.default_rng(4)
    texts = [[*rng.integers(1, 40, rng.integers(0, 12)).tolist(), END] for _ in range(50)]
    parts, z_Bh = some_parts(decoder), some_z(50, decoder)
    loss, gradients = loss_and_gradients(decoder, z_Bh, texts, parts)

    leaves = {name: value.clone().requires_grad_() for name, value in {**parts, "z": z_Bh}.items()}
    expected = library_loss(leaves["z"], texts, leaves)
    assert loss == pytest.approx(expected.item(), rel=1e-12)
    expected.backward()
    for name, found in gradients.items():
        np.testing.assert_allclose(found.numpy(), leaves[name].grad.numpy(), rtol=1e-9, atol=1e-12, err_msg=name)


def test_batch_mates_and_their_order_never_change_the_loss_or_the_gradient_of_its_z():
    decoder = Decoder(latent=4, cells=8, vocabulary=30, word_columns=5)
    rng = np.random.default_rng(5)
    texts = [[*rng.integers(1, 30, rng.integers(0, 9)).tolist(), END] for _ in range(20)]
    parts = {name: part.float() for name, part in some_parts(decoder).items()}
    z_Bh = some_z(20, decoder).float()

    def of(index: list[int]) -> tuple[np.ndarray, np.ndarray]:
        loss, gradients = loss_and_gradients(decoder, z_Bh[index], [texts[i] for i in index], parts)
        return np.array([loss], np.float32), gradients["z"].numpy()

    alone = [of([i]) for i in range(20)]
    losses, by_z = (np.concatenate(found) for found in zip(*alone, strict=True))
    for _ in range(5):
        index = rng.permutation(20)[: rng.integers(2, 21)].tolist()
        found_loss, found_by_z = of(index)
        assert_equal_but_for_rounding(found_loss, losses[index].sum(keepdims=True))
        assert_equal_but_for_rounding(found_by_z, by_z[index])


def test_a_decoder_learns_to_say_each_text_from_its_z():
    texts = [[2, 3, END], [3, 2, END], [4, 4, 2, END], [END]]
    decoder = Decoder(latent=4, cells=8, vocabulary=5, word_columns=4)
    parts = dict(decoder.initial(np.random.Generator(np.random.Philox(1))))
    z_Bh, num_words = torch.eye(4, dtype=torch.float64), sum(map(len, texts))
    before, _ = loss_and_gradients(decoder, z_Bh, texts, parts)
    assert before / num_words == pytest.approx(math.log(5), abs=0.3), "a new decoder knows nothing"
    for _ in range(150):
        _, gradient = loss_and_gradients(decoder, z_Bh, texts, parts)
        parts = {name: part - 0.3 * gradient[name] for name, part in parts.items()}
    assert loss_and_gradients(decoder, z_Bh, texts, parts)[0] / num_words < 0.1


def test_a_start_is_the_same_for_the_same_seed_and_within_its_stated_range():
    decoder = Decoder(latent=4, cells=9, vocabulary=30, word_columns=16)

    def start() -> dict[str, torch.Tensor]:
        return dict(decoder.initial(np.random.Generator(np.random.Philox(key=7))))

    parts = start()
    assert {name: tuple(part.shape) for name, part in parts.items()} == dict(decoder.parts)
    assert all(torch.equal(part, again) for part, again in zip(parts.values(), start().values(), strict=True))
    reach = {"E": 1, "W_x": 1 / 4, "W_z": 1 / 2, "W_rec": 1 / 3, "W_out": 1 / 3}  # 1/√16, 1/√4, 1/√9
    for name, furthest in reach.items():
        assert 0.9 * furthest < parts[f"decoder.{name}"].abs().max() <= furthest
    assert not parts["decoder.b_out"].any()
    assert parts["decoder.b"].unflatten(0, (4, 9)).unique(dim=1).flatten().tolist() == [0, 1, 0, 0]


@pytest.mark.gpu
def test_a_gpu_gives_the_losses_and_gradients_of_the_cpu():
    decoder = Decoder(latent=16, cells=32, vocabulary=3000, word_columns=16)
    rng = np.random.default_rng(6)
    texts = [[*rng.integers(1, 3000, rng.integers(0, 12)).tolist(), END] for _ in range(64)]
    parts = {name: part.float() for name, part in some_parts(decoder).items()}
    z_Bh, found = some_z(64, decoder).float(), []
    for place in (torch.device("cpu"), torch.device("cuda", 0)):
        there = {name: part.to(place) for name, part in parts.items()}
        loss, gradients = loss_and_gradients(decoder, z_Bh.to(place), texts, there)
        found.append([torch.tensor(loss), *(gradient.cpu() for gradient in gradients.values())])
    for on_cpu, on_gpu in zip(*found, strict=True):
        torch.testing.assert_close(on_gpu, on_cpu, rtol=1e-3, atol=1e-4)
