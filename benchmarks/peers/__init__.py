"""The preprocessing job in other tools, for benchmarks/preprocessing.py to compare with."""
