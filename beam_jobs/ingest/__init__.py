"""A search log -> the private daily aggregate; the days of a store, and the erasure of a person from them."""
