"""A release of embeddings: made, checked, put behind its pointer, listed, rolled back, exported."""
