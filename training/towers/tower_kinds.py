"""The settings of towers that a plain training does not name: those of other papers, and the LSTM as it is printed."""

from typing import ClassVar, Literal

from clicktower.schemas.section import Count, Factor, section
from clicktower.training.towers.tower_settings import GatedRecurrent, TowerSettings, Truncated, Window


@section
class PrintedLSTM(Truncated):
    """The LSTM by the paper's equations as they are printed."""

    code: ClassVar[str] = "clicktower.training.towers.recurrent:printed_lstm"
    kind: Literal["printed_lstm"] = "printed_lstm"


@section
class GRU(Truncated):
    """Gated recurrent units; the last state is the embedding."""

    code: ClassVar[str] = "clicktower.training.towers.recurrent:gru"
    kind: Literal["gru"] = "gru"


@section
class CNN(TowerSettings):
    """Convolution over word windows, max-pooled.

    Args:
        window: Words of a window; odd.
    """

    code: ClassVar[str] = "clicktower.training.towers.bag:cnn"
    kind: Literal["cnn"] = "cnn"
    window: Window = 3


@section
class SWEM(TowerSettings):
    """Pooled word vectors (Shen et al.).

    Args:
        aggregate: The pooling: mean, maximum, or both.
    """

    code: ClassVar[str] = "clicktower.training.towers.bag:swem"
    kind: Literal["swem"] = "swem"
    aggregate: Literal["aver", "max", "concat"] = "concat"


@section
class SelfAttentive(GatedRecurrent):
    """Weighted sums of the states of a bidirectional LSTM (Lin et al.).

    Args:
        attention_units: d_a, the units of the attention.
        hops: r, weighted sums of the states.
        average_hops: The embedding is the mean of its hops, not their concatenation.
        penalty: The weight of ||A Aᵀ - I||² of each text in the loss.
    """

    code: ClassVar[str] = "clicktower.training.towers.bilstm:self_attentive"
    kind: Literal["self_attentive"] = "self_attentive"
    attention_units: Count = 32
    hops: Count = 4
    average_hops: bool = False
    penalty: Factor = 0.0

    @property
    def rows(self) -> int:
        return 1 if self.average_hops else self.hops


@section
class MaxPooled(GatedRecurrent):
    """The maximum over the states of a bidirectional LSTM (InferSent)."""

    code: ClassVar[str] = "clicktower.training.towers.bilstm:max_pooled"
    kind: Literal["max_pooled"] = "max_pooled"
