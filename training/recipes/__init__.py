"""What to train: the fields of a recipe, which of them fit together, and the recipes that have a name."""
