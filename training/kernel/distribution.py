"""The variational tower's means and deviations (training.towers.variational), above the states that the kernels give.

Shapes: N texts, D states of both directions, h dimensions of the distribution.
"""

from collections.abc import Mapping

import numpy as np
import torch

from training.towers.variational import SIGMA_MIN


class Distribution:
    """States -> μ and σ side by side, one text at a time: its bits do not depend on the texts beside it."""

    def __init__(self, parts: Mapping[str, torch.Tensor]) -> None:
        self._weights_De = np.concatenate([parts["W_mu"].numpy(), parts["W_sigma"].numpy()], axis=1)
        self._bias_e = np.concatenate([parts["b_mu"].numpy(), parts["b_sigma"].numpy()])
        self.dimensions = len(self._bias_e)

    def __call__(self, state_ND: np.ndarray) -> np.ndarray:
        """float32 [N, 2 h]."""
        found_Ne = np.matmul(state_ND[:, None, :], self._weights_De)[:, 0] + self._bias_e
        argument_Nh = found_Ne[:, self.dimensions // 2 :]
        argument_Nh[:] = np.logaddexp(argument_Nh, np.float32(0)) + np.float32(SIGMA_MIN)
        return found_Ne
