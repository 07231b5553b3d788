"""A search log with known truth, hard in the ways real logs are, at any size from a seed."""

from flows.simulation.config import SimulationConfig
from flows.simulation.write import simulate

__all__ = ["SimulationConfig", "simulate"]
