"""What carried the score of a query and a title, as `POST /v1/explain` answers it.

    share(word) = R(Q, D) - R(Q without the word, D)       and likewise for the title's words

The model reads every shortened text, so a share is exact, for every tower and for ensembles. Shares do not add up to
the score: words depend on each other, and a word that pulls the texts apart has a negative share. R is the cosine, or
minus the distance. A text without its only word has no embedding: its cosine is 0, its distance that of the zero
vector.
"""

from typing import Any

import numpy as np

from schemas.errors import UsageError
from schemas.text_contract import words
from training.analysis.keywords import gate_keywords
from training.models.model import Ensemble, Model
from training.ranking.bm25 import TitleBM25
from training.ranking.embedding import Side, scores_one_by_one, search_vectors

MOST_WORDS = 100  # of a text, that are left out in turn
_STEPS = 300_000  # words that all shortened forms of one text may have in all


def explain(encoder: Model | Ensemble, bm25: TitleBM25 | None, query: str, title: str) -> dict[str, Any]:
    """Plain values: {"cosine", "distance", "bm25", "query", "title"}; one of the first two is None.

    Of each text: {"text", "num_words", "words"}, and of each of its first words {"word", "share", "moved", "keyword",
    "in_other"}; a query's word also has "bm25", its part of the title's score. `moved` (the share of the most active
    cells) and `keyword` are None for a tower without gates, `bm25` without an index of words. Raises UsageError for a
    text without a word.
    """
    vectors_Qd, vectors_Dd = _vectors(encoder, query, "query"), _vectors(encoder, title, "document")
    scores_Q = scores_one_by_one(encoder.similarity, vectors_Qd, vectors_Dd[0])
    scores_D = scores_one_by_one(encoder.similarity, vectors_Dd, vectors_Qd[0])
    parts = bm25.parts(query, title) if bm25 else None
    of_query = _text(encoder, query, "query", scores_Q, other=title)
    for number, word in enumerate(of_query["words"]):
        word["bm25"] = parts[number] if parts else None
    score = float(scores_Q[0])
    return {
        "cosine": score if encoder.similarity == "cosine" else None,
        "distance": -score if encoder.similarity == "euclidean" else None,
        "bm25": None if parts is None else sum(parts),
        "query": of_query,
        "title": _text(encoder, title, "document", scores_D, other=query),
    }


def _vectors(encoder: Model | Ensemble, text: str, side: Side) -> np.ndarray:
    """The vectors of a text and of the text without each of its first words, float32 [1 + words, d]."""
    found = words(text)
    if not found:
        what = "the query" if side == "query" else "the title"
        raise UsageError(
            asked="a score was to be explained",
            found=f"{what} has no word",
            follows="a text without a word has no embedding",
            do=f"give {what} at least one word",
        )
    left_out = range(max(1, min(len(found), MOST_WORDS, _STEPS // len(found))))
    shortened = [" ".join(found[:at] + found[at + 1 :]) for at in left_out] if len(found) > 1 else []
    vectors = search_vectors(encoder, [text, *shortened], side)
    return vectors if shortened else np.concatenate([vectors, np.zeros_like(vectors)])


def _text(encoder: Model | Ensemble, text: str, side: Side, scores: np.ndarray, *, other: str) -> dict[str, Any]:
    found, of_other, gates = words(text), set(words(other)), gate_keywords(encoder, text, side)
    return {
        "text": text,
        "num_words": len(found),
        "words": [
            {
                "word": found[at],
                "share": share,
                "moved": gates.moved[at] if gates and at < len(gates.moved) else None,
                "keyword": at in gates.keywords if gates else None,
                "in_other": found[at] in of_other,
            }
            for at, share in enumerate((scores[0] - scores[1:]).tolist())
        ],
    }
