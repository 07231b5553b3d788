"""Shards as tensors: texts as batches of trigram counts, pairs, their order, and shared negatives."""
