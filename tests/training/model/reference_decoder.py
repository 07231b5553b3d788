"""The decoder once more, independent of training/: float64 NumPy, one text, one word and one cell at a time.

Gates are 1 (output), 2 (forget), 3 (input), 4 (candidate), as the equations of training.model.decoder number them.
"""

import math

import numpy as np

END = 0


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def word_losses(p: dict[str, np.ndarray], z: np.ndarray, said: list[int]) -> list[float]:
    """-log p of each of the ids of one text, its end among them."""
    cells, vocabulary = p["decoder.W_out"].shape
    y, c, word, found = np.zeros(cells), np.zeros(cells), vocabulary, []
    for following in said:
        x = p["decoder.E"][word] @ p["decoder.W_x"] + z @ p["decoder.W_z"] + y @ p["decoder.W_rec"] + p["decoder.b"]
        now_y = np.zeros(cells)
        for j in range(cells):
            x_1, x_2, x_3, x_4 = (x[gate * cells + j] for gate in range(4))
            c[j] = sigmoid(x_2) * c[j] + sigmoid(x_3) * math.tanh(x_4)
            now_y[j] = sigmoid(x_1) * math.tanh(c[j])
        y = now_y
        scores = [float(y @ p["decoder.W_out"][:, v] + p["decoder.b_out"][v]) for v in range(vocabulary)]
        found.append(math.log(math.fsum(math.exp(score) for score in scores)) - scores[following])
        word = following
    return found


def loss(p: dict[str, np.ndarray], z: np.ndarray, said: list[int]) -> float:
    return math.fsum(word_losses(p, z, said))
