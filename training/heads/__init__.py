"""Heads: what turns the embedding of a labelled text, or those of a labelled pair, into a class."""
