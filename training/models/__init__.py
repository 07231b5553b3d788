"""A trained model on disk and in memory, ensembles of them, and vectors of words and texts from elsewhere."""
