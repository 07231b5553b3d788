"""The settings of every tower, free of torch, so that naming and checking a recipe stays fast."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator

from clicktower.schemas.section import Count, Factor, Natural, SectionFamily, Unnamed, section

SIGMA_MIN = 1e-3  # of a variational tower's deviations


def _odd(words: int) -> int:
    if words % 2 == 0:
        raise ValueError("it must be odd: a word, and as many on each side")
    return words


Window = Annotated[Count, AfterValidator(_odd)]  # words


@section
class TowerSettings(SectionFamily):
    """The settings of a tower. tower_registry.TOWERS names the torch code of each class.

    A tower outside this package is a subclass and an entry in TOWERS. Once its file has been imported, recipes may name
    it, and it trains, encodes and is evaluated. Nothing is ever imported because a model or a recipe names it: with
    several workers, Ray's must import it too.
    """

    cells: Count = 96  # recurrent units of one direction; of dssm, clsm and bag, the embedding's dimensions

    @property
    def rows(self) -> int:
        """The rows of the matrix that an embedding is, concatenated."""
        return 1


@section
class Recurrent(TowerSettings):
    """A tower with a state that passes from word to word."""

    recurrent_range: Factor = 0.0  # W_rec, b and W_peep start uniform in ±this; 0: in ±initial_range
    recurrent_step: Factor = 0.0  # ε of W_rec, b and W_peep; 0: the optimiser's


@section
class Truncated(Recurrent):
    """A tower whose embedding is the last state, from which gradients go back in time."""

    truncate_steps: Natural = 0  # T; 0: as long as the longest text


@section
class GatedRecurrent(Recurrent):
    """An LSTM."""

    forget_gate: bool = False
    peepholes: bool = False
    forget_bias: Annotated[float, Field(ge=-100, le=100)] = 0.0  # added to the forget gate's initial part of b

    @field_validator("forget_bias")
    @classmethod
    def _of_a_gate(cls, bias: float, info: Any) -> float:
        if bias and not info.data.get("forget_gate"):
            raise ValueError("it must be 0 without forget_gate")
        return bias


@section
class LSTM(GatedRecurrent, Truncated):
    kind: Literal["lstm"] = "lstm"
    # appendix: eq. 14-44 of the paper, which leave out paths from one gate into another (docs/model.md section 4)
    gradient: Annotated[Literal["exact", "appendix"], Unnamed(at="exact")] = "exact"


@section
class BiLSTM(GatedRecurrent, Truncated):
    kind: Literal["bilstm"] = "bilstm"


@section
class PrintedLSTM(Truncated):
    kind: Literal["printed_lstm"] = "printed_lstm"


@section
class RNN(Truncated):
    kind: Literal["rnn"] = "rnn"


@section
class GRU(Truncated):
    kind: Literal["gru"] = "gru"


@section
class DSSM(TowerSettings):
    kind: Literal["dssm"] = "dssm"
    hidden: Count = 288  # tanh units below the embedding


@section
class CLSM(TowerSettings):
    kind: Literal["clsm"] = "clsm"
    hidden: Count = 288  # tanh units below the embedding
    window: Window = 3


@section
class CNN(TowerSettings):
    kind: Literal["cnn"] = "cnn"
    window: Window = 3


@section
class SWEM(TowerSettings):
    kind: Literal["swem"] = "swem"
    aggregate: Literal["aver", "max", "concat"] = "concat"


@section
class Bag(TowerSettings):
    kind: Literal["bag"] = "bag"


@section
class SelfAttentive(GatedRecurrent):
    kind: Literal["self_attentive"] = "self_attentive"
    attention_units: Count = 32  # d_a
    hops: Count = 4  # r, weighted sums of the states
    average_hops: bool = False  # the embedding is the mean of its hops, not their concatenation
    penalty: Factor = 0.0  # weight of ||A Aᵀ - I||² of each text in the loss

    @property
    def rows(self) -> int:
        return 1 if self.average_hops else self.hops


@section
class MaxPooled(GatedRecurrent):
    kind: Literal["max_pooled"] = "max_pooled"


@section
class Variational(GatedRecurrent, Truncated):
    kind: Literal["variational"] = "variational"
    latent: Count = 96  # h, dimensions of a text's distribution
