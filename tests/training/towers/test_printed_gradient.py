"""The gradient of the paper's appendix (eq. 9-44), step by step in float64, beside exact back-propagation in time.

On the query's side: R is the cosine of y(T) and a fixed y_D. From the last word the appendix follows two routes back:
the error of the RNN, or of each gate of the LSTM, through its own W_rec (eq. 43 and 44); and c(t) to c(t-1), through
the forget gate. It leaves out how one gate's error reaches another.
"""

import numpy as np
import pytest
import torch

from clicktower.training.model.kernel_towers import can_train
from clicktower.training.model.parameters import initial_parameters, layout_of, tower_of
from clicktower.training.model.recipe import Recipe
from clicktower.training.towers.text_batch import text_batch
from clicktower.training.towers.tower import word_inputs
from tests.recipes import recipe_with, varied
from tests.rounding import assert_equal_but_for_rounding
from tests.training.texts import table_of

CELLS, TRIGRAMS = 96, 2_000
WORDS = np.random.default_rng(1).integers(TRIGRAMS, size=(6, 5)).tolist()
STEPS = range(1, len(WORDS) + 1)
# The least cosine of the appendix and the exact gradient, by forget gate: (after three to six words, after two).
COSINES = {False: (0.85, 0.92), True: (0.7, 0.88)}
LSTMS = {
    "the paper's lstm": {},
    "with forget gate": {"forget_gate": True},
    "with peepholes": {"peepholes": True},
    "all of eq. 2": {"forget_gate": True, "peepholes": True},
}
OTHER = np.random.default_rng(2).normal(size=CELLS)  # y_D


def tower(name: str, **changes) -> Recipe:
    return varied(recipe_with(name=name, cells=CELLS, dtype="float64", initial_range=0.2), tower=name, **changes)


def parameters(recipe: Recipe) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """(W, the other parts)."""
    layout = layout_of(recipe, TRIGRAMS)
    return layout.split(initial_parameters(layout, "query"))


def trained_by(recipe: Recipe, steps: int) -> dict[str, np.ndarray]:
    """dR by W and the other parts, as the trainer computes it with T = steps."""
    table_RG, parts = parameters(recipe)
    table_RG = table_RG.detach().requires_grad_()
    parts = {name: part.detach().requires_grad_() for name, part in parts.items()}
    batch = text_batch([(table_of([list(range(len(WORDS)))], WORDS), np.array([0]))])
    truncated = tower_of(varied(recipe, truncate_steps=steps))
    y_1d, _ = truncated.forward(word_inputs(table_RG[batch.rows], batch), parts, batch)
    torch.cosine_similarity(y_1d[0], torch.from_numpy(OTHER), dim=0).backward()
    return {"W": table_RG.grad.numpy(), **{name: part.grad.numpy() for name, part in parts.items()}}


def error_at_the_end(y: np.ndarray) -> np.ndarray:
    """b c y_D - a b³ c y_Q, of the cosine a b c with b = 1/|y_Q| and c = 1/|y_D|."""
    a, b, c = y @ OTHER, 1 / np.linalg.norm(y), 1 / np.linalg.norm(OTHER)
    return b * c * OTHER - a * b**3 * c * y


def appendix_rnn(recipe: Recipe, steps: int) -> dict[str, np.ndarray]:
    """δ(T) = (1 - y)(1 + y) v, δ(t-1) = (1 - y(t-1))(1 + y(t-1)) W_rec' δ(t); the sum of δ(t) y(t-1)' over T steps."""
    table_RG, parts = parameters(recipe)
    table_RG, recurrent, bias = table_RG.numpy(), parts["W_rec"].numpy(), parts["b"].numpy()
    y = [np.zeros(CELLS)]
    for word in WORDS:
        y.append(np.tanh(table_RG[word].sum(0) + bias + y[-1] @ recurrent))
    by_recurrent, by_bias = np.zeros_like(recurrent), np.zeros_like(bias)
    delta = (1 - y[-1]) * (1 + y[-1]) * error_at_the_end(y[-1])
    for t in range(len(WORDS), len(WORDS) - steps, -1):
        by_recurrent += np.outer(y[t - 1], delta)
        by_bias += delta
        delta = (1 - y[t - 1]) * (1 + y[t - 1]) * (recurrent @ delta)
    return {"W_rec": by_recurrent, "b": by_bias}


def appendix_lstm(recipe: Recipe, steps: int) -> dict[str, np.ndarray]:
    """The sum over the last T steps of δ(t) y(t-1)' for the output gate (43), and of diag(δ(t)) ∂c(t) for others (44).

    ∂c(t) = diag(f) ∂c(t-1) + diag(b(t)) y(t-1)', from T steps ago, where b(t) is y_g i (1 - i) of the input gate,
    c(t-1) f (1 - f) of the forget gate, i (1 - y_g)(1 + y_g) of the candidate. In the place of y(t-1) W has l(t), b has
    1, and a peephole, which is the diagonal of what is printed, c(t-1).
    """
    (table_RG, parts), d = parameters(recipe), CELLS
    table_RG, recurrent, bias = table_RG.numpy(), parts["W_rec"].numpy(), parts["b"].numpy()
    peepholes = parts["W_peep"].numpy() if recipe.tower.peepholes else np.zeros((3, d))
    gates = "ofig" if recipe.tower.forget_gate else "oig"
    at = {gate: slice(n * d, (n + 1) * d) for n, gate in enumerate(gates)}
    peephole = dict(zip(gates[:-1], peepholes, strict=False))
    y, c, o = [np.zeros(d)], [np.zeros(d)], [np.zeros(d)]
    by_cell: list[dict[str, np.ndarray]] = []  # ∂c(t) of each word: by [l, y(t-1), 1, c(t-1)] and gate
    inputs = []
    now = dict.fromkeys(gates[1:], np.zeros(1))
    for t, word in enumerate(WORDS):
        argument = table_RG[word].sum(0) + bias + y[-1] @ recurrent
        i = sigmoid(argument[at["i"]] + peephole["i"] * c[-1])
        f = sigmoid(argument[at["f"]] + peephole["f"] * c[-1]) if "f" in gates else np.ones(d)
        g = np.tanh(argument[at["g"]])
        within = {"f": c[-1] * f * (1 - f), "i": g * i * (1 - i), "g": i * (1 - g) * (1 + g)}
        letters = np.zeros(len(table_RG))
        np.add.at(letters, word, 1)
        inputs.append((letters, y[-1], np.ones(1)))
        row = np.concatenate(inputs[-1])
        counts = t >= len(WORDS) - steps
        now = {
            gate: now[gate] * f + counts * np.vstack([np.outer(row, within[gate]), c[-1] * within[gate]])
            for gate in gates[1:]
        }
        by_cell.append(now)
        c.append(f * c[-1] + i * g)
        o.append(sigmoid(argument[at["o"]] + peephole["o"] * c[-1]))
        y.append(o[-1] * np.tanh(c[-1]))
    total = np.zeros((len(table_RG) + d + 2, len(gates) * d))
    v = error_at_the_end(y[-1])
    back = dict.fromkeys(gates, v)  # v at the last word, then W_rec' δ(t+1)
    for t in range(len(WORDS), len(WORDS) - steps, -1):
        h = np.tanh(c[t])
        for gate in gates:
            if gate == "o":
                delta = o[t] * (1 - o[t]) * h * back[gate]
                total[:, at[gate]] += np.vstack([np.outer(np.concatenate(inputs[t - 1]), delta), c[t] * delta])
            else:
                delta = (1 - h) * (1 + h) * o[t] * back[gate]
                total[:, at[gate]] += by_cell[t - 1][gate] * delta
            back[gate] = recurrent[:, at[gate]] @ delta
    by_table, by_recurrent, (by_bias, by_peephole) = np.split(total, [len(table_RG), len(table_RG) + d])
    found = {"W": by_table, "W_rec": by_recurrent, "b": by_bias}
    return found | ({"W_peep": by_peephole.reshape(-1, d)[:-1]} if recipe.tower.peepholes else {})


def sigmoid(argument: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-argument))


def require_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name, values in expected.items():
        assert_equal_but_for_rounding(found[name], values)


@pytest.mark.parametrize("steps", STEPS)
def test_of_the_rnn_the_appendix_is_the_gradient_at_every_truncation(steps):
    require_equal(trained_by(tower("rnn"), steps), appendix_rnn(tower("rnn"), steps))


@pytest.mark.parametrize("forget_gate", [False, True])
def test_of_an_lstm_without_peepholes_the_appendix_is_the_gradient_of_the_last_step(forget_gate):
    recipe = tower("lstm", forget_gate=forget_gate)
    require_equal(trained_by(recipe, 1), appendix_lstm(recipe, 1))


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("changes", LSTMS.values(), ids=LSTMS)
def test_an_lstm_can_train_by_the_appendix_at_every_truncation(changes, steps):
    recipe = tower("lstm", gradient="appendix", **changes)
    require_equal(trained_by(recipe, steps), appendix_lstm(recipe, steps))


def test_the_gradient_of_the_appendix_is_not_compiled():
    gradients = ("exact", "appendix")
    assert [can_train(tower("lstm", gradient=name, dtype="float32")) for name in gradients] == [True, False]


@pytest.mark.parametrize("steps", STEPS[1:])
@pytest.mark.parametrize("changes", LSTMS.values(), ids=LSTMS)
def test_of_the_lstm_the_appendix_points_elsewhere_from_the_second_step_on(changes, steps):
    recipe = tower("lstm", **changes)
    exact, appendix = (of(recipe, steps)["W_rec"] for of in (trained_by, appendix_lstm))
    for gate in range(exact.shape[1] // CELLS):
        first, second = (of[:, gate * CELLS : (gate + 1) * CELLS].ravel() for of in (exact, appendix))
        exact_length, length = np.linalg.norm(first), np.linalg.norm(second)
        least = COSINES[recipe.tower.forget_gate][steps == 2]
        assert least <= round(first @ second / exact_length / length, 2) <= 0.99
        assert 0.92 <= round(length / exact_length, 2) <= 1.21
