"""Releases of embeddings: making, checking, publishing, listing, rolling back, exporting."""
