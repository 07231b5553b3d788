"""Multinomial naive Bayes over words, add-one smoothing: what a labelled text is compared with.

    log p(c | text) = log p(c) + Σ over its words of log (n(w, c) + 1) / (n(c) + V) + a constant of the text

Words that no training text has say nothing.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from schemas.words import words


class NaiveBayes:
    """texts: of training, with their classes, int [texts]."""

    def __init__(self, texts: Sequence[str], labels: np.ndarray, num_classes: int) -> None:
        counts = [Counter[str]() for _ in range(num_classes)]
        for text, label in zip(texts, labels.tolist(), strict=True):
            counts[label].update(words(text))
        self._row_of = {word: row for row, word in enumerate(sorted(set().union(*counts)))}
        seen_VC = np.zeros((len(self._row_of), num_classes))
        for label, of_class in enumerate(counts):
            for word, times in of_class.items():
                seen_VC[self._row_of[word], label] = times
        self._word_VC = np.log((seen_VC + 1) / (seen_VC.sum(axis=0) + len(seen_VC)))
        share_C = np.bincount(labels, minlength=num_classes) / len(labels)
        self._class_C = np.log(share_C, out=np.full(num_classes, -np.inf), where=share_C > 0)

    def probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """p of each class, float64 [texts, classes]."""
        score_NC = np.tile(self._class_C, (len(texts), 1))
        for at, text in enumerate(texts):
            score_NC[at] += self._word_VC[[self._row_of[w] for w in words(text) if w in self._row_of]].sum(axis=0)
        score_NC -= score_NC.max(axis=1, keepdims=True)
        likelihood_NC = np.exp(score_NC)
        return likelihood_NC / likelihood_NC.sum(axis=1, keepdims=True)
