"""Where there is no GPU, Triton's interpreter runs the kernels on the CPU: asked for before they are imported."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture
def place() -> torch.device:
    """Where the kernels run in this process."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
