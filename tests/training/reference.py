"""The model once more, independent of training/: float64 NumPy, one text and one step at a time, everything dense.

Parameters of a tower are a dict: LSTM {"Wk", "Rk", "bk" for k in 1 (output gate), 3 (input gate), 4 (candidate)} with
Wk [cells, trigrams], Rk [cells, cells] as eq. 2 prints them; RNN {"W", "R", "b"}.
"""

import numpy as np

Text = list[list[int]]  # words as trigram ids


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def counts(word: list[int], num_trigrams: int) -> np.ndarray:
    lt = np.zeros(num_trigrams)
    for trigram in word:
        lt[trigram] += 1
    return lt


def from_matrix(matrix: np.ndarray, cells: int, kind: str) -> dict[str, np.ndarray]:
    """Parameters out of the trainer's matrix of rows."""
    table, recurrent, bias = matrix[: -cells - 1], matrix[-cells - 1 : -1], matrix[-1]
    if kind == "rnn":
        return {"W": table.T.copy(), "R": recurrent.T.copy(), "b": bias.copy()}
    found = {}
    for at, k in enumerate("134"):
        columns = slice(at * cells, (at + 1) * cells)
        found |= {
            f"W{k}": table[:, columns].T.copy(),
            f"R{k}": recurrent[:, columns].T.copy(),
            f"b{k}": bias[columns].copy(),
        }
    return found


def to_matrix(params: dict[str, np.ndarray], kind: str) -> np.ndarray:
    gates = [""] if kind == "rnn" else ["1", "3", "4"]
    return np.concatenate(
        [np.concatenate([params[p + k].T for k in gates], axis=1) for p in "WR"]
        + [np.concatenate([params["b" + k] for k in gates])[None]]
    )


def embed(p: dict[str, np.ndarray], text: Text, kind: str, *, early=None, last_steps: int = 0) -> np.ndarray:
    """y at the last word. With `early`, all but the last `last_steps` steps use those parameters instead."""
    some = next(iter(p.values()))
    num_trigrams, cells = some.shape[1], some.shape[0]
    y, c = np.zeros(cells), np.zeros(cells)
    for t, word in enumerate(text):
        q = early if early is not None and t < len(text) - last_steps else p
        lt = counts(word, num_trigrams)
        if kind == "rnn":
            y = np.tanh(q["W"] @ lt + q["R"] @ y + q["b"])
            continue
        y_g = np.tanh(q["W4"] @ lt + q["R4"] @ y + q["b4"])
        i = sigmoid(q["W3"] @ lt + q["R3"] @ y + q["b3"])
        o = sigmoid(q["W1"] @ lt + q["R1"] @ y + q["b1"])
        c = c + i * y_g
        y = o * np.tanh(c)
    return y


def cosine(a, b) -> float:
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def loss(query_vector, document_vectors, gamma: float) -> float:
    """eq. 3-5 for one pair; the first document was clicked."""
    relevance = [cosine(query_vector, d) for d in document_vectors]
    return float(np.log1p(sum(np.exp(-gamma * (relevance[0] - r)) for r in relevance[1:])))


def loss_gradient(query_vector, document_vectors, gamma: float):
    """(dl/dq, [dl/dd]) by eq. 7's α and the derivative of the cosine."""
    q, lengths = query_vector, [np.sqrt(d @ d) for d in document_vectors]
    relevance = [cosine(q, d) for d in document_vectors]
    terms = [np.exp(-gamma * (relevance[0] - r)) for r in relevance[1:]]
    alphas = [-gamma * term / (1 + sum(terms)) for term in terms]
    by_relevance = [sum(alphas)] + [-a for a in alphas]
    nq = np.sqrt(q @ q)
    by_query = sum(
        g * (d / (nq * n) - r * q / nq**2)
        for g, d, n, r in zip(by_relevance, document_vectors, lengths, relevance, strict=True)
    )
    by_documents = [
        g * (q / (nq * n) - r * d / n**2)
        for g, d, n, r in zip(by_relevance, document_vectors, lengths, relevance, strict=True)
    ]
    return by_query, by_documents


def back_propagate(p, text: Text, by_y: np.ndarray, kind: str, last_steps: int = 0) -> dict[str, np.ndarray]:
    """Gradient of by_y · y(last) in every parameter, through the last `last_steps` steps (0: all)."""
    some = next(iter(p.values()))
    num_trigrams, cells = some.shape[1], some.shape[0]
    steps, y, c = [], np.zeros(cells), np.zeros(cells)
    for word in text:
        lt, before, c_before = counts(word, num_trigrams), y, c
        if kind == "rnn":
            y = np.tanh(p["W"] @ lt + p["R"] @ y + p["b"])
            steps.append((lt, before, y))
            continue
        y_g, i, o = (
            f(p["W" + k] @ lt + p["R" + k] @ before + p["b" + k])
            for f, k in ((np.tanh, "4"), (sigmoid, "3"), (sigmoid, "1"))
        )
        c = c_before + i * y_g
        y = o * np.tanh(c)
        steps.append((lt, before, y_g, i, o, c))
    total = {name: np.zeros_like(value) for name, value in p.items()}
    by_c = np.zeros(cells)
    for step in reversed(steps[-last_steps:] if last_steps else steps):
        if kind == "rnn":
            lt, before, y = step
            inner = {"": by_y * (1 - y**2)}
        else:
            lt, before, y_g, i, o, c = step
            by_c = by_c + by_y * o * (1 - np.tanh(c) ** 2)
            inner = {"1": by_y * np.tanh(c) * o * (1 - o), "3": by_c * y_g * i * (1 - i), "4": by_c * i * (1 - y_g**2)}
        by_y = np.zeros(cells)
        for k, z in inner.items():
            total["W" + k] += np.outer(z, lt)
            total["R" + k] += np.outer(z, before)
            total["b" + k] += z
            by_y = by_y + p["R" + k].T @ z
    return total
