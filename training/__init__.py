"""Shards -> twin towers -> scores: the model of arXiv:1502.06922, its trainer and its evaluation."""
