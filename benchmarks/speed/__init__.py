"""What benchmarks/training.py measures: variants that train, the bound of arithmetic, encoding, several workers."""
