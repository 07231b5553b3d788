"""The settings of towers, free of torch, so that naming and checking a recipe stays fast: the LSTM's here, others in
tower_kinds.
"""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from clicktower.schemas.section import Count, Factor, Natural, SectionFamily, Unnamed, section

Shapes = tuple[tuple[str, tuple[int, ...]], ...]  # names and shapes of parameters, in the order they are stored in
SIGMA_MIN = 1e-3  # of a variational tower's deviations


@section
class TowerSettings(SectionFamily):
    """The settings of a tower, and its sizes. `code` names the class (towers.tower) that computes it, in torch.

    A tower outside this package is a subclass. Once its file has been imported, recipes may name it, and it trains,
    encodes and is evaluated. No class is ever imported because a model or a recipe names it: with several workers,
    Ray's must import it too.

    Args:
        cells: Recurrent units of one direction; of dssm, clsm and bag, the embedding's dimensions.
    """

    elsewhere: ClassVar[str] = "clicktower.training.towers.tower_kinds"
    ways: ClassVar[int] = 1  # 2: it reads a text from left to right and from right to left
    adds_up: ClassVar[bool] = False  # all words at once: texts share no prefixes
    cells: Count = 96

    @property
    def columns(self) -> int:
        """Of W: the numbers that one trigram adds, G."""
        return self.cells

    @property
    def parts(self) -> Shapes:
        """All parameters besides W."""
        return ()

    @property
    def dimensions(self) -> int:
        """Of the embedding."""
        return self.cells

    @property
    def rows(self) -> int:
        """The rows of the matrix that an embedding is, concatenated."""
        return 1

    @property
    def truncation(self) -> int:
        """T: how many steps back from the word a text ends with gradients reach; 0 is all of them."""
        return 0

    @property
    def kernel(self) -> str:
        """The cell of the compiled kernels that computes it (model.kernel_towers); empty for none."""
        return ""

    @property
    def kernel_trains(self) -> bool:
        """Whether the kernels also have its gradient."""
        return bool(self.kernel)


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

    @property
    def truncation(self) -> int:
        return self.truncate_steps


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

    @property
    def gates(self) -> int:
        """The columns of a cell: its gates, and the candidate."""
        return 4 if self.forget_gate else 3

    @property
    def columns(self) -> int:
        return self.ways * self.gates * self.cells

    @property
    def dimensions(self) -> int:
        return self.ways * self.cells

    @property
    def parts(self) -> Shapes:
        recurrent: Shapes = (("W_rec", (self.cells, self.columns)), ("b", (self.columns,)))
        return recurrent + ((("W_peep", (self.gates - 1, self.ways * self.cells)),) if self.peepholes else ())

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

    code: ClassVar[str] = "clicktower.training.towers.recurrent:LSTMTower"
    kind: Literal["lstm"] = "lstm"
    gradient: Annotated[Literal["exact", "appendix"], Unnamed(at="exact")] = "exact"

    @property
    def kernel(self) -> str:
        return "lstm"

    @property
    def kernel_trains(self) -> bool:
        return self.gradient == "exact"
