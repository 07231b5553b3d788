"""Trainings with the options of `clicktower train`, each by its own name."""

from typing import Any

from clicktower.schemas.section import take_fields
from clicktower.schemas.stage import StageResult
from clicktower.training.model.recipe import Compute, Sources
from clicktower.training.trainer import launch


def train(shards: str, **options: Any) -> StageResult:
    """As launch.train."""
    compute, sources = take_fields(Compute, options), take_fields(Sources, options)
    return launch.train(shards, compute=compute, sources=sources, **options)
