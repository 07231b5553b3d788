"""The torch code of each class of tower settings."""

from collections.abc import Callable
from typing import Any

from training.towers.bag import bag, clsm, dssm
from training.towers.bilstm import bilstm, max_pooled, self_attentive, variational
from training.towers.gru import gru
from training.towers.pooled import cnn, swem
from training.towers.printed_lstm import printed_lstm
from training.towers.recurrent import lstm, rnn
from training.towers.tower import Tower
from training.towers.tower_settings import (
    CLSM,
    CNN,
    DSSM,
    GRU,
    LSTM,
    RNN,
    SWEM,
    Bag,
    BiLSTM,
    MaxPooled,
    PrintedLSTM,
    SelfAttentive,
    TowerSettings,
    Variational,
)

# A tower outside this package adds its own entry.
TOWERS: dict[type[TowerSettings], Callable[[Any], Tower]] = {
    LSTM: lstm,
    BiLSTM: bilstm,
    PrintedLSTM: printed_lstm,
    RNN: rnn,
    GRU: gru,
    DSSM: dssm,
    CLSM: clsm,
    CNN: cnn,
    SWEM: swem,
    Bag: bag,
    SelfAttentive: self_attentive,
    MaxPooled: max_pooled,
    Variational: variational,
}


def make_tower(settings: TowerSettings) -> Tower:
    """The tower of a recipe's settings."""
    return TOWERS[type(settings)](settings)
