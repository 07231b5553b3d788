"""A head once more, independent of training/: float64 Python, one text or pair and one number at a time."""

import math

import numpy as np

Params = dict[str, np.ndarray]


def features(kind: str, vectors: tuple[np.ndarray, ...], p: Params, rows: int) -> np.ndarray:
    """The matrix of features of one text or pair, [rows, row width]."""
    if kind == "plain":
        return vectors[0].reshape(rows, -1)
    a, b = vectors
    if kind == "w2":
        h = len(a) // 2
        return np.array(
            [
                [(a[i] - b[i]) ** 2 for i in range(h)],
                [(a[h + i] - b[h + i]) ** 2 for i in range(h)],
                [a[i] * b[i] for i in range(h)],
            ]
        )
    if kind == "siamese":
        every = [*a, *b, *(abs(x - y) for x, y in zip(a, b, strict=True)), *(x * y for x, y in zip(a, b, strict=True))]
        return np.array(every).reshape(4 * rows, -1)
    premise, hypothesis = a.reshape(rows, -1), b.reshape(rows, -1)
    f_p = [premise[i] @ p["head.W_fp"][i] for i in range(rows)]
    f_h = [hypothesis[i] @ p["head.W_fh"][i] for i in range(rows)]
    return np.array(f_p) * np.array(f_h)


def logits(
    kind: str,
    vectors: tuple[np.ndarray, ...],
    p: Params,
    rows: int,
    *,
    keep_features: np.ndarray | None = None,
    keep_hidden: np.ndarray | None = None,
    dropout: float = 0.0,
) -> np.ndarray:
    """The logits of one text or pair."""
    x = features(kind, vectors, p, rows)
    if keep_features is not None:
        x = np.where(keep_features.reshape(x.shape), x / (1 - dropout), 0.0)
    num_rows, width = x.shape
    if "head.W_1" in p:
        flat, weights = x.ravel(), p["head.W_1"]
        arrived = [math.fsum(flat * weights[:, j]) for j in range(weights.shape[1])]
    else:
        rows_of_one = [x[i] @ p["head.W_v"][i] for i in range(num_rows)]
        columns_of_one = [x[:, j] @ p["head.W_h"][j] for j in range(width)]
        arrived = [number for group in [*rows_of_one, *columns_of_one] for number in group]
    hidden = [max(0.0, number + bias) for number, bias in zip(arrived, p["head.b_1"], strict=True)]
    if keep_hidden is not None:
        hidden = [h / (1 - dropout) if kept else 0.0 for h, kept in zip(hidden, keep_hidden, strict=True)]
    found = p["head.b_2"].copy()
    for j, h in enumerate(hidden):
        found += h * p["head.W_2"][j]
    return found
