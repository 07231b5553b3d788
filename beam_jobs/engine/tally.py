"""What is counted beside the rows, as values that travel through the pipeline and add up in any order."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """Sums over a part of the work; `first_ms` and `last_ms` are the span of its times, in milliseconds since 1970.

    `sampled`: of its lines (line_sample).
    """

    lines: int = 0  # counted where blocks are cut, before anything is parsed
    fates: Mapping[str, int] = field(default_factory=dict)  # lines by schemas.ledger fate
    counts: Mapping[str, int] = field(default_factory=dict)
    first_ms: int | None = None
    last_ms: int | None = None
    sampled: bytes = b""


def add_up(tallies: Iterable[Tally]) -> Tally:
    """The tally of all parts together."""
    lines, fates, counts = 0, Counter[str](), Counter[str]()
    firsts, lasts, sampled = list[int](), list[int](), list[bytes]()
    for tally in tallies:
        lines += tally.lines
        fates.update(tally.fates)
        counts.update(tally.counts)
        firsts += [] if tally.first_ms is None else [tally.first_ms]
        lasts += [] if tally.last_ms is None else [tally.last_ms]
        sampled.append(tally.sampled)
    return Tally(
        lines=lines,
        fates=dict(fates),
        counts=dict(counts),
        first_ms=min(firsts, default=None),
        last_ms=max(lasts, default=None),
        sampled=b"".join(sampled),
    )
