"""The fused kernels through Triton's compiler and NVIDIA's assembler, which need no GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clicktower.training.towers.gpu_recurrent import OPTIONS

ROOT = Path(__file__).parents[3]
NAMES = ("lstm_forward", "full_lstm_backward")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory) -> dict[str, dict]:
    """What became of some kernels on Hopper (compute capability 9.0), compiled anew."""
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    command = [sys.executable, "-m", "tests.training.towers.compile_kernels", "sm_90", *NAMES]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_compiles_for_hopper_and_fits_its_registers(name, kernels):
    kernel = kernels[name]
    assert kernel["local_bytes"] == 0  # nothing spilled
    threads = 32 * OPTIONS["num_warps"]
    assert 4 * threads * kernel["registers"] <= 65_536  # four programs share the registers of a multiprocessor
    assert kernel["shared_bytes"] <= 48 * 1024


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_what_is_fetched_ahead_crosses_no_barrier(name, kernels):
    """y(t-1) goes from step to step through the trace: a copy that began before the barrier would read the old one."""
    assert kernels[name]["copies_at_barriers"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_products_are_float32_multiply_adds_and_never_tensor_cores(name, kernels):
    words = kernels[name]["instructions"]
    assert words["HMMA"] == 0  # what TF32 would be
    assert words["FFMA"] >= 4 * words["LDS"]  # operands are used several times for each read of shared memory
