"""The gradient of the paper's appendix (eq. 9-44), step by step in float64, beside exact back-propagation in time.

On the query's side: R is the cosine of y(T) and a fixed y_D. From the last word the appendix follows two routes back:
the error of the RNN, or of the output gate, through its own W_rec; and c(t) to c(t-1), through the forget gate. It
leaves out how y(t-1) reaches y(t) through the other gates and the candidate.
"""

import numpy as np
import pytest
import torch

from clicktower.schemas.errors import UsageError
from clicktower.schemas.section import changed
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
COSINES = {2: (0.96, 0.99), len(WORDS): (0.91, 0.95)}  # of the appendix and the exact gradient, as docs/model.md says
LSTMS = {"the paper's lstm": {}, "with forget gate": {"forget_gate": True}}
OTHER = np.random.default_rng(2).normal(size=CELLS)  # y_D


def tower(name: str, **changes) -> Recipe:
    return varied(recipe_with(name=name, cells=CELLS, dtype="float64", initial_range=0.2), tower=name, **changes)


def parameters(recipe: Recipe) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """(W, the other parts)."""
    layout = layout_of(recipe, TRIGRAMS)
    return layout.split(initial_parameters(recipe, layout, "query"))


def trained_by(recipe: Recipe, steps: int) -> dict[str, np.ndarray]:
    """dR by W_rec and b, as the trainer computes it with T = steps."""
    table_RG, parts = parameters(recipe)
    parts = {name: part.detach().requires_grad_() for name, part in parts.items()}
    batch = text_batch([(table_of([list(range(len(WORDS)))], WORDS), np.array([0]))])
    y_1d, _ = tower_of(recipe).forward(word_inputs(table_RG[batch.rows], batch), parts, batch, steps)
    torch.cosine_similarity(y_1d[0], torch.from_numpy(OTHER), dim=0).backward()
    return {name: part.grad.numpy() for name, part in parts.items()}


def by_autograd(recipe: Recipe, sees: str) -> dict[str, np.ndarray]:
    """dR by W_rec and b where the arguments of the gates named in `sees` alone pass the gradient on to y(t-1)."""
    table_RG, parts = parameters(recipe)
    parts = {name: part.detach().requires_grad_() for name, part in parts.items()}
    y, c, d = torch.zeros(CELLS, dtype=torch.float64), torch.zeros(CELLS, dtype=torch.float64), CELLS
    gates = "ofig" if recipe.tower.forget_gate else "oig"
    for word in WORDS:
        inputs = table_RG[word].sum(0) + parts["b"]
        argument = {
            gate: inputs[at : at + d] + (y if gate in sees else y.detach()) @ parts["W_rec"][:, at : at + d]
            for gate, at in zip(gates, range(0, d * len(gates), d), strict=True)
        }
        f = argument["f"].sigmoid() if "f" in gates else 1.0
        c = f * c + argument["i"].sigmoid() * argument["g"].tanh()
        y = argument["o"].sigmoid() * c.tanh()
    torch.cosine_similarity(y, torch.from_numpy(OTHER), dim=0).backward()
    return {name: part.grad.numpy() for name, part in parts.items()}


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
    """The output gate by its error through time; others by ∂c(t) = diag(f) ∂c(t-1) + b(t) y(t-1)', from T steps ago.

    b(t) is y_g i (1 - i) of the input gate, c(t-1) f (1 - f) of the forget gate, i (1 - y_g)(1 + y_g) of the candidate.
    """
    (table_RG, parts), d = parameters(recipe), CELLS
    table_RG, recurrent, bias = table_RG.numpy(), parts["W_rec"].numpy(), parts["b"].numpy()
    gates = "ofig" if recipe.tower.forget_gate else "oig"
    at = {gate: slice(n * d, (n + 1) * d) for n, gate in enumerate(gates)}
    y, c, o = [np.zeros(d)], [np.zeros(d)], [np.zeros(d)]
    by_recurrent, by_bias = np.zeros_like(recurrent), np.zeros_like(bias)  # of gates f, i, g: ∂c(t), cell by cell
    for t, word in enumerate(WORDS):
        argument = table_RG[word].sum(0) + bias + y[-1] @ recurrent
        o_t, i, g = (
            1 / (1 + np.exp(-argument[at["o"]])),
            1 / (1 + np.exp(-argument[at["i"]])),
            np.tanh(argument[at["g"]]),
        )
        f = 1 / (1 + np.exp(-argument[at["f"]])) if "f" in gates else np.ones(d)
        within = {"f": c[-1] * f * (1 - f), "i": g * i * (1 - i), "g": i * (1 - g) * (1 + g)}
        for gate in gates[1:]:
            now = within[gate] if t >= len(WORDS) - steps else 0 * within[gate]
            by_recurrent[:, at[gate]] = by_recurrent[:, at[gate]] * f + np.outer(y[-1], now)
            by_bias[at[gate]] = by_bias[at[gate]] * f + now
        c.append(f * c[-1] + i * g)
        o.append(o_t)
        y.append(o_t * np.tanh(c[-1]))
    last = error_at_the_end(y[-1])
    for gate in gates[1:]:
        of_cell = (1 - np.tanh(c[-1])) * (1 + np.tanh(c[-1])) * o[-1] * last
        by_recurrent[:, at[gate]] *= of_cell
        by_bias[at[gate]] *= of_cell
    delta = o[-1] * (1 - o[-1]) * np.tanh(c[-1]) * last
    for t in range(len(WORDS), len(WORDS) - steps, -1):
        by_recurrent[:, at["o"]] += np.outer(y[t - 1], delta)
        by_bias[at["o"]] += delta
        delta = o[t - 1] * (1 - o[t - 1]) * np.tanh(c[t - 1]) * (recurrent[:, at["o"]] @ delta)
    return {"W_rec": by_recurrent, "b": by_bias}


def require_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name, values in expected.items():
        assert_equal_but_for_rounding(found[name], values)


@pytest.mark.parametrize("steps", STEPS)
def test_of_the_rnn_the_appendix_is_the_gradient_at_every_truncation(steps):
    require_equal(trained_by(tower("rnn"), steps), appendix_rnn(tower("rnn"), steps))


@pytest.mark.parametrize("changes", LSTMS.values(), ids=LSTMS)
def test_of_the_lstm_the_appendix_is_the_gradient_of_the_last_step(changes):
    recipe = tower("lstm", **changes)
    require_equal(trained_by(recipe, 1), appendix_lstm(recipe, 1))


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("changes", LSTMS.values(), ids=LSTMS)
def test_an_lstm_can_train_by_the_appendix_at_every_truncation(changes, steps):
    recipe = tower("lstm", gradient="appendix", **changes)
    require_equal(trained_by(recipe, steps), appendix_lstm(recipe, steps))


def test_the_gradient_of_the_appendix_is_not_for_peepholes_nor_compiled():
    gradients = ("exact", "appendix")
    assert [can_train(tower("lstm", gradient=name, dtype="float32")) for name in gradients] == [True, False]
    with pytest.raises(UsageError, match="peepholes"):
        changed(tower("lstm", peepholes=True), {"tower.gradient": "appendix"})


@pytest.mark.parametrize("steps", STEPS[1:])
@pytest.mark.parametrize("changes", LSTMS.values(), ids=LSTMS)
def test_of_the_lstm_the_appendix_points_a_little_elsewhere_from_the_second_step_on(changes, steps):
    recipe = tower("lstm", **changes)
    exact, appendix = (of(recipe, steps)["W_rec"] for of in (trained_by, appendix_lstm))
    for gate in range(exact.shape[1] // CELLS):
        first, second = (of[:, gate * CELLS : (gate + 1) * CELLS].ravel() for of in (exact, appendix))
        exact_length, length = np.linalg.norm(first), np.linalg.norm(second)
        least, most = COSINES.get(steps, (0.91, 0.99))
        assert least <= round(first @ second / exact_length / length, 2) <= most
        assert 0.9 <= round(length / exact_length, 1) <= 1 or steps < len(WORDS)


@pytest.mark.parametrize("changes", LSTMS.values(), ids=LSTMS)
def test_of_the_lstm_the_appendix_is_autograds_gradient_where_those_paths_are_cut(changes):
    recipe = tower("lstm", **changes)
    appendix = appendix_lstm(recipe, len(WORDS))
    through_output, through_cell = by_autograd(recipe, "o"), by_autograd(recipe, "")
    for name, found in appendix.items():
        assert_equal_but_for_rounding(found[..., :CELLS], through_output[name][..., :CELLS])
        assert_equal_but_for_rounding(found[..., CELLS:], through_cell[name][..., CELLS:])
    require_equal(by_autograd(recipe, "ofig"), trained_by(recipe, len(WORDS)))
