"""Sums with the same bytes for any number of threads and workers, and the threads and workers themselves."""
