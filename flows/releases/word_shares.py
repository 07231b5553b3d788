"""Each word's share of the score of a query and a title: what the score loses without the word."""

from typing import Any

import numpy as np

from clicktower.schemas.errors import UsageError
from clicktower.schemas.text_contract import words
from clicktower.training.analysis.keywords import gate_keywords
from clicktower.training.model.embedding import Side, scores_one_by_one, search_vectors
from clicktower.training.model.model import AnyEncoder
from clicktower.training.ranking.bm25 import TitleBM25
from clicktower.training.ranking.word_matches import best_matches

MOST_WORDS = 100  # words of a text that are left out in turn
_STEPS = 300_000  # total words of all shortened forms of a text


def word_shares(encoder: AnyEncoder, bm25: TitleBM25 | None, query: str, title: str) -> dict[str, Any]:
    """The contributions to the score of a query and a title: {"cosine", "distance", "bm25", "query", "title"}.

    Of each text: {"text", "num_words", "words"}, and of each of its first words {"word", "share", "moved", "keyword",
    "in_other"}; a query's word also has "bm25", its part of the title's score, and "match", the title's {"word",
    "cosine"} that it meets. `moved` (the share of the most active cells) and `keyword` are None for a tower without
    gates, `bm25` without an index of words, `match` where words have no share of a score. Raises UsageError for a text
    without a word.

        share(word) = R(Q, D) - R(Q without the word, D)       and likewise for the title's words

    The model reads every shortened text, so a share is exact, for every tower and for ensembles. Shares do not add up
    to the score: words depend on each other, and a word that moves the texts apart has a negative share. R is the
    cosine, or minus the distance; the other of the two is None. A text without its only word has no embedding: its
    cosine is 0, its distance that of the zero vector.
    """
    vectors_Qd, vectors_Dd = _shortened_vectors(encoder, query, "query"), _shortened_vectors(encoder, title, "document")
    scores_Q = scores_one_by_one(encoder.similarity, vectors_Qd, vectors_Dd[0])
    scores_D = scores_one_by_one(encoder.similarity, vectors_Dd, vectors_Qd[0])
    of_query = _text_shares(encoder, query, "query", scores_Q, other=title)
    for word in of_query["words"]:
        word["bm25"], word["match"] = _bm25_score(bm25, word["word"], title), None
    if encoder.word_share:
        met = best_matches(encoder, [word["word"] for word in of_query["words"]], words(title))
        for word, (title_word, cosine) in zip(of_query["words"], met, strict=True):
            word["match"] = {"word": title_word, "cosine": cosine}
    score = float(scores_Q[0])
    return {
        "cosine": score if encoder.similarity == "cosine" else None,
        "distance": -score if encoder.similarity == "euclidean" else None,
        "bm25": _bm25_score(bm25, query, title),
        "query": of_query,
        "title": _text_shares(encoder, title, "document", scores_D, other=query),
    }


def _bm25_score(bm25: TitleBM25 | None, query: str, title: str) -> float | None:
    """The score of a query, or of a word of it, which can have no term or several, added up as a search does."""
    if bm25 is None:
        return None
    return float(sum((np.float32(part) for _, part in bm25.parts(query, title)), np.float32(0)))


def _shortened_vectors(encoder: AnyEncoder, text: str, side: Side) -> np.ndarray:
    """The vectors of a text and of the text without each of its first words, float32 [1 + words, d]."""
    text_words = words(text)
    if not text_words:
        label = "the query" if side == "query" else "the title"
        raise UsageError(
            f"In {label} there is no word, and a text without a word has no embedding.",
            f"Give {label} at least one word.",
        )
    left_out = range(max(1, min(len(text_words), MOST_WORDS, _STEPS // len(text_words))))
    shortened = [" ".join(text_words[:at] + text_words[at + 1 :]) for at in left_out] if len(text_words) > 1 else []
    vectors = search_vectors(encoder, [text, *shortened], side)
    return vectors if shortened else np.concatenate([vectors, np.zeros_like(vectors)])


def _text_shares(encoder: AnyEncoder, text: str, side: Side, scores: np.ndarray, *, other: str) -> dict[str, Any]:
    text_words, of_other, gates = words(text), set(words(other)), gate_keywords(encoder, text, side)
    return {
        "text": text,
        "num_words": len(text_words),
        "words": [
            {
                "word": text_words[at],
                "share": share,
                "moved": gates.moved[at] if gates and at < len(gates.moved) else None,
                "keyword": at in gates.keywords if gates else None,
                "in_other": text_words[at] in of_other,
            }
            for at, share in enumerate((scores[0] - scores[1:]).tolist())
        ],
    }
