"""What looks wrong with a log, each with what would follow and what to do."""

from dataclasses import dataclass

FAILS, LOOK, NOTE = "fails", "look", "note"  # would stop ingest; costs something; worth knowing
LEVELS = (FAILS, LOOK, NOTE)


@dataclass(frozen=True, kw_only=True, slots=True)
class LogFinding:
    """`code` names its kind for programs; the rest are sentences. Nothing of a line is in them."""

    level: str
    code: str
    found: str
    follows: str = ""
    do: str = ""
    about: str = ""  # ours, of a finding about one field


def percent(share: float) -> str:
    """A share as people read it: never 0% for some, never 100% for not all."""
    if share in (0, 1):
        return f"{share:.0%}"
    if share < 0.001:
        return "under 0.1%"
    if share > 0.999:
        return "over 99.9%"
    return f"{share:.1%}"
