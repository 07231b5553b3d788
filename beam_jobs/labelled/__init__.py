"""Labelled pairs and texts -> labelled shards, split so that no sentence is on both sides."""
