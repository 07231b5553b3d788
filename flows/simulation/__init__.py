"""A search log with known truth and the difficulties of real logs, in any size, from a seed."""
