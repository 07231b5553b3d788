"""The towers of Table IV as the paper prints them, under names that begin with `paper-`; other recipes are tuned.

Two towers from random numbers of their own, one step size, μ 0.9/0.995/0.9, each tower's gradient re-normalised, and
the build's random negatives (`build --set num_negatives=8` serves n = 2 to 8). T is the longest text. The paper does
not print γ, ε, the initial range, th_G, the epochs and the minibatch: the first three were chosen on held-out clicks by
docs/sweep-printed.toml (docs/model.md, section 4).
"""

from dataclasses import replace

from training.recipes.recipe import PRINTED_CLICKS, PRINTED_OPTIMISER, Recipe
from training.recipes.towers import CLSM, DSSM, LSTM, RNN, BiLSTM, TowerSettings

PRINTED = "paper-"


def _row(
    name: str,
    tower: TowerSettings,
    *,
    n: int = 4,
    gamma: float = 10.0,
    step: float = 0.001,
    initial_range: float = 0.05,
) -> Recipe:
    return Recipe(
        name=PRINTED + name,
        tower=tower,
        objective=replace(PRINTED_CLICKS, num_negatives=n, gamma=gamma),
        optimiser=replace(PRINTED_OPTIMISER, step=step, clip_norm=5.0),
        initial_range=initial_range,
        epochs=20,
        minibatch=256,
    )


# One line a row: what follows the tower and n was chosen for that row alone.
PRINTED_RECIPES = (
    _row("dssm", DSSM()),
    _row("clsm-1", CLSM(window=1), gamma=5.0),
    _row("clsm-3", CLSM(window=3), gamma=5.0),
    _row("clsm-5", CLSM(window=5), gamma=5.0),
    _row("rnn-288", RNN(cells=288), gamma=5.0),
    _row("lstm-32", LSTM(cells=32), gamma=5.0),
    _row("lstm-64", LSTM(cells=64), gamma=5.0),
    _row("lstm-96-n2", LSTM(), n=2, gamma=5.0),
    _row("lstm-96", LSTM()),
    _row("lstm-96-n6", LSTM(), n=6, gamma=5.0),
    _row("lstm-96-n8", LSTM(), n=8, gamma=5.0),
    _row("bilstm-96", BiLSTM()),
)
