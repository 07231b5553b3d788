"""Shards -> twin towers -> scores: the model of arXiv:1502.06922, its trainer and its evaluation."""

import schemas  # noqa: F401  # before any engine: it says what engines are to tell their makers
