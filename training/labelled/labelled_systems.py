"""What is measured on labelled rows: the model's own answers first, then what words alone can do.

A similarity is float64 [rows], higher where two texts are more alike; a classifier's answer is float64 [rows, classes].
"""

from typing import Literal

import numpy as np

from schemas.errors import UsageError
from schemas.stage import Progress, silent
from training.labelled.classifying import encoded_sides, probabilities, refused_because
from training.labelled.labelled_shards import LabelledData, LabelledRows
from training.labelled.word_baselines import LexicalSimilarity, NaiveBayes, WordMovers
from training.models.model import Model
from training.ranking.embedding import Side, TextEncoder, search_vectors
from training.recipes.towers import Variational

COSINE, W2, CLASSIFIER, WORD_MOVERS, MAJORITY = "model", "w2", "classifier", "word-movers", "constant"
Scores = tuple[np.ndarray, np.ndarray]  # of the sampled training rows and of the held-out ones


def systems_of(
    model: TextEncoder,
    data: LabelledData,
    sampled: LabelledRows,
    *,
    sides: Literal["crossed", "query", "document"],
    word_movers: bool,
    progress: Progress,
) -> tuple[dict[str, Scores], str]:
    """(every system's scores by name, the model's best-informed one first; why the model's classes are not asked).

    `sampled`: training rows. Raises UsageError for labelled texts whose classes the model does
    not tell, since it has nothing else to say of a single text.
    """
    texts = [*data.train.texts, *data.dev.texts]  # no text is in both
    num_training = len(data.train.texts)
    rows = tuple(
        np.concatenate([of_train, of_dev + num_training])
        for of_train, of_dev in zip(sampled.sides, data.dev.sides, strict=True)
    )
    found: dict[str, np.ndarray] = {}
    refused = refused_because(model, data) if isinstance(model, Model) else "an ensemble has no classifier"
    if refused and data.unit == "texts":
        raise UsageError(
            asked="classes of labelled texts were to be measured",
            found=refused,
            follows="it has nothing to say of a single text",
            do="give a model that `clicktower train` made of labelled texts of these classes",
        )
    if isinstance(model, Model) and not refused:
        found[CLASSIFIER] = probabilities(model, texts, rows, data.classes, progress)
    if data.unit == "texts":
        of_words = NaiveBayes(
            [data.train.texts[at] for at in data.train.sides[0]], data.train.labels, len(data.classes)
        )
        found["naive-bayes"] = of_words.probabilities([texts[at] for at in rows[0]])
    else:
        first, second = rows
        if isinstance(model, Model) and isinstance(model.recipe.tower, Variational):
            one, other = encoded_sides(model, texts, rows, progress)
            found[W2] = -np.linalg.norm(one.astype(np.float64) - other, axis=1)
        found[COSINE] = cosines(model, texts, first, second, sides, progress)
        lexical = LexicalSimilarity(texts, num_training)
        found["tf-idf"] = lexical.tf_idf(first, second)
        found["bm25"] = lexical.bm25(first, second)
        if word_movers:
            found[WORD_MOVERS] = -WordMovers(texts).distances(first, second, progress=progress)
    if data.classes:
        found[MAJORITY] = np.zeros(len(rows[0]))
    return {name: (scores[: len(sampled)], scores[len(sampled) :]) for name, scores in found.items()}, refused


def cosines(
    encoder: TextEncoder,
    texts: list[str],
    first: np.ndarray,
    second: np.ndarray,
    sides: str,
    progress: Progress = silent,
) -> np.ndarray:
    """The cosine of each pair of texts, given by their places, float64; crossed: the mean of both directions."""
    used = np.unique(np.concatenate([first, second]))
    a, b = np.searchsorted(used, first), np.searchsorted(used, second)
    wanted: tuple[Side, ...] = ("query", "document") if sides == "crossed" else (sides,)  # type: ignore[assignment]
    of_used = [texts[i] for i in used.tolist()]
    vectors = {
        side: search_vectors(encoder, of_used, side, similarity="cosine", progress=progress).astype(np.float64)
        for side in wanted
    }
    one, other = vectors[wanted[0]], vectors[wanted[-1]]
    return ((one[a] * other[b]).sum(axis=1) + (one[b] * other[a]).sum(axis=1)) / 2
