"""How updates move parameters: only the rows a minibatch touches, by Nesterov momentum with a schedule or another rule.

Nesterov's (eq. 6; docs/model.md section 4):

    ΔΛ_k = μ_{k-1} ΔΛ_{k-1} - ε ∇L(Λ_{k-1} + μ_{k-1} ΔΛ_{k-1}),   Λ_k = Λ_{k-1} + ΔΛ_k

A row without gradient still drifts. Over m updates with one μ it gains v (μ + μ² + ... + μ^m) and its velocity shrinks
to v μ^m, so a row is brought up to date in closed form, piece by piece of the schedule, when it is next touched.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Self

import numpy as np
import torch

from training.model.recipe import SGD, AdaGrad, Adam, Recipe


class MomentumSchedule:
    """μ for each of a fixed number of updates: `edge` in the first and last 2%, `middle` in between.

    Updates are counted from 1; the μ of update k is the μ_{k-1} of eq. 6.
    """

    EDGE_SHARE = 0.02

    def __init__(self, edge: float, middle: float, total: int) -> None:
        length = min(round(self.EDGE_SHARE * total), total // 2)
        self.total = total
        ends = [length, total - length, total] if edge != middle else [total]
        self._pieces, before = [], 0
        for end, momentum in zip(ends, [edge, middle, edge], strict=False):
            self._pieces.append(_Piece(before, end, momentum))
            before = end

    def momentum(self, update: int) -> float:
        """μ of an update, 1 to total."""
        return next(piece.momentum for piece in self._pieces if update <= piece.end)

    def drift(self, last: np.ndarray, now: int) -> tuple[np.ndarray, np.ndarray]:
        """(gain, decay) of rows that were last brought up to date at update `last` and untouched up to `now`.

        Their parameters are now Λ + gain v and their velocity is decay v. float64, shaped as `last`.
        """
        gain, decay = np.zeros(last.shape), np.ones(last.shape)
        for piece in self._pieces:
            if now <= piece.start:
                break
            missed = np.maximum(min(now, piece.end) - np.maximum(last, piece.start), 0)
            gain += decay * piece.gains[missed]
            decay *= piece.decays[missed]
        return gain, decay


class _Piece:
    """Updates start + 1 to end, which share one μ, with tables of what m untouched updates do.

    Tables, because a power computed in a vector of another length may round differently, and then the bytes of
    a model would depend on which rows happened to be neighbours.
    """

    def __init__(self, start: int, end: int, momentum: float) -> None:
        self.start, self.end, self.momentum = start, end, momentum
        self.decays = momentum ** np.arange(end - start + 1, dtype=np.float64)
        self.gains = momentum * (1 - self.decays) / (1 - momentum)


@dataclass(frozen=True, slots=True)
class RowState:
    """The state of one tower's parameters while they are trained, whichever rule moves them: here gradient descent,
    Λ = Λ - ε g.

    Some rows move at an update: those a minibatch touches; others stand still, but under Nesterov momentum. On a GPU
    all is there but the counts of updates.
    """

    parameters: torch.Tensor  # Λ, [rows, columns], raw

    @staticmethod
    def start(parameters: torch.Tensor) -> "RowState":
        """The state before the first update."""
        return RowState(parameters)

    def published(self, rows: torch.Tensor, update: int, schedule: MomentumSchedule) -> torch.Tensor:
        """Λ_update of some rows; nothing is changed."""
        return self.parameters.index_select(0, rows)

    def all_published(self, update: int, schedule: MomentumSchedule) -> torch.Tensor:
        """Λ_update of every row, as a new tensor."""
        return self.parameters.clone()

    def look_ahead(self, rows: torch.Tensor, update: int, schedule: MomentumSchedule) -> torch.Tensor:
        """Some rows where the gradient of an update is taken."""
        return self.parameters.index_select(0, rows)

    def apply(
        self, rows: torch.Tensor, gradient: torch.Tensor, update: int, schedule: MomentumSchedule, step: float
    ) -> None:
        """Make an update on the rows (ascending, none twice) that have a gradient."""
        self.parameters.index_copy_(0, rows, self.parameters.index_select(0, rows).sub_(gradient * step))

    def to(self, device: torch.device) -> Self:
        """This state on a device."""
        return replace(self, **{n: value.to(device) for n, value in self._fields() if isinstance(value, torch.Tensor)})

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it by name, on the CPU, for a checkpoint."""
        return {n: value.cpu().numpy() if isinstance(value, torch.Tensor) else value for n, value in self._fields()}

    def _fields(self) -> list[tuple[str, Any]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]

    def _column(self, values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values).to(self.parameters)[:, None]


@dataclass(frozen=True, slots=True)
class LazyRows(RowState):
    """Under Nesterov momentum: parameters as of each row's own last update, velocity, and that update's number."""

    velocity: torch.Tensor  # ΔΛ, [rows, columns]
    last: np.ndarray  # int32 [rows]

    @staticmethod
    def start(parameters: torch.Tensor) -> "LazyRows":
        matrix = parameters.numpy().copy()  # NumPy's memory is in large pages: rows anywhere in it are found sooner
        velocity = np.zeros_like(matrix)
        return LazyRows(torch.from_numpy(matrix), torch.from_numpy(velocity), np.zeros(len(matrix), np.int32))

    def published(self, rows: torch.Tensor, update: int, schedule: MomentumSchedule) -> torch.Tensor:
        gain, _ = schedule.drift(self.last[rows.cpu().numpy()], update)
        return self._moved(rows, gain)

    def all_published(self, update: int, schedule: MomentumSchedule) -> torch.Tensor:
        gain, _ = schedule.drift(self.last, update)
        return (self.velocity * self._column(gain)).add_(self.parameters)

    def look_ahead(self, rows: torch.Tensor, update: int, schedule: MomentumSchedule) -> torch.Tensor:
        """Λ_{k-1} + μ_{k-1} ΔΛ_{k-1} of some rows for update k."""
        gain, decay = schedule.drift(self.last[rows.cpu().numpy()], update - 1)
        return self._moved(rows, gain + decay * schedule.momentum(update))

    def apply(
        self, rows: torch.Tensor, gradient: torch.Tensor, update: int, schedule: MomentumSchedule, step: float
    ) -> None:
        index = rows.cpu().numpy()
        gain, decay = schedule.drift(self.last[index], update - 1)
        parameters, velocity = self.parameters.index_select(0, rows), self.velocity.index_select(0, rows)
        parameters.addcmul_(velocity, self._column(gain))
        velocity.mul_(self._column(decay * schedule.momentum(update))).sub_(gradient, alpha=step)
        for state, values in ((self.parameters, parameters.add_(velocity)), (self.velocity, velocity)):
            if state.device.type == "cpu":  # NumPy writes them in half the time
                state.numpy()[index] = values.numpy()
            else:
                state.index_copy_(0, rows, values)
        self.last[index] = update

    def _moved(self, rows: torch.Tensor, by_velocity: np.ndarray) -> torch.Tensor:
        # A product and a sum, each rounded once, so that a row's value never depends on the rows beside it.
        moved = self.velocity.index_select(0, rows).mul_(self._column(by_velocity))
        return moved.add_(self.parameters.index_select(0, rows))


@dataclass(frozen=True, slots=True)
class AdaGradRows(RowState):
    """Under AdaGrad (Duchi et al., JMLR 2011): s = s + g², Λ = Λ - ε g / (sqrt(s) + 1e-10)."""

    total: torch.Tensor  # s, [rows, columns]

    @staticmethod
    def start(parameters: torch.Tensor) -> "AdaGradRows":
        return AdaGradRows(parameters, torch.zeros_like(parameters))

    def apply(
        self, rows: torch.Tensor, gradient: torch.Tensor, update: int, schedule: MomentumSchedule, step: float
    ) -> None:
        total = self.total.index_select(0, rows).add_(gradient * gradient)
        self.total.index_copy_(0, rows, total)
        RowState.apply(self, rows, gradient / total.sqrt().add_(1e-10), update, schedule, step)


BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True, slots=True)
class AdamRows(RowState):
    """Under Adam (Kingma and Ba, arXiv:1412.6980, Algorithm 1); rows without a gradient stand still.

        m = β₁ m + (1 - β₁) g        v = β₂ v + (1 - β₂) g²
        Λ = Λ - ε (m / (1 - β₁^t)) / (sqrt(v / (1 - β₂^t)) + 1e-8)

    β₁ = 0.9, β₂ = 0.999; t counts the row's own updates, so that a rare row's first step is as long as a common row's
    was. Every operation rounds once for each number, so a row's value never depends on the rows beside it.
    """

    moment: torch.Tensor  # m, [rows, columns]
    square: torch.Tensor  # v, [rows, columns]
    count: np.ndarray  # t, int32 [rows]

    @staticmethod
    def start(parameters: torch.Tensor) -> "AdamRows":
        nothing = torch.zeros_like(parameters)
        return AdamRows(parameters, nothing, nothing.clone(), np.zeros(len(parameters), np.int32))

    def apply(
        self, rows: torch.Tensor, gradient: torch.Tensor, update: int, schedule: MomentumSchedule, step: float
    ) -> None:
        index = rows.cpu().numpy()
        self.count[index] += 1
        corrected_1, corrected_2 = (self._column(table[self.count[index]]) for table in _corrections(schedule.total))
        moment = self.moment.index_select(0, rows).mul_(BETA_1).add_(gradient * (1 - BETA_1))
        square = self.square.index_select(0, rows).mul_(BETA_2).add_((gradient * gradient).mul_(1 - BETA_2))
        self.moment.index_copy_(0, rows, moment)
        self.square.index_copy_(0, rows, square)
        length = (square / corrected_2).sqrt_().add_(EPSILON)
        RowState.apply(self, rows, (moment / corrected_1).div_(length), update, schedule, step)


@cache
def _corrections(total: int) -> tuple[np.ndarray, np.ndarray]:
    """1 - β^t for t up to `total`. Tables, because a power in a vector of another length may round differently."""
    counts = np.arange(total + 1, dtype=np.float64)
    return 1 - BETA_1**counts, 1 - BETA_2**counts


_ROWS: Mapping[type, Any] = {Adam: AdamRows, AdaGrad: AdaGradRows, SGD: RowState}


def start_state(recipe: Recipe, parameters: torch.Tensor) -> RowState:
    """The state before the first update."""
    return _ROWS.get(type(recipe.optimiser), LazyRows).start(parameters)


def restored_state(arrays: Mapping[str, np.ndarray]) -> RowState:
    """The inverse of `RowState.arrays`. Raises KeyError where some are missing."""
    kind: Any = next((kind for kind in _ROWS.values() if {of.name for of in fields(kind)} == set(arrays)), LazyRows)
    arrays_of_state = {field.name: arrays[field.name] for field in fields(kind)}
    return kind(**{n: torch.from_numpy(array) if array.ndim == 2 else array for n, array in arrays_of_state.items()})
