"""The evaluation stages: a model on judged queries, or on labelled pairs and texts."""
