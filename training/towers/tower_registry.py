"""The torch code of each class of tower settings."""

from collections.abc import Callable
from typing import Any

from clicktower.training.towers.bag import bag, clsm, dssm
from clicktower.training.towers.bilstm import bilstm, max_pooled, self_attentive, variational
from clicktower.training.towers.gru import gru
from clicktower.training.towers.pooled import cnn, swem
from clicktower.training.towers.printed_lstm import printed_lstm
from clicktower.training.towers.recurrent import lstm, rnn
from clicktower.training.towers.tower import Tower
from clicktower.training.towers.tower_settings import (
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
