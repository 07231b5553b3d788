"""What a check finds, and how a check that fails itself is told."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

# What keeps a laptop run from working; what works, but less well than it could; what is as it should be; a mere fact.
State = Literal["bad", "look", "good", "note"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that was looked at: in words, and in `facts` for programs. Neither holds a secret or a user's name.

    `follows`: what does not work, or works worse; `do`: how to mend it. Both are empty where all is well.
    """

    name: str
    state: State
    found: str
    follows: str = ""
    do: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


Check = Callable[[], Finding]


def looked_at(checks: Sequence[tuple[str, Check]]) -> list[Finding]:
    """The finding of each named check. One that fails is told by its name and kind of error, and stops no other."""
    return [_look(name, check) for name, check in checks]


def _look(name: str, check: Check) -> Finding:
    try:
        return check()
    except Exception as error:  # whatever a machine has in store: nobody should have to mend the doctor first
        return Finding(
            name=name,
            state="look",
            found=f"could not be looked at ({type(error).__name__})",
            follows="whether it is well is not known",
            do="nothing, if all else works; otherwise report it",
        )
