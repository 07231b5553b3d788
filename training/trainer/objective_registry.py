"""The code of each class of objective settings."""

from clicktower.training.model.objective_settings import Classify, Clicks, Generate, ObjectiveSettings
from clicktower.training.trainer import classify, clicks, generate
from clicktower.training.trainer.objective import Objective

# An objective outside this package adds its own entry.
OBJECTIVES: dict[type[ObjectiveSettings], Objective] = {Clicks: clicks, Classify: classify, Generate: generate}
