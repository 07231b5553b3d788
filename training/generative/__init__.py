"""The generative half of VAR-Siamese (Deudon, *Learning semantic similarity in a continuous space*, NeurIPS 2018)."""
