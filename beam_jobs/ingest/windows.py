"""The dates that a build takes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from schemas.errors import StageError, UsageError

NUM_EXAMPLES = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """Which dates of a store are united: `first` to `until` (ISO 8601, both included), or the `last` N up to `until`.

    What is not given is the first, and the newest, date of the store. With none of the three everything is taken,
    undated ingests too. `allow_missing`: go on where the store has nothing for a date in between. Raises UsageError.
    """

    first: str | None = None
    until: str | None = None
    last: int | None = None
    allow_missing: bool = False

    def __post_init__(self) -> None:
        for name, value in (("--from", self.first), ("--to", self.until)):
            if value is not None:
                parse_date(value, f"a window was asked for with {name} {value}")
        if self.last is not None and self.last < 1:
            raise UsageError(
                asked=f"a window of the last {self.last} dates was asked for",
                found="a window holds at least one date",
                do="set --last to 1 or more",
            )
        if self.first and self.last:
            raise UsageError(
                asked=f"a window was asked for with --from {self.first} and --last {self.last}",
                found="both say where it begins",
                do="give one of them; --to may stand beside either",
            )
        if self.first and self.until and self.first > self.until:
            raise UsageError(
                asked=f"a window was asked for from {self.first} to {self.until}",
                found="it ends before it begins",
                do="exchange the two dates",
            )

    @property
    def is_all(self) -> bool:
        return self.first is None and self.until is None and self.last is None

    def span(self, held: Sequence[str]) -> tuple[str, str]:
        """The first and the last date, among the dates that are held. Raises UsageError where none of them is in it."""
        until = self.until or max(held, default="")
        first = self.first or min(held, default="")
        if self.last and until:
            first = (parse_date(until) - timedelta(days=self.last - 1)).isoformat()
        if not any(first <= day <= until for day in held):
            raise UsageError(
                asked=f"the days {first or '...'} to {until or '...'} were to be read",
                found=f"the store holds {'no dated day' if not held else f'days from {min(held)} to {max(held)}'}",
                follows="there is nothing to build from",
                do="run `clicktower ingest LOG --date DATE --into STORE` for them, or choose another window",
            )
        return first, until


def parse_date(value: str, asked: str | None = None) -> date:
    """The date in a text of the form 2026-09-01. Raises UsageError."""
    try:
        found = date.fromisoformat(value)
    except (TypeError, ValueError):
        found = None
    if found is None or found.isoformat() != value:
        raise UsageError(
            asked=asked or f"{value} was given as a date",
            found="that is no date of the form 2026-09-01",
            do="write year, month and day with hyphens",
        )
    return found


def missing_dates(first: str, until: str, held: Iterable[str]) -> list[str]:
    """The dates from `first` to `until` that are not held."""
    begin, days = parse_date(first), set(held)
    length = (parse_date(until) - begin).days + 1
    every = [(begin + timedelta(days=number)).isoformat() for number in range(length)]
    return [day for day in every if day not in days]


def require_complete(first: str, until: str, missing: Sequence[str]) -> None:
    """Raises StageError naming the dates that are missing."""
    if not missing:
        return
    more = f" and {len(missing) - NUM_EXAMPLES:,} more" if len(missing) > NUM_EXAMPLES else ""
    raise StageError(
        asked=f"the days {first} to {until} were to be united",
        found=f"the store has nothing for {', '.join(missing[:NUM_EXAMPLES])}{more}",
        follows="the shards would lack those days without a sign",
        do="ingest them (`clicktower ingest LOG --date DATE --into STORE`), or build with --allow-missing-days",
    )
