"""Which settings of a recipe each tower has. Free of torch, which naming and checking a recipe does not need.

A tower that is no part of this package is added by training.towers.add_tower.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that some towers have.

    `part`: what a tower without it has none of. `wanted`: its bounds in words, in which `holds`.
    """

    part: str
    wanted: str
    holds: Callable[[Any], bool]


def _at_least_one(part: str) -> Setting:
    return Setting(part, "at least 1", lambda number: number >= 1)


def _switch(part: str) -> Setting:
    return Setting(part, "true or false", lambda switch: switch in (True, False))


SETTINGS = {
    "hidden": _at_least_one("layer below the embedding"),
    "window": Setting("window", "odd and at least 1", lambda words: words >= 1 and words % 2 == 1),
    "latent": _at_least_one("distribution"),
    "attention_units": _at_least_one("attention"),
    "hops": _at_least_one("attention"),
    "average_hops": _switch("attention"),
    "penalty": Setting("attention", "at least 0 and at most 1,000,000", lambda factor: 0 <= factor <= 1e6),
    "forget_gate": _switch("gates"),
    "peepholes": _switch("gates"),
    "truncate_steps": Setting("last step to count back from", "at least 0", lambda steps: steps >= 0),
    "recurrent_range": Setting("recurrence", "at least 0 and at most 1,000,000", lambda width: 0 <= width <= 1e6),
    "recurrent_step": Setting("recurrence", "at least 0 and at most 1,000,000", lambda step: 0 <= step <= 1e6),
    "forget_bias": Setting("gates", "from -100 to 100", lambda bias: -100 <= bias <= 100),
}
_GATES = ("forget_gate", "peepholes", "forget_bias", "recurrent_range", "recurrent_step")
_SETTINGS_OF: dict[str, tuple[str, ...]] = {
    "lstm": (*_GATES, "truncate_steps"),
    "bilstm": (*_GATES, "truncate_steps"),
    "rnn": ("truncate_steps", "recurrent_range", "recurrent_step"),
    "dssm": ("hidden",),
    "clsm": ("hidden", "window"),
    "bag": (),
    "self_attentive": (*_GATES, "attention_units", "hops", "average_hops", "penalty"),
    "max_pooled": _GATES,
    "variational": (*_GATES, "truncate_steps", "latent"),
}


def tower_kinds() -> tuple[str, ...]:
    """The names of all towers."""
    return tuple(_SETTINGS_OF)


def has_setting(tower: str, field: str) -> bool:
    """Whether a tower has one of SETTINGS."""
    return field in _SETTINGS_OF[tower]


def declare_tower(name: str, settings: Collection[str]) -> None:
    """Let recipes name a tower and set these of SETTINGS. Raises ValueError for a taken name or an unknown setting."""
    if name in _SETTINGS_OF:
        raise ValueError(f"there is a tower named {name} already")
    if unknown := sorted(set(settings) - set(SETTINGS)):
        raise ValueError(f"no recipe has {', '.join(unknown)}; a tower's settings are among {', '.join(SETTINGS)}")
    _SETTINGS_OF[name] = tuple(settings)
