"""What carried the score of a query and a title, as `POST /v1/explain` answers it."""

from typing import Any

from training.analysis.keywords import GateKeywords, gate_keywords
from training.analysis.occlusion import TextShares, carried
from training.models.ensemble import Ensemble
from training.models.model import Model
from training.ranking.bm25 import TitleBM25


def explain(encoder: Model | Ensemble, bm25: TitleBM25 | None, query: str, title: str) -> dict[str, Any]:
    """Plain values: {"cosine", "distance", "bm25", "query", "title"}; one of the first two is None.

    Of each text: {"text", "num_words", "cut", "words"}, and of each word {"word", "start", "end", "share", "moved",
    "keyword", "in_other", "trigrams"}; a query's word also has "bm25", its part of the title's score. Places are code
    points of the text as typed. `moved` (the share of the most active cells) and `keyword` are None for a tower without
    gates, `bm25` where there is no index of words. Raises UsageError for a text without a word.
    """
    found = carried(encoder, query, title)
    of_query = _text(found.query, gate_keywords(encoder, query, "query"), found.title)
    of_title = _text(found.title, gate_keywords(encoder, title, "document"), found.query)
    parts = bm25.parts(query, title) if bm25 else None
    for number, word in enumerate(of_query["words"]):
        word["bm25"] = parts[number] if parts else None
    score = sum(parts) if parts is not None else None
    cosine, distance = (found.score, None) if encoder.similarity == "cosine" else (None, -found.score)
    return {"cosine": cosine, "distance": distance, "bm25": score, "query": of_query, "title": of_title}


def _text(shares: TextShares, gates: GateKeywords | None, other: TextShares) -> dict[str, Any]:
    of_other = {word.word for word in other.words}
    return {
        "text": shares.text,
        "num_words": shares.num_words,
        "cut": shares.cut,
        "words": [
            {
                "word": word.word,
                "start": word.start,
                "end": word.end,
                "share": word.share,
                "moved": gates.moved[number] if gates and number < len(gates.moved) else None,
                "keyword": number in gates.keywords if gates else None,
                "in_other": word.word in of_other,
                "trigrams": [
                    {"letters": t.letters, "start": t.start, "end": t.end, "share": t.share, "shared": t.shared}
                    for t in word.trigrams
                ],
            }
            for number, word in enumerate(shares.words)
        ],
    }
