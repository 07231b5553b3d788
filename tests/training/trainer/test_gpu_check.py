import json

import numpy as np
import pytest
import torch

from clicktower.schemas.errors import StageError
from clicktower.training.model.parameters import CPU, Device
from clicktower.training.trainer import gpu_check
from clicktower.training.trainer.gpu_check import (
    device_of_gpu,
    difference,
    gpu_problem,
    kinds_of_workers,
    require_right_gpu,
)
from clicktower.training.trainer.large_update import Workers


@pytest.fixture
def small(monkeypatch):
    """A micro-batch for Triton's interpreter."""
    monkeypatch.setattr(gpu_check, "NUM_PAIRS", 4)
    monkeypatch.setattr(gpu_check, "LONGEST", 5)


@pytest.mark.slow
def test_the_kernels_pass_and_a_wrong_one_does_not(small, place, monkeypatch):
    device = Device(place, fused=True)
    assert difference(device) == ""
    from clicktower.training.towers import gpu_recurrent

    backward = gpu_recurrent._LSTMSteps.backward

    def truncated(ctx, by_last):
        batch, _, switches = ctx.of
        ctx.of = batch, 2, switches
        return backward(ctx, by_last)

    monkeypatch.setattr(gpu_recurrent._LSTMSteps, "backward", staticmethod(truncated))
    assert "the gradient of lstm is off by" in difference(device)


def gradients(*offsets: float):
    """`_gradient` of a device that is off by another number each time."""
    rest = iter(offsets)

    def gradient(recipe, device):
        right = np.linspace(-1, 1, 9)
        return [right] if recipe.dtype == "float64" else [right + next(rest)]

    return gradient


@pytest.mark.parametrize(
    ("offsets", "problem"),
    [
        ((1e-5,) * 4, ""),
        ((1e-5, 2e-5), "two runs of one micro-batch of lstm give different bits"),
        ((1e-5, 1e-5, 3e-5, 3e-5), "the gradient of bilstm is off by 3e-05"),
        ((float("nan"),) * 2, "two runs of one micro-batch"),
    ],
)
def test_what_is_wrong_is_said(offsets, problem, monkeypatch):
    monkeypatch.setattr(gpu_check, "_gradient", gradients(*offsets))
    found = difference(CPU)
    assert found.startswith(problem) if problem else not found


def test_a_kernel_that_cannot_be_compiled_is_a_problem(monkeypatch):
    def fail(recipe, device):
        raise RuntimeError("no ptxas\nand more")

    monkeypatch.setattr(gpu_check, "_gradient", fail)
    assert difference(CPU) == "RuntimeError: no ptxas"


@pytest.fixture
def card(monkeypatch, tmp_path):
    """A GPU of this name, and the checks that were made of it."""
    checks = []
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Card 1")
    monkeypatch.setattr(gpu_check, "open_device", lambda name: name)
    monkeypatch.setattr(gpu_check, "difference", lambda name: checks.append(name) or "")
    return checks


def test_a_card_is_checked_once_and_another_one_again(card, monkeypatch):
    assert [gpu_problem("cuda"), gpu_problem("cuda"), gpu_problem("cuda-eager")] == ["", "", ""]
    assert card == ["cuda", "cuda-eager"]
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Card 2")
    gpu_problem("cuda")
    monkeypatch.setattr(gpu_check, "_driver", lambda: "another")
    gpu_problem("cuda")
    assert card == ["cuda", "cuda-eager", "cuda", "cuda"]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"kind": "another", "problem": ""}'])
def test_a_damaged_answer_is_no_answer(card, content, tmp_path):
    gpu_problem("cuda")
    (answer,) = (tmp_path / ".cache" / "clicktower").iterdir()
    answer.write_bytes(content)
    gpu_problem("cuda")
    assert card == ["cuda", "cuda"]
    assert json.loads(answer.read_bytes())["problem"] == ""


def test_a_home_that_cannot_be_written_costs_a_check_each_time(card, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    assert [gpu_problem("cuda"), gpu_problem("cuda")] == ["", ""]
    assert card == ["cuda", "cuda"]


@pytest.mark.parametrize(("bad", "device"), [((), "cuda"), (("cuda",), "cuda-eager"), (("cuda", "cuda-eager"), "cpu")])
def test_training_takes_the_fastest_device_that_passes_and_says_what_does_not(card, bad, device, monkeypatch):
    monkeypatch.setattr(gpu_check, "can_compile", lambda: True)
    monkeypatch.setattr(gpu_check, "difference", lambda name: "wrong" if name in bad else "")
    told = []
    assert device_of_gpu(lambda text, *_: told.append(text)) == device
    for name in bad:
        assert any(f"does not pass the check of the device {name}: wrong" in text for text in told)
        with pytest.raises(StageError, match=r"Card 1, torch .* does not pass the check of the device"):
            require_right_gpu(name)


def test_the_kinds_of_all_workers_are_known_to_each():
    class Second(Workers):
        rank, size = 1, 2

        def add_up(self, values):
            values[0, :6] = torch.tensor(list(b"Card 1"))

    assert kinds_of_workers("Card 2, é", Second()) == ["Card 1", "Card 2, é"]
    assert kinds_of_workers("Card 2", Workers()) == ["Card 2"]
    assert kinds_of_workers("", Workers()) == []
