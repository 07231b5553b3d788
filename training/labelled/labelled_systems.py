"""What is measured on labelled rows: the model's own answers first, then what words alone can do.

A similarity is float64 [rows], higher where two texts are more alike; a classifier's answer is float64 [rows, classes].
"""

from typing import Literal

import numpy as np

from schemas.errors import UsageError
from schemas.stage import Progress, silent
from training.labelled.labelled_shards import LabelledData, LabelledRows
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
    from training.labelled.classifying import probabilities, refused_because  # torch is loaded where it is used
    from training.models.model import Model

    texts = [*data.train.texts, *data.dev.texts]  # no text is in both
    num_training = len(data.train.texts)
    rows = tuple(
        np.concatenate([of_train, of_dev + num_training])
        for of_train, of_dev in zip(sampled.sides, data.dev.sides, strict=True)
    )
    found: dict[str, np.ndarray] = {}
    refused = refused_because(model, data) if isinstance(model, Model) else "an ensemble has no classifier"
    if not refused:
        assert isinstance(model, Model)
        found[CLASSIFIER] = probabilities(model, texts, rows, data.classes, progress)
    if data.unit == "pairs":
        found |= _similarities(model, texts, num_training, rows, sides, word_movers, progress)
    elif refused:
        raise UsageError(
            asked="classes of labelled texts were to be measured",
            found=refused,
            follows="it has nothing to say of a single text",
            do="give a model that `clicktower train` made of labelled texts of these classes",
        )
    else:
        from training.labelled.lexical import NaiveBayes

        of_words = NaiveBayes(
            [data.train.texts[at] for at in data.train.sides[0]], data.train.labels, len(data.classes)
        )
        found["naive-bayes"] = of_words.probabilities([texts[at] for at in rows[0]])
    if data.classes:
        found[MAJORITY] = np.zeros(len(rows[0]))
    return {name: (scores[: len(sampled)], scores[len(sampled) :]) for name, scores in found.items()}, refused


def _similarities(
    model: TextEncoder,
    texts: list[str],
    num_training: int,
    rows: tuple[np.ndarray, ...],
    sides: Literal["crossed", "query", "document"],
    word_movers: bool,
    progress: Progress,
) -> dict[str, np.ndarray]:
    from training.labelled.lexical import LexicalSimilarity
    from training.labelled.word_movers import WordMovers
    from training.models.model import Model

    first, second = rows
    lexical = LexicalSimilarity(texts, num_training)
    found = {}
    if isinstance(model, Model) and isinstance(model.recipe.tower, Variational):
        found[W2] = -distances(model, texts, first, second, progress)
    found[COSINE] = cosines(model, texts, first, second, sides, progress)
    found["tf-idf"] = lexical.tf_idf(first, second)
    found["bm25"] = lexical.bm25(first, second)
    if word_movers:
        found[WORD_MOVERS] = -WordMovers(texts).distances(first, second, progress=progress)
    return found


def distances(
    model: TextEncoder, texts: list[str], first: np.ndarray, second: np.ndarray, progress: Progress = silent
) -> np.ndarray:
    """W₂ of each pair of texts, given by their places, float64: the Euclidean distance of μ and σ concatenated."""
    used = np.unique(np.concatenate([first, second]))
    progress("encode", 0, len(used))
    vectors = model.encode([texts[i] for i in used.tolist()], "query").astype(np.float64)
    progress("encode", len(used), len(used))
    return np.linalg.norm(vectors[np.searchsorted(used, first)] - vectors[np.searchsorted(used, second)], axis=1)


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
