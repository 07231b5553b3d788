"""Which settings of a recipe each objective has (training.objectives). Free of torch, as training.tower_settings.

A recipe that is trained on texts before its labels (`pretrain_epochs`) has those of both.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """`wanted`: its bounds in words, in which `holds`. `unset`: what it is where an objective lacks it."""

    unset: Any
    wanted: str
    holds: Callable[[Any], bool]


def _at_least(least: int) -> Setting:
    return Setting(0, f"at least {least}", lambda number: number >= least)


def _share() -> Setting:
    return Setting(0.0, "at least 0 and below 1", lambda share: 0 <= share < 1)


def _factor() -> Setting:
    return Setting(0.0, "at least 0 and at most 1,000,000", lambda factor: 0 <= factor <= 1e6)


def _any(unset: Any) -> Setting:
    return Setting(unset, "", lambda value: True)


SETTINGS = {
    "classify": {
        "features": _any("plain"),
        "head": _any("mlp"),
        "head_units": _at_least(0),
        "row_units": _at_least(0),
        "column_units": _at_least(0),
        "factors": _at_least(0),
        "dropout": _share(),
        "l1": _factor(),
        "l2": _factor(),
        "pretrain_epochs": _at_least(0),
    },
    "generate": {
        "reformulate": _any(False),
        "paraphrase": _any(""),
        "decoder_cells": _at_least(1),
        "decoder_columns": _at_least(1),
        "vocabulary": _at_least(1),
        "word_dropout": _share(),
        "kappa_rate": _factor(),
        "kappa_middle": _at_least(0),
    },
    # Their bounds are the recipe's own; `unset` is its default.
    "clicks": {
        "gamma": _any(5.0),
        "num_negatives": _any(4),
        "negatives": _any("redrawn"),
        "pool_size": _any(0),
        "pool_softmax": _any(False),
        "weights": _any("none"),
        "shuffle_clicks": _any(False),
    },
}


def settings_of(objective: str, pretrain_epochs: int) -> dict[str, Setting]:
    """The settings that mean something to an objective."""
    both = SETTINGS["generate"] if objective == "classify" and pretrain_epochs else {}
    return {**SETTINGS[objective], **both}


def all_settings() -> dict[str, Setting]:
    """The settings that some objective has."""
    return {name: setting for settings in SETTINGS.values() for name, setting in settings.items()}
