"""A search log with known truth, hard in the ways real logs are, at any size from a seed."""

from flows.simulation.simulation_config import SimulationConfig
from flows.simulation.write_simulation import simulate

__all__ = ["SimulationConfig", "simulate"]
