"""The nearest words of a word: by Doc2Vec's word vectors (Appendix F of the paper), or by a trained tower.

A tower's vector of a word is its embedding of the text that has this word alone, so it knows words that no text has by
their letters.

Shapes: A words asked for, V words of the texts, D dimensions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from schemas.errors import UsageError
from schemas.release import Similarity
from schemas.stage import Progress, silent
from schemas.text_contract import words
from training.data.shard_data import distinct_texts_of
from training.ranking.doc2vec import TitleDoc2Vec
from training.ranking.embedding import Side, TextEncoder, minus_distances, search_vectors, unit


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WordSpace:
    """The words of the texts, their vectors, and those of the words asked for; by cosine all have length 1."""

    vocabulary: Sequence[str]
    vectors_VD: np.ndarray
    asked: Sequence[str]
    asked_AD: np.ndarray
    similarity: Similarity = "cosine"

    def nearest(self, k: int) -> list[dict[str, Any]]:
        """For each word asked for the k nearest others with their scores: cosines, or minus the distances."""
        if self.similarity == "cosine":
            scores_AV = self.asked_AD @ self.vectors_VD.T
        else:
            scores_AV = minus_distances(self.asked_AD, self.vectors_VD)
        found = []
        for word, scores in zip(self.asked, scores_AV, strict=True):
            others = [at for at in np.argsort(-scores, kind="stable")[: k + 1] if self.vocabulary[at] != word][:k]
            nearest = [{"word": self.vocabulary[at], "score": float(scores[at])} for at in others]
            found.append({"word": word, "nearest": nearest})
        return found


def word_space(
    asked: Sequence[str],
    shards: str,
    encoder: TextEncoder | None = None,
    *,
    side: Side = "query",
    epochs: int = 30,
    seed: int = 0,
    progress: Progress = silent,
) -> WordSpace:
    """The words of all texts of a build: as an encoder's `side` has them, without one as Doc2Vec (PV-DM) learns them.

    Raises UsageError for what is not one word, or a word that Doc2Vec does not know; StageError without gensim.
    """
    if odd := [text for text in asked if len(words(text)) != 1] or ([] if asked else [""]):
        raise UsageError(asked=f"the nearest words of {', '.join(map(repr, odd))} were to be found",
                         found="each must be one word",
                         do="give one or more: clicktower nearest-words pizza infection --shards FOLDER")  # fmt: skip
    asked = [word for text in asked for word in words(text)]
    texts = distinct_texts_of(shards, held_out=True).to_pylist()
    if encoder:
        vocabulary = sorted({word for text in texts for word in words(text)})
        vectors_VD = search_vectors(encoder, vocabulary, side, what="encode words", progress=progress)
        asked_AD = search_vectors(encoder, asked, side)
        return WordSpace(vocabulary=vocabulary, vectors_VD=vectors_VD, asked=asked, asked_AD=asked_AD,
                         similarity=encoder.similarity)  # fmt: skip
    vocabulary, vectors_VD = TitleDoc2Vec(texts, memory=True, epochs=epochs, seed=seed, progress=progress).word_vectors
    row_of, vectors_VD = {word: row for row, word in enumerate(vocabulary)}, unit(vectors_VD)
    if unknown := [word for word in asked if word not in row_of]:
        raise UsageError(asked=f"the nearest words of {', '.join(unknown)} were to be found",
                         found="no text of the shards has it", follows="Doc2Vec has no vector of it",
                         do="give another word, or --model: a tower reads any word by its letters")  # fmt: skip
    asked_AD = vectors_VD[[row_of[word] for word in asked]]
    return WordSpace(vocabulary=vocabulary, vectors_VD=vectors_VD, asked=asked, asked_AD=asked_AD)
