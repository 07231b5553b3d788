"""The settings of every tower, free of torch, so that naming and checking a recipe stays fast."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, field_validator

from clicktower.schemas.section import Count, Factor, Natural, SectionFamily, Unnamed, section

Shapes = tuple[tuple[str, tuple[int, ...]], ...]  # names and shapes of parameters, in the order they are stored in
SIGMA_MIN = 1e-3  # of a variational tower's deviations


def _odd(words: int) -> int:
    if words % 2 == 0:
        raise ValueError("it must be odd: a word, and as many on each side")
    return words


Window = Annotated[Count, AfterValidator(_odd)]  # words


@section
class TowerSettings(SectionFamily):
    """The settings of a tower. `code` names the function that makes the tower (towers.tower) of them, in torch.

    A tower outside this package is a subclass. Once its file has been imported, recipes may name it, and it trains,
    encodes and is evaluated. No class is ever imported because a model or a recipe names it: with several workers,
    Ray's must import it too.

    Args:
        cells: Recurrent units of one direction; of dssm, clsm and bag, the embedding's dimensions.
    """

    elsewhere: ClassVar[str] = "clicktower.training.towers.tower_kinds"
    cells: Count = 96

    @property
    def rows(self) -> int:
        """The rows of the matrix that an embedding is, concatenated."""
        return 1


@section
class Recurrent(TowerSettings):
    """A tower with a state that passes from word to word.

    Args:
        recurrent_range: W_rec, b and W_peep start uniform in ± this; 0 is in ± initial_range.
        recurrent_step: ε of W_rec, b and W_peep; 0 is the optimiser's.
    """

    recurrent_range: Factor = 0.0
    recurrent_step: Factor = 0.0


@section
class Truncated(Recurrent):
    """A tower whose embedding is the last state, from which gradients go back in time.

    Args:
        truncate_steps: T; 0 is as long as the longest text.
    """

    truncate_steps: Natural = 0


@section
class GatedRecurrent(Recurrent):
    """An LSTM.

    Args:
        forget_gate: The cell has a forget gate.
        peepholes: Gates see the cell's state.
        forget_bias: Added to the forget gate's initial part of b; 0 without forget_gate.
    """

    forget_gate: bool = False
    peepholes: bool = False
    forget_bias: Annotated[float, Field(ge=-100, le=100)] = 0.0

    @field_validator("forget_bias")
    @classmethod
    def _of_a_gate(cls, bias: float, info: Any) -> float:
        if bias and not info.data.get("forget_gate"):
            raise ValueError("it must be 0 without forget_gate")
        return bias


@section
class LSTM(GatedRecurrent, Truncated):
    """The paper's LSTM; the last state is the embedding.

    Args:
        gradient: The exact one, or that of the paper's appendix, eq. 14-44 (docs/model.md section 4).
    """

    code: ClassVar[str] = "clicktower.training.towers.recurrent:lstm"
    kind: Literal["lstm"] = "lstm"
    gradient: Annotated[Literal["exact", "appendix"], Unnamed(at="exact")] = "exact"


@section
class BiLSTM(GatedRecurrent, Truncated):
    """An LSTM in each direction; their last states are the embedding."""

    code: ClassVar[str] = "clicktower.training.towers.bilstm:bilstm"
    kind: Literal["bilstm"] = "bilstm"


@section
class RNN(Truncated):
    """A plain recurrent network; the last state is the embedding.

    Args:
        bias: b, which the paper's second version does not have.
    """

    code: ClassVar[str] = "clicktower.training.towers.recurrent:rnn"
    kind: Literal["rnn"] = "rnn"
    bias: Annotated[bool, Unnamed(at=True)] = True


@section
class DSSM(TowerSettings):
    """A bag of letter trigrams below a tanh layer (Huang et al.).

    Args:
        hidden: tanh units below the embedding.
    """

    code: ClassVar[str] = "clicktower.training.towers.bag:dssm"
    kind: Literal["dssm"] = "dssm"
    hidden: Count = 288


@section
class CLSM(TowerSettings):
    """Letter trigrams of word windows, max-pooled (Shen et al.).

    Args:
        hidden: tanh units below the embedding.
        window: Words of a window; odd.
    """

    code: ClassVar[str] = "clicktower.training.towers.bag:clsm"
    kind: Literal["clsm"] = "clsm"
    hidden: Count = 288
    window: Window = 3


@section
class Bag(TowerSettings):
    """The sum of letter trigrams."""

    code: ClassVar[str] = "clicktower.training.towers.bag:bag"
    kind: Literal["bag"] = "bag"


@section
class Variational(GatedRecurrent, Truncated):
    """A distribution over embeddings (Deudon).

    Args:
        latent: h, dimensions of a text's distribution.
    """

    code: ClassVar[str] = "clicktower.training.towers.bilstm:variational"
    kind: Literal["variational"] = "variational"
    latent: Count = 96
