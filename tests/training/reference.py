"""The model once more, independent of training/: float64 NumPy, one text and one step at a time, everything dense.

A kind of tower is a word and its options: "lstm", "lstm forget peepholes", "bilstm", "rnn", "dssm", "clsm 3",
"self_attentive units=3 hops=2", "variational latent=3". Its parameters are a dict, with Wk [units, trigrams] and Rk
[units, units] as the equations print them:

LSTM    Wk, Rk, bk of gate k: 1 (output), 2 (forget), 3 (input), 4 (candidate); pk, the peepholes of 1, 2 and 3
printed_lstm  all of these; Pk, a matrix, instead of pk
bilstm  the same twice, "right " (reading left to right) and "left " before each name
RNN     W, R, b
DSSM    W, b; V, a of the last layer
CLSM    W0, W1, ... for the words of a window from left to right, b; V, a
bag     W
swem    W
cnn     W0, W1, ... as CLSM's, b
gru     W, R, b; in each the rows of the reset gate, the update gate and the candidate
self_attentive  those of bilstm; S1 [attention units, 2 units] and S2 [hops, attention units], the paper's W_s1 and W_s2
max_pooled  those of bilstm
variational  those of bilstm; M [latent, 2 units] and m of the means, S and s of the deviations
"""

import math

import numpy as np

BOTH_WAYS = ("bilstm", "self_attentive", "max_pooled", "variational")
Text = list[list[int]]  # words as trigram ids
Params = dict[str, np.ndarray]


def kind_of(recipe) -> str:
    tower = recipe.tower
    switches = [name for name in ("forget_gate", "peepholes") if getattr(tower, name, False)]
    switches += [] if getattr(tower, "bias", True) else ["unbiased"]
    window = [str(tower.window)] if tower.kind in ("clsm", "cnn") else []
    aggregate = [tower.aggregate] if tower.kind == "swem" else []
    attention = [f"units={tower.attention_units}", f"hops={tower.hops}"] if tower.kind == "self_attentive" else []
    average = ["average"] if getattr(tower, "average_hops", False) else []
    latent = [f"latent={tower.latent}"] if tower.kind == "variational" else []
    return " ".join([tower.kind, *switches, *window, *aggregate, *attention, *average, *latent]).replace(
        "forget_gate", "forget"
    )


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def counts(word: list[int], num_trigrams: int) -> np.ndarray:
    lt = np.zeros(num_trigrams)
    for trigram in word:
        lt[trigram] += 1
    return lt


def from_matrix(matrix: np.ndarray, cells: int, kind: str) -> Params:
    """Parameters out of the trainer's matrix: the table, then each other part from the start of a row."""
    tower, *options = kind.split()
    columns = matrix.shape[1]
    if tower in ("bag", "swem"):
        return {"W": matrix.T.copy()}
    if tower == "cnn":
        table, bias = _parts(matrix, [(cells,)])
        return {f"W{k}": table[:, k * cells : (k + 1) * cells].T.copy() for k in range(int(options[0]))} | {"b": bias}
    if tower in ("rnn", "gru"):
        biases = [] if "unbiased" in options else [(columns,)]
        table, recurrent, *bias = _parts(matrix, [(cells, columns), *biases])
        return {"W": table.T.copy(), "R": recurrent.T.copy(), "b": bias[0] if bias else np.zeros(columns)}
    if tower in ("dssm", "clsm"):
        width = int(options[0]) if options else 1
        hidden = columns // width
        table, bias, last, last_bias = _parts(matrix, [(hidden,), (hidden, cells), (cells,)])
        names = [f"W{k}" for k in range(width)] if tower == "clsm" else ["W"]
        tables = {name: table[:, k * hidden : (k + 1) * hidden].T.copy() for k, name in enumerate(names)}
        return {**tables, "b": bias, "V": last.T.copy(), "a": last_bias}
    assert tower in ("lstm", "printed_lstm", *BOTH_WAYS), f"write the parameters and the equations of {tower} here"
    gates = "1234" if "forget" in options or tower == "printed_lstm" else "134"
    ways = ["right ", "left "] if tower in BOTH_WAYS else [""]
    peeping = [(len(gates) - 1, len(ways) * cells)] if "peepholes" in options else []
    sizes = [int(option.partition("=")[2]) for option in options if "=" in option]
    after: dict[str, tuple[int, ...]] = {}  # the parts after the recurrent ones
    if tower == "self_attentive":
        units, hops = sizes
        after = {"S1": (2 * cells, units), "S2": (units, hops)}
    if tower == "variational":
        (latent,) = sizes
        after = {"M": (2 * cells, latent), "m": (latent,), "S": (2 * cells, latent), "s": (latent,)}
    if tower == "printed_lstm":
        after = {"P": (cells, 3 * cells)}
    shapes = [(cells, columns), (columns,), *peeping, *after.values()]
    table, recurrent, bias, *rest = _parts(matrix, shapes)
    peepholes = rest[: len(peeping)]
    found = {name: part.T.copy() for name, part in zip(after, rest[len(peeping) :], strict=True)}
    if tower == "printed_lstm":
        found = {f"P{k}": part for k, part in zip("123", np.split(found["P"], 3), strict=True)}
    for w, way in enumerate(ways):
        for at, k in enumerate(gates):
            begin = (w * len(gates) + at) * cells
            units = slice(begin, begin + cells)
            found[f"{way}W{k}"] = table[:, units].T.copy()
            found[f"{way}R{k}"] = recurrent[:, units].T.copy()
            found[f"{way}b{k}"] = bias[units].copy()
            if peepholes and k != "4":
                found[f"{way}p{k}"] = peepholes[0][at, w * cells : (w + 1) * cells].copy()
    return found


def _parts(matrix: np.ndarray, shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    columns = matrix.shape[1]
    rows = [math.ceil(math.prod(shape) / columns) for shape in shapes]
    begin = len(matrix) - sum(rows)
    found = [matrix[:begin]]
    for shape, num in zip(shapes, rows, strict=True):
        found.append(matrix[begin : begin + num].ravel()[: math.prod(shape)].reshape(shape).copy())
        begin += num
    return found


def to_matrix(params: Params, kind: str) -> np.ndarray:
    """The trainer's matrix of a plain LSTM or RNN."""
    gates = [""] if kind == "rnn" else ["1", "3", "4"]
    return np.concatenate(
        [np.concatenate([params[p + k].T for k in gates], axis=1) for p in "WR"]
        + [np.concatenate([params["b" + k] for k in gates])[None]]
    )


def embed(p: Params, text: Text, kind: str, *, early: Params | None = None, last_steps: int = 0) -> np.ndarray:
    """The embedding. With `early`, all but the last `last_steps` steps that are read use those parameters instead."""
    tower = kind.split()[0]
    if tower == "dssm":
        bag = sum(counts(word, p["W"].shape[1]) for word in text)
        return np.tanh(p["V"] @ np.tanh(p["W"] @ bag + p["b"]) + p["a"])
    if tower == "bag":
        return sum(p["W"] @ counts(word, p["W"].shape[1]) for word in text)
    if tower == "clsm":
        return _clsm(p, text)
    if tower == "cnn":
        return np.max([np.tanh(x) for x in _windows(p, text)], axis=0)
    if tower == "swem":
        words = [p["W"] @ counts(word, p["W"].shape[1]) for word in text]
        pools = {"aver": [np.mean(words, axis=0)], "max": [np.max(words, axis=0)]}
        return np.concatenate(pools.get(kind.split()[1], pools["aver"] + pools["max"]))
    if tower == "gru":
        return _gru(p, text, early or p, last_steps)
    if tower == "self_attentive":
        weights, states = attention(p, text)
        sums = [sum(a * h for a, h in zip(hop, states, strict=True)) for hop in weights]
        return np.mean(sums, axis=0) if "average" in kind else np.concatenate(sums)
    if tower == "max_pooled":
        return np.max(both_states(p, text), axis=0)
    if tower == "variational":
        ends = embed(p, text, "bilstm", early=early, last_steps=last_steps)
        deviation = [math.log1p(math.exp(x)) + 0.001 for x in p["S"] @ ends + p["s"]]
        return np.concatenate([p["M"] @ ends + p["m"], deviation])
    if tower == "bilstm":
        ends = [
            embed(_way(p, way), words, "lstm", early=early and _way(early, way), last_steps=last_steps)
            for way, words in (("right ", text), ("left ", text[::-1]))
        ]
        return np.concatenate(ends)
    units, num_trigrams = p["W" if tower == "rnn" else "W1"].shape
    y, c = np.zeros(units), np.zeros(units)
    for t, word in enumerate(text):
        q = early if early is not None and t < len(text) - last_steps else p
        lt = counts(word, num_trigrams)
        if tower == "rnn":
            y = np.tanh(q["W"] @ lt + q["R"] @ y + q["b"])
        else:
            y, c = _lstm_step(q, lt, y, c)
    return y


def _lstm_step(q: Params, lt: np.ndarray, y: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(y(t), c(t)) of eq. 2, cell by cell."""
    now_y, now_c = np.zeros_like(y), np.zeros_like(c)

    def argument(k: str, j: int, cells: np.ndarray) -> float:
        peephole = q["p" + k][j] * cells[j] if "p" + k in q else q["P" + k][j] @ cells if "P" + k in q else 0.0
        return q["W" + k][j] @ lt + q["R" + k][j] @ y + q["b" + k][j] + peephole

    for j in range(len(y)):
        i = sigmoid(argument("3", j, c))
        f = sigmoid(argument("2", j, c)) if "W2" in q else 1.0
        now_c[j] = f * c[j] + i * math.tanh(argument("4", j, c))
    for j in range(len(y)):
        now_y[j] = sigmoid(argument("1", j, now_c)) * math.tanh(now_c[j])
    return now_y, now_c


def both_states(p: Params, text: Text) -> np.ndarray:
    """h(t) of both directions concatenated, [words, 2 units], word by word."""
    ends = []
    for way, words in (("right ", text), ("left ", text[::-1])):
        q = _way(p, way)
        units, num_trigrams = q["W1"].shape
        y, c, states = np.zeros(units), np.zeros(units), []
        for word in words:
            y, c = _lstm_step(q, counts(word, num_trigrams), y, c)
            states.append(y)
        ends.append(states)
    right, left = ends
    return np.array([np.concatenate([r, s]) for r, s in zip(right, left[::-1], strict=True)])


def attention(p: Params, text: Text) -> tuple[np.ndarray, np.ndarray]:
    """(A [hops, words], H [words, 2 units]) of Lin et al., eq. 1-6, word by word."""
    h = both_states(p, text)
    scores = [[math.fsum(hop * np.tanh(p["S1"] @ h_t)) for h_t in h] for hop in p["S2"]]
    return np.array([[math.exp(s) / math.fsum(map(math.exp, of_hop)) for s in of_hop] for of_hop in scores]), h


def own_loss(p: Params, text: Text, kind: str, penalty: float) -> float:
    """What a text adds to the loss beside its pairs: of self_attentive the penalty of eq. 8 times its coefficient."""
    if not penalty:
        return 0.0
    a, _ = attention(p, text)
    return penalty * sum((math.fsum(a[j] * a[k]) - (j == k)) ** 2 for j in range(len(a)) for k in range(len(a)))


def _clsm(p: Params, text: Text) -> np.ndarray:
    return np.tanh(p["V"] @ np.max([np.tanh(x) for x in _windows(p, text)], axis=0) + p["a"])


def _windows(p: Params, text: Text) -> list[np.ndarray]:
    """What arrives at the units from the window around each word."""
    width = sum(name.startswith("W") for name in p)
    num_trigrams = p["W0"].shape[1]
    nothing = [np.zeros(num_trigrams)] * (width // 2)
    words = nothing + [counts(word, num_trigrams) for word in text] + nothing
    return [sum(p[f"W{k}"] @ words[t + k] for k in range(width)) + p["b"] for t in range(len(text))]


def _gru(p: Params, text: Text, early: Params, last_steps: int) -> np.ndarray:
    y = np.zeros(len(p["b"]) // 3)
    for t, word in enumerate(text):
        q = early if last_steps and t < len(text) - last_steps else p
        arriving = np.split(q["W"] @ counts(word, q["W"].shape[1]) + q["b"], 3)
        to_reset, to_update, to_candidate = np.split(q["R"], 3)
        reset, update = sigmoid(arriving[0] + to_reset @ y), sigmoid(arriving[1] + to_update @ y)
        y = update * y + (1 - update) * np.tanh(arriving[2] + to_candidate @ (reset * y))
    return y


def _way(p: Params, way: str) -> Params:
    return {name.removeprefix(way): value for name, value in p.items() if name.startswith(way)}


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


def back_propagate(p: Params, text: Text, by_y: np.ndarray, kind: str, last_steps: int = 0) -> Params:
    """Gradient of by_y · y(last) in every parameter of a plain LSTM or RNN, through the last `last_steps` steps."""
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
