"""Scores of vectors with a query, by the two ways to compare them (schemas.similarity).

    |q - x|² = |q|² - 2 (q·x - |x|²/2)

so what is nearest by distance is what has the largest q·x - |x|²/2: a dot product and one more number a vector, which
is how many vectors are compared at once. The distances themselves are computed from differences: that of equal vectors
is then exactly 0, and those of near ones are not lost in rounding.

Suffixes: N and K vectors, Q queries, D dimensions.
"""

from collections.abc import Callable

import numpy as np

from schemas.similarity import Similarity
from training.recipes.recipe import Recipe


def similarity_of(recipe: Recipe) -> Similarity:
    """How the vectors of a recipe's towers are compared: as they were in training.

    Of distributions, told apart by the terms of W2 or learnt by saying texts again, by distance.
    """
    return "euclidean" if recipe.features == "w2" or recipe.objective == "generate" else "cosine"


def scores_one_by_one(similarity: Similarity, vectors_KD: np.ndarray, query_D: np.ndarray) -> np.ndarray:
    """float32 [K]: each vector by itself and one like the other, so equal vectors have bit for bit one score."""
    query_D = query_D.astype(np.float32, copy=False)
    if similarity == "cosine":
        return np.einsum("kd,d->k", vectors_KD, query_D)
    apart_KD = vectors_KD - query_D
    return np.float32(0) - np.sqrt(np.einsum("kd,kd->k", apart_KD, apart_KD))  # 0, not -0, where nothing is between


def half_squares(vectors_ND: np.ndarray) -> np.ndarray:
    """|x|²/2 of each vector, float32 [N]."""
    return np.einsum("nd,nd->n", vectors_ND, vectors_ND) / np.float32(2)


def keys_at_once(similarity: Similarity, vectors_ND: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Queries [Q, D] -> float32 [Q, N], which orders the vectors as their scores do, but for rounding."""
    if similarity == "cosine":
        return lambda queries_QD: queries_QD @ vectors_ND.T
    middle_D = vectors_ND.mean(axis=0)  # taken from there, everything is shorter and rounds less
    moved_ND = vectors_ND - middle_D
    half_square_N = half_squares(moved_ND)
    return lambda queries_QD: (queries_QD - middle_D) @ moved_ND.T - half_square_N
