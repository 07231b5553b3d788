"""Releases of embeddings: build, check, publish, list, roll back, export."""
