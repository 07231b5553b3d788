"""How updates move parameters: only the rows a minibatch touches, by Nesterov momentum with a schedule or another rule.

Nesterov's (eq. 6; docs/model.md section 4):

    ΔΛ_k = μ_{k-1} ΔΛ_{k-1} - ε ∇L(Λ_{k-1} + μ_{k-1} ΔΛ_{k-1}),   Λ_k = Λ_{k-1} + ΔΛ_k

A row without gradient still drifts. Over m updates with one μ it gains v (μ + μ² + ... + μ^m) and its velocity shrinks
to v μ^m, so a row is brought up to date in closed form, piece by piece of the schedule, when it is next touched.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pkgutil import resolve_name
from typing import Self

import numpy as np
import torch

from clicktower.schemas.section import code_of
from clicktower.training.model.recipe import OptimiserSettings, Recipe


class MomentumSchedule:
    """μ for each of a fixed number of updates: `edge` in the first and last 2%, `middle` in between.

    Updates are counted from 1; the μ of update k is the μ_{k-1} of eq. 6.
    """

    EDGE_SHARE = 0.02

    def __init__(self, edge: float, middle: float, total: int) -> None:
        length = round(self.EDGE_SHARE * total)
        self.total = total
        ends = [length, total - length, total] if edge != middle else [total]
        self._pieces, before = [], 0
        for end, momentum in zip(ends, [edge, middle, edge], strict=False):
            self._pieces.append(_Piece(before, end, momentum))
            before = end

    def momentum(self, update: int) -> float:
        """μ of an update, 1 to total."""
        return next(piece.momentum for piece in self._pieces if update <= piece.end)

    def drift(self, last: torch.Tensor, now: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(gain, decay) of rows that were last brought up to date at update `last` and untouched up to `now`.

        Their parameters are now Λ + gain v and their velocity is decay v. float64, shaped like `last`, on its device.
        """
        gain = torch.zeros(last.shape, dtype=torch.float64, device=last.device)
        decay = torch.ones_like(gain)
        for piece in self._pieces:
            if now <= piece.start:
                break
            missed = (min(now, piece.end) - last.clamp(min=piece.start)).clamp_(min=0)
            gains, decays = piece.tables(last.device)
            gain += decay * gains.index_select(0, missed)
            decay *= decays.index_select(0, missed)
        return gain, decay


class _Piece:
    """Updates start + 1 to end, which share one μ, with tables for m untouched updates.

    Tables, because a power computed in a vector of another length may round differently, and then the bytes of
    a model would depend on which rows happened to be neighbours.
    """

    def __init__(self, start: int, end: int, momentum: float) -> None:
        self.start, self.end, self.momentum = start, end, momentum
        decays = momentum ** np.arange(end - start + 1, dtype=np.float64)
        gains = momentum * (1 - decays) / (1 - momentum)
        self._tables = {torch.device("cpu"): (torch.from_numpy(gains), torch.from_numpy(decays))}

    def tables(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """(gain, decay) by the number of missed updates, kept on each device that asks."""
        if device not in self._tables:
            gains, decays = self._tables[torch.device("cpu")]
            self._tables[device] = gains.to(device), decays.to(device)
        return self._tables[device]


# Some rows of a matrix: any numbers (ascending, none twice), or a range of it, which is changed in place.
Rows = torch.Tensor | slice


def take_rows(matrix: torch.Tensor, rows: Rows) -> torch.Tensor:
    """Some rows: a view of a stretch, a copy of any others."""
    return matrix[rows] if isinstance(rows, slice) else matrix.index_select(0, rows)


def put_rows(matrix: torch.Tensor, rows: Rows, values: torch.Tensor) -> None:
    """Write back the changed result of `take_rows`."""
    if isinstance(rows, slice):
        return  # they share the matrix's memory
    if matrix.device.type == "cpu":  # NumPy writes them in half the time
        matrix.numpy()[rows.numpy()] = values.numpy()
    else:
        matrix.index_copy_(0, rows, values)


@dataclass(frozen=True, slots=True)
class RowState:
    """The state of one tower's parameters in training, whichever rule moves them: here gradient descent, Λ = Λ - ε g.

    An update moves only some rows, those that a minibatch touches; under Nesterov momentum others drift too.
    """

    parameters: torch.Tensor  # Λ, [rows, columns], raw

    @staticmethod
    def start(parameters: torch.Tensor) -> "RowState":
        """The state before the first update."""
        return RowState(parameters)

    def published(self, rows: Rows, update: int, schedule: MomentumSchedule) -> torch.Tensor:
        """Λ_update of some rows; nothing is changed."""
        return take_rows(self.parameters, rows)

    def all_published(self, update: int, schedule: MomentumSchedule) -> torch.Tensor:
        """Λ_update of every row, as a new tensor."""
        return self.parameters.clone()

    def look_ahead(self, rows: Rows, update: int, schedule: MomentumSchedule) -> torch.Tensor:
        """Some rows at the point where the gradient of an update is computed."""
        return take_rows(self.parameters, rows)

    def apply(self, rows: Rows, gradient: torch.Tensor, update: int, schedule: MomentumSchedule, step: float) -> None:
        """Make an update on the rows that have a gradient."""
        put_rows(self.parameters, rows, take_rows(self.parameters, rows).sub_(gradient, alpha=step))

    def to(self, device: torch.device) -> Self:
        """This state on a device."""
        return replace(self, **{name: values.to(device) for name, values in self._fields()})

    def arrays(self) -> dict[str, np.ndarray]:
        """All of it by name, on the CPU, for a checkpoint."""
        return {name: values.cpu().numpy() for name, values in self._fields()}

    def _fields(self) -> list[tuple[str, torch.Tensor]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]

    def _column(self, values: torch.Tensor) -> torch.Tensor:
        return values.to(self.parameters.dtype)[:, None]


@dataclass(frozen=True, slots=True)
class LazyRows(RowState):
    """Under Nesterov momentum: parameters as of each row's own last update, velocity, and that update's number."""

    velocity: torch.Tensor  # ΔΛ, [rows, columns]
    last: torch.Tensor  # int32 [rows]

    @staticmethod
    def start(parameters: torch.Tensor) -> "LazyRows":
        matrix = parameters.numpy().copy()  # NumPy's memory is in large pages: rows anywhere in it are found sooner
        velocity = np.zeros_like(matrix)
        return LazyRows(torch.from_numpy(matrix), torch.from_numpy(velocity), no_update(parameters))

    def published(self, rows: Rows, update: int, schedule: MomentumSchedule) -> torch.Tensor:
        gain, _ = schedule.drift(take_rows(self.last, rows), update)
        return self._moved(rows, gain)

    def all_published(self, update: int, schedule: MomentumSchedule) -> torch.Tensor:
        gain, _ = schedule.drift(self.last, update)
        return (self.velocity * self._column(gain)).add_(self.parameters)

    def look_ahead(self, rows: Rows, update: int, schedule: MomentumSchedule) -> torch.Tensor:
        """Λ_{k-1} + μ_{k-1} ΔΛ_{k-1} of some rows for update k."""
        gain, decay = schedule.drift(take_rows(self.last, rows), update - 1)
        return self._moved(rows, gain + decay * schedule.momentum(update))

    def apply(self, rows: Rows, gradient: torch.Tensor, update: int, schedule: MomentumSchedule, step: float) -> None:
        gain, decay = schedule.drift(take_rows(self.last, rows), update - 1)
        parameters, velocity = take_rows(self.parameters, rows), take_rows(self.velocity, rows)
        parameters.addcmul_(velocity, self._column(gain))
        velocity.mul_(self._column(decay * schedule.momentum(update))).sub_(gradient, alpha=step)
        put_rows(self.parameters, rows, parameters.add_(velocity))
        put_rows(self.velocity, rows, velocity)
        put_rows(self.last, rows, take_rows(self.last, rows).fill_(update))

    def _moved(self, rows: Rows, by_velocity: torch.Tensor) -> torch.Tensor:
        # A product and a sum, each rounded once, so that a row's value never depends on the rows beside it.
        return (take_rows(self.velocity, rows) * self._column(by_velocity)).add_(take_rows(self.parameters, rows))


def no_update(parameters: torch.Tensor) -> torch.Tensor:
    """No update yet of each row."""
    return torch.zeros(len(parameters), dtype=torch.int32)


def start_state(recipe: Recipe, parameters: torch.Tensor) -> RowState:
    """The state before the first update, by the rule of the recipe's optimiser."""
    state: RowState = code_of(recipe.optimiser).start(parameters)
    return state


def restored_state(arrays: Mapping[str, np.ndarray]) -> RowState:
    """The inverse of `RowState.arrays`. Raises KeyError if some are missing."""
    kinds = (resolve_name(settings.code) for settings in OptimiserSettings.all_kinds().values())
    kind = next((kind for kind in kinds if {field.name for field in fields(kind)} == set(arrays)), LazyRows)
    arrays_of_state = {field.name: arrays[field.name] for field in fields(kind)}
    return kind(**{name: torch.from_numpy(array) for name, array in arrays_of_state.items()})
