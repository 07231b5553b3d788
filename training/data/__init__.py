"""Shards as tensors: texts as batches of trigram counts, pairs, their order, titles that a micro-batch shares."""
