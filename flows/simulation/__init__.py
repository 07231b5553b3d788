"""A search log with known truth, hard in the ways real logs are, at any size from a seed."""
