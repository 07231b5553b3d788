"""Towers and what an objective puts beside them, as one matrix of parameters and one encoder."""
