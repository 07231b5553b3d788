"""Successive halving: all points train a little, the best of them a little more, and few to the end.

In rungs that wait for each other, so that who goes on depends on the figures alone and not on which trial was first.
Asynchronous halving (ASHA) keeps every machine busy, and its best trial is another one each time.
"""

from dataclasses import dataclass

from schemas.errors import UsageError


@dataclass(frozen=True, kw_only=True, slots=True)
class Halving:
    """After `min_epochs` one point in `eta` goes on (rounded up), after `eta` times as many epochs one in `eta` of
    those, and so on; the last of them to the end. Raises UsageError."""

    eta: int = 3
    min_epochs: int = 1

    def __post_init__(self) -> None:
        if self.eta < 2 or self.min_epochs < 1:
            raise UsageError(
                asked=f"halving was asked for with eta = {self.eta} and min_epochs = {self.min_epochs}",
                found="eta must be at least 2, and min_epochs at least 1",
                do="set [halving] eta = 3 and min_epochs = 1, say",
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Rung:
    """So many points train until they have so many epochs behind them."""

    points: int
    epochs: int


def rungs_of(halving: Halving | None, points: int, epochs: int) -> list[Rung]:
    """The rungs of a sweep of so many points, of which the longest has so many epochs; the last goes to the end."""
    rungs: list[Rung] = []
    reached = halving.min_epochs if halving else epochs
    while halving and points > 1 and reached < epochs:
        rungs.append(Rung(points=points, epochs=reached))
        points, reached = -(-points // halving.eta), reached * halving.eta
    return [*rungs, Rung(points=points, epochs=epochs)]
