"""Which settings of a recipe each objective has (training.objectives). Free of torch, as training.tower_settings.

A recipe that is trained on texts before its labels (`pretrain_epochs`) has those of both.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """`wanted`: its bounds in words, in which `holds`. Where an objective lacks it, it keeps the recipe's default."""

    wanted: str
    holds: Callable[[Any], bool]


def _at_least(least: int) -> Setting:
    return Setting(f"at least {least}", lambda number: number >= least)


def _share() -> Setting:
    return Setting("at least 0 and below 1", lambda share: 0 <= share < 1)


def _factor() -> Setting:
    return Setting("at least 0 and at most 1,000,000", lambda factor: 0 <= factor <= 1e6)


_ANY = Setting("", lambda value: True)  # its type says what it may be, or the recipe itself its bounds


SETTINGS = {
    "classify": {
        "features": _ANY,
        "head": _ANY,
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
        "reformulate": _ANY,
        "paraphrase": _ANY,
        "decoder_cells": _at_least(1),
        "decoder_columns": _at_least(1),
        "vocabulary": _at_least(1),
        "word_dropout": _share(),
        "kappa_rate": _factor(),
        "kappa_middle": _at_least(0),
    },
    "clicks": {
        "gamma": _ANY,
        "num_negatives": _ANY,
        "negatives": _ANY,
        "pool_size": _ANY,
        "pool_softmax": _ANY,
        "weights": _ANY,
        "teacher_share": Setting("at least 0 and at most 1", lambda share: 0 <= share <= 1),
        "teacher_gamma": _ANY,
        "shuffle_clicks": _ANY,
    },
}


def settings_of(objective: str, pretrain_epochs: int) -> dict[str, Setting]:
    """The settings that mean something to an objective."""
    both = SETTINGS["generate"] if objective == "classify" and pretrain_epochs else {}
    return {**SETTINGS[objective], **both}


def all_settings() -> dict[str, Setting]:
    """The settings that some objective has."""
    return {name: setting for settings in SETTINGS.values() for name, setting in settings.items()}
