"""Sums that are the same bytes with any number of threads and workers, and what they are measured by."""
