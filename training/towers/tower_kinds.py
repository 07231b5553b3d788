"""The settings of towers that a plain training does not name: the paper's others, those of other papers, and the
LSTM as it is printed.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator

from clicktower.schemas.section import Count, Factor, Unnamed, section
from clicktower.training.towers.tower_settings import GatedRecurrent, Shapes, TowerSettings, Truncated


def _odd(words: int) -> int:
    if words % 2 == 0:
        raise ValueError("it must be odd: a word, and as many on each side")
    return words


Window = Annotated[Count, AfterValidator(_odd)]  # words


@section
class BiLSTM(GatedRecurrent, Truncated):
    """An LSTM in each direction; their last states are the embedding."""

    code: ClassVar[str] = "clicktower.training.towers.bilstm:BidirectionalLSTM"
    ways: ClassVar[int] = 2
    kind: Literal["bilstm"] = "bilstm"

    @property
    def kernel(self) -> str:
        return "lstm"


@section
class RNN(Truncated):
    """A plain recurrent network; the last state is the embedding.

    Args:
        bias: b, which the paper's second version does not have.
    """

    code: ClassVar[str] = "clicktower.training.towers.recurrent:RNNTower"
    kind: Literal["rnn"] = "rnn"
    bias: Annotated[bool, Unnamed(at=True)] = True

    @property
    def parts(self) -> Shapes:
        recurrent: Shapes = (("W_rec", (self.cells, self.columns)),)
        return (*recurrent, ("b", (self.columns,))) if self.bias else recurrent

    @property
    def kernel(self) -> str:
        return "rnn" if self.bias else ""


@section
class DSSM(TowerSettings):
    """A bag of letter trigrams below a tanh layer (Huang et al.).

    Args:
        hidden: tanh units below the embedding.
    """

    code: ClassVar[str] = "clicktower.training.towers.bag:DSSMTower"
    adds_up: ClassVar[bool] = True
    kind: Literal["dssm"] = "dssm"
    hidden: Count = 288

    @property
    def columns(self) -> int:
        return self.hidden

    @property
    def parts(self) -> Shapes:
        return ("b", (self.hidden,)), ("W_s", (self.hidden, self.cells)), ("b_s", (self.cells,))

    @property
    def kernel(self) -> str:
        return "dssm"


@section
class Bag(TowerSettings):
    """The sum of letter trigrams."""

    code: ClassVar[str] = "clicktower.training.towers.bag:BagTower"
    adds_up: ClassVar[bool] = True
    kind: Literal["bag"] = "bag"

    @property
    def kernel(self) -> str:
        return "bag"


@section
class Variational(GatedRecurrent, Truncated):
    """A distribution over embeddings (Deudon).

    Args:
        latent: h, dimensions of a text's distribution.
    """

    code: ClassVar[str] = "clicktower.training.towers.bilstm:VariationalTower"
    ways: ClassVar[int] = 2
    kind: Literal["variational"] = "variational"
    latent: Count = 96

    @property
    def dimensions(self) -> int:
        return 2 * self.latent

    @property
    def parts(self) -> Shapes:
        weights, bias = (self.ways * self.cells, self.latent), (self.latent,)
        distribution: Shapes = (("W_mu", weights), ("b_mu", bias), ("W_sigma", weights), ("b_sigma", bias))
        return super().parts + distribution

    @property
    def kernel(self) -> str:
        return "lstm"

    @property
    def kernel_trains(self) -> bool:
        return False


@section
class PrintedLSTM(Truncated):
    """The LSTM by the paper's equations as they are printed."""

    code: ClassVar[str] = "clicktower.training.towers.recurrent:PrintedLSTMTower"
    kind: Literal["printed_lstm"] = "printed_lstm"

    @property
    def columns(self) -> int:
        return 4 * self.cells

    @property
    def parts(self) -> Shapes:
        d = self.cells
        return ("W_rec", (d, 4 * d)), ("b", (4 * d,)), ("W_peep", (d, 3 * d))


@section
class GRU(Truncated):
    """Gated recurrent units; the last state is the embedding."""

    code: ClassVar[str] = "clicktower.training.towers.recurrent:GRUTower"
    kind: Literal["gru"] = "gru"

    @property
    def columns(self) -> int:
        return 3 * self.cells

    @property
    def parts(self) -> Shapes:
        return ("W_rec", (self.cells, self.columns)), ("b", (self.columns,))


@section
class CLSM(TowerSettings):
    """Letter trigrams of word windows, max-pooled (Shen et al.).

    Args:
        hidden: tanh units below the embedding.
        window: Words of a window; odd.
    """

    code: ClassVar[str] = "clicktower.training.towers.bag:CLSMTower"
    kind: Literal["clsm"] = "clsm"
    hidden: Count = 288
    window: Window = 3

    @property
    def columns(self) -> int:
        return self.window * self.hidden

    @property
    def parts(self) -> Shapes:
        return ("b", (self.hidden,)), ("W_s", (self.hidden, self.cells)), ("b_s", (self.cells,))


@section
class CNN(TowerSettings):
    """Convolution over word windows, max-pooled.

    Args:
        window: Words of a window; odd.
    """

    code: ClassVar[str] = "clicktower.training.towers.bag:CNNTower"
    kind: Literal["cnn"] = "cnn"
    window: Window = 3

    @property
    def columns(self) -> int:
        return self.window * self.cells

    @property
    def parts(self) -> Shapes:
        return (("b", (self.cells,)),)


@section
class SWEM(TowerSettings):
    """Pooled word vectors (Shen et al.).

    Args:
        aggregate: The pooling: mean, maximum, or both.
    """

    code: ClassVar[str] = "clicktower.training.towers.bag:SWEMTower"
    kind: Literal["swem"] = "swem"
    aggregate: Literal["aver", "max", "concat"] = "concat"

    @property
    def dimensions(self) -> int:
        return self.cells * (2 if self.aggregate == "concat" else 1)


@section
class SelfAttentive(GatedRecurrent):
    """Weighted sums of the states of a bidirectional LSTM (Lin et al.).

    Args:
        attention_units: d_a, the units of the attention.
        hops: r, weighted sums of the states.
        average_hops: The embedding is the mean of its hops, not their concatenation.
        penalty: The weight of ||A Aᵀ - I||² of each text in the loss.
    """

    code: ClassVar[str] = "clicktower.training.towers.bilstm:SelfAttentiveTower"
    ways: ClassVar[int] = 2
    kind: Literal["self_attentive"] = "self_attentive"
    attention_units: Count = 32
    hops: Count = 4
    average_hops: bool = False
    penalty: Factor = 0.0

    @property
    def rows(self) -> int:
        return 1 if self.average_hops else self.hops

    @property
    def dimensions(self) -> int:
        return self.rows * self.ways * self.cells

    @property
    def parts(self) -> Shapes:
        attention: Shapes = (
            ("W_s1", (self.ways * self.cells, self.attention_units)),
            ("W_s2", (self.attention_units, self.hops)),
        )
        return super().parts + attention


@section
class MaxPooled(GatedRecurrent):
    """The maximum over the states of a bidirectional LSTM (InferSent)."""

    code: ClassVar[str] = "clicktower.training.towers.bilstm:MaxPooledTower"
    ways: ClassVar[int] = 2
    kind: Literal["max_pooled"] = "max_pooled"
