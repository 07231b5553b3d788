import subprocess
import sys
from pathlib import Path

import pytest
import torch

from clicktower.schemas.errors import UsageError
from clicktower.training.model.parameters import CPU
from clicktower.training.model.recipe import DEVICES, recipe
from clicktower.training.trainer.gpu_check import open_device
from clicktower.training.trainer.job import arithmetic_of
from clicktower.training.trainer.launch import workers_device
from clicktower.training.trainer.process_group import gpu_share, process_group_backend

ROOT = Path(__file__).parents[3]


def test_each_device_is_an_arithmetic_of_its_own():
    named = set(DEVICES) - {"auto"}
    assert len({arithmetic_of("torch", recipe("lstm-96"), device) for device in named}) == len(named)


def test_the_cpu_is_the_cpu_and_auto_is_what_there_is():
    assert workers_device("cpu", in_cluster=False) == "cpu"
    assert open_device("cpu") is CPU
    if not torch.cuda.is_available():
        assert workers_device("auto", in_cluster=False) == "cpu"


def test_an_unknown_device_is_refused():
    with pytest.raises(UsageError, match="no device named"):
        workers_device("tpu", in_cluster=False)


@pytest.mark.slow
def test_a_gpu_that_is_not_there_is_refused_by_the_process_that_would_use_it():
    """In a process that sees no GPU, whatever this machine has. The one that asks may be another machine's."""
    script = (
        "from clicktower.training.trainer.gpu_check import open_device\n"
        "from clicktower.training.trainer.launch import workers_device\n"
        "for name in ('cuda', 'cuda-eager'):\n"
        "    try: open_device(workers_device(name, False))\n"
        "    except Exception as error: print(type(error).__name__, error)\n"
        "print(workers_device('auto', False))\n"
    )
    command = ["env", "CUDA_VISIBLE_DEVICES=", sys.executable, "-c", script]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    assert output.pop() == "cpu"
    assert len(output) == 2
    for line in output:
        assert line.startswith("StageError")
        assert "no CUDA GPU" in line
        assert "device=cpu" in line


@pytest.mark.parametrize(
    ("num_workers", "num_gpus", "backend", "share"),
    [
        (2, 0, "gloo", {}),
        (2, 1, "gloo", {"GPU": 1 / 2}),  # NCCL refuses two ranks on one GPU
        (2, 2, "cpu:gloo,cuda:nccl", {"GPU": 1}),
        (2, 8, "cpu:gloo,cuda:nccl", {"GPU": 1}),
        (3, 2, "gloo", {"GPU": 1 / 2}),  # thirds would not fit: a worker's share is of one GPU
    ],
)
def test_workers_have_a_gpu_each_and_nccl_or_share_them_and_gloo(num_workers, num_gpus, backend, share):
    assert process_group_backend(num_workers, num_gpus) == backend
    assert gpu_share(num_workers, num_gpus) == share
