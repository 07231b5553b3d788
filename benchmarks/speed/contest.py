"""Variants of one thing timed in turns, so that what else the machine does falls on all of them alike."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Tell = Callable[[str], None]
Entrant = Callable[[Any, int], None]  # does a piece of work so many times


@dataclass(slots=True)
class Rates:
    """Units a second in each round, by the clock and by the processor's seconds of all threads."""

    by_clock: list[float] = field(default_factory=list)
    by_processor: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.by_clock)

    def over(self, other: "Rates") -> float:
        """How many times the other's rate: the median over rounds, of two figures taken one after the other."""
        return statistics.median(a / b for a, b in zip(self.by_clock, other.by_clock, strict=True))

    def summary(self) -> dict:
        return {
            "per_second": rounded(self.median),
            "per_second_of_processor": rounded(statistics.median(self.by_processor)),
            "each_round": [rounded(rate) for rate in self.by_clock],
        }


def rounded(value: float) -> float:
    """Four digits that count, and no fraction where there are more before the point."""
    digits = 3 - math.floor(math.log10(abs(value))) if value else 0
    return float(round(value, digits)) if digits > 0 else round(value)


def in_turns(
    entrants: dict[str, Entrant],
    rounds: Sequence[Any],
    size: Callable[[Any], float],
    *,
    seconds: float,
    tell: Tell,
    before_round: Callable[[], None] = lambda: None,
) -> dict[str, Rates]:
    """The rate of each entrant in each round. All do the same work in a round, in another order each time.

    `size`: the units in a piece of work. The first round's work is done once before, untimed, and says how many passes
    an entrant needs to be busy for about `seconds`.
    """
    passes = {}
    for name, entrant in entrants.items():
        entrant(rounds[0], 1)
        started = time.perf_counter()
        entrant(rounds[0], 1)
        passes[name] = max(1, math.ceil(seconds / (time.perf_counter() - started)))
    rates = {name: Rates() for name in entrants}
    names = list(entrants)
    for number, work in enumerate(rounds):
        before_round()
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            started, used = time.perf_counter(), time.process_time()
            entrants[name](work, passes[name])
            units = size(work) * passes[name]
            rates[name].by_clock.append(units / (time.perf_counter() - started))
            rates[name].by_processor.append(units / max(time.process_time() - used, 1e-9))
        tell(f"round {number + 1} of {len(rounds)}: " + ", ".join(f"{n} {rates[n].by_clock[-1]:,.0f}" for n in names))
    return rates
