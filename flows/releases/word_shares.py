"""A score taken apart: what vectors, words and terms contribute to it, and how much each word of the two texts."""

from collections import deque
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from clicktower.flows.releases.search import Mode, OpenRelease, require_search
from clicktower.schemas.errors import UsageError
from clicktower.schemas.release import Similarity
from clicktower.schemas.text_contract import normalise, split_normalised, words
from clicktower.training.analysis.keywords import gate_keywords
from clicktower.training.model.embedding import AnyEncoder, Side, scores_one_by_one, search_vectors
from clicktower.training.ranking.bm25 import terms_of
from clicktower.training.ranking.title_ranking import WordMatches, mixed, word_encoder

MOST_WORDS = 100  # words of a text that are left out in turn
_STEPS = 300_000  # total words of all shortened forms of a text


def explain_hit(
    release: OpenRelease, query: str, title: str, mode: Mode = "hybrid", *, lexical_share: float | None = None
) -> dict[str, Any]:
    """The score that a search of a release in a mode gives a title, to the last bit, and what contributes to it.

        mode, score
        word_share, lexical_share   w and l of title_ranking; 0 in mode vector, None in mode bm25
        contributions               {"vectors", "words", "terms"}: what each adds to the score
        cosine, distance            R, and None for the other of the two
        words, terms, bm25          M (None for a model that matches no words), L, BM25
        query, title                {"text", "num_words", "words"}, the last of `_text_shares`

    Each word of the query also has "contributions", {"words", "terms"}, what it adds to the score; "match", its best
    match in the title, {"word", "cosine", "weight"}, where words have a share; "terms", which a word such as "&" has
    none of; and "bm25", their part of BM25. The title need not be in the release: it is scored as if it were, with the
    collection's counts.

    A search adds up vectors, words and terms in float32, word after word. A contribution is the difference of two such
    sums, so contributions add up to the score exactly. Raises UsageError as a search does, and for a title without a
    word.
    """
    require_search(query, 1, mode, lexical_share)
    _require_word(title, "document")
    query_D, title_D = release.vector(query), release.title_vector(title)
    nearness, texts = _texts(release.encoder, (query, title), (query_D, title_D))
    matches = _matches(release.encoder, query, title, release.word_matches)
    terms = _terms_of_words(release, query, title)
    of_words = _sums([[np.float32(match["weight"]) * np.float32(match["cosine"])] for match in matches])
    of_bm25 = _sums([[part for _, part in of_word] for of_word in terms])
    of_terms = release.bm25.relative(query, of_bm25)
    shares = _shares(release, mode, lexical_share)

    # The score of the vectors alone, with the match of the first word, with those of the first two, ..., then likewise
    # with the terms.
    num_words = len(terms)
    if mode == "bm25":
        scores = np.concatenate([np.zeros(num_words, np.float32), of_bm25])
    else:
        scores = mixed(
            np.full(1 + 2 * num_words, nearness),
            np.concatenate([of_words, np.repeat(of_words[-1:], num_words)]) if matches else None,
            np.concatenate([np.zeros(num_words, np.float32), of_terms]),
            *shares,
        )
    sums = scores.astype(np.float64)  # in which their differences are exact
    by_word = np.diff(sums).reshape(2, num_words)
    for at, word in enumerate(texts["query"]["words"]):
        word["contributions"] = dict(zip(("words", "terms"), by_word[:, at].tolist(), strict=True))
        word["match"] = matches[at] if matches else None
        word["terms"] = [term for term, _ in terms[at]]
        word["bm25"] = float(of_bm25[at + 1]) - float(of_bm25[at])
    contributions = {"vectors": sums[0], "words": sums[num_words] - sums[0], "terms": sums[-1] - sums[num_words]}
    return {
        "mode": mode,
        "score": float(sums[-1]),
        "word_share": None if mode == "bm25" else shares[0],
        "lexical_share": None if mode == "bm25" else shares[1],
        "contributions": {part: float(value) for part, value in contributions.items()},
        **_nearness(release.encoder.similarity, nearness),
        "words": float(of_words[-1]) if matches else None,
        "terms": float(of_terms[-1]),
        "bm25": float(of_bm25[-1]),
        **texts,
    }


def explain_pair(model: AnyEncoder, query: str, title: str) -> dict[str, Any]:
    """As `explain_hit` for a model without a collection, which alone says how rare a word or a term is.

    So the score and the contributions of a model whose words or terms have a share are None; without such shares the
    score is R. M, L, BM25, terms and the weights of matches are None. Raises UsageError for a text without a word.
    """
    _require_word(query, "query")
    _require_word(title, "document")
    vectors = (search_vectors(model, [query], "query")[0], search_vectors(model, [title], "document")[0])
    nearness, texts = _texts(model, (query, title), vectors)
    matches = _matches(model, query, title)
    for at, word in enumerate(texts["query"]["words"]):
        word |= {"contributions": None, "match": matches[at] if matches else None, "terms": None, "bm25": None}
    ranks_by_vectors = not (model.word_share or model.lexical_share)
    return {
        "mode": "hybrid",
        "score": float(nearness) if ranks_by_vectors else None,
        "word_share": model.word_share,
        "lexical_share": model.lexical_share,
        "contributions": {"vectors": float(nearness), "words": 0.0, "terms": 0.0} if ranks_by_vectors else None,
        **_nearness(model.similarity, nearness),
        "words": None,
        "terms": None,
        "bm25": None,
        **texts,
    }


def _shares(release: OpenRelease, mode: Mode, lexical_share: float | None) -> tuple[float, float]:
    """w and l of a search."""
    if mode == "vector":
        return 0.0, 0.0
    encoder = release.encoder
    return encoder.word_share, encoder.lexical_share if lexical_share is None else lexical_share


def _matches(
    encoder: AnyEncoder, query: str, title: str, collection: WordMatches | None = None
) -> list[dict[str, Any]]:
    """The best match in a title of each word of a query, {"word", "cosine", "weight"}; none where words have no share.

    `collection`: weighs the words by how rare they are, idf_w / Σ idf; the title need not be in it. Weight times
    cosine, in float32 and added up in the words' order, is M to the last bit.
    """
    if not encoder.word_share:
        return []
    of_query, of_title, of_words = words(query), words(title), word_encoder(encoder)
    vectors_VD = collection.vectors_of(of_title) if collection else search_vectors(of_words, of_title, "document")
    weights = collection.weights(of_query).tolist() if collection else [None] * len(of_query)
    matches = []
    for weight, vector_D in zip(weights, search_vectors(of_words, of_query, "query"), strict=True):
        cosines_V = scores_one_by_one("cosine", vectors_VD, vector_D)
        best = int(cosines_V.argmax())
        matches.append({"word": of_title[best], "cosine": float(cosines_V[best]), "weight": weight})
    return matches


def _sums(parts_of_words: Sequence[Sequence[float | np.floating]]) -> np.ndarray:
    """The sum of the parts before the first word, after it, ..., after the last, as a search adds them up: float32
    [1 + words].
    """
    parts = np.array([0.0, *chain.from_iterable(parts_of_words)], np.float32)
    return np.cumsum(parts, dtype=np.float32)[np.cumsum([0, *map(len, parts_of_words)])]


def _terms_of_words(release: OpenRelease, query: str, title: str) -> list[list[tuple[str, float]]]:
    """The terms of each word of a query, and the part of each in the title's BM25 score.

    Words and terms are of two contracts, which cut a piece between white space. Where they cut it differently, as
    around a mark in a script without spaces, the piece's last word has the terms that no other word has.
    """
    parts, language = deque(release.bm25.parts(query, title)), release.release.language
    terms: list[list[tuple[str, float]]] = []
    for piece in normalise(query).split():
        of_piece = deque(parts.popleft() for _ in terms_of(piece, language))
        *first, _ = split_normalised(piece)
        for word in first:
            terms.append(
                [of_piece.popleft() for term in terms_of(word, language) if of_piece and of_piece[0][0] == term]
            )
        terms.append(list(of_piece))
    return terms


def _nearness(similarity: Similarity, nearness: np.float32) -> dict[str, float | None]:
    by_distance = similarity == "euclidean"
    return {
        "cosine": None if by_distance else float(nearness),
        "distance": float(abs(nearness)) if by_distance else None,
    }


def _texts(
    model: AnyEncoder, pair: tuple[str, str], vectors: tuple[np.ndarray, np.ndarray]
) -> tuple[np.float32, dict[str, Any]]:
    """R of a query and a title, and what each word of them does to it: {"query", "title"}, each `_text_shares`."""
    (query, title), (query_D, title_D) = pair, vectors
    return scores_one_by_one(model.similarity, title_D[None], query_D)[0], {
        "query": _text_shares(model, query, "query", title_D, other=title),
        "title": _text_shares(model, title, "document", query_D, other=query),
    }


def _text_shares(model: AnyEncoder, text: str, side: Side, other_D: np.ndarray, *, other: str) -> dict[str, Any]:
    """{"text", "num_words", "words"}: of every word of a query, and of the first words of a title, {"word", "share",
    "moved", "keyword", "in_other"}.

        share(word) = R(Q, D) - R(Q without the word, D)       and likewise for the title's words

    The model reads every shortened text, so a share is exact, for every tower and for ensembles. Shares do not add up
    to R: words depend on each other, and a word that moves the texts apart has a negative share. A text without its
    only word has no embedding: its cosine is 0, its distance that of the zero vector. `share` is None after the first
    words, which are left out in turn; `moved` (the share of the most active cells) and `keyword` for a tower without
    gates.
    """
    text_words, of_other, gates = words(text), set(words(other)), gate_keywords(model, text, side)
    left_out = range(max(1, min(len(text_words), MOST_WORDS, _STEPS // len(text_words))))
    shortened = [" ".join(text_words[:at] + text_words[at + 1 :]) for at in left_out] if len(text_words) > 1 else []
    vectors = search_vectors(model, [text, *shortened], side)
    if not shortened:
        vectors = np.concatenate([vectors, np.zeros_like(vectors)])
    scores = scores_one_by_one(model.similarity, vectors, other_D)
    shares = dict(enumerate((scores[0] - scores[1:]).tolist()))
    return {
        "text": text,
        "num_words": len(text_words),
        "words": [
            {
                "word": text_words[at],
                "share": shares.get(at),
                "moved": gates.moved[at] if gates and at < len(gates.moved) else None,
                "keyword": at in gates.keywords if gates else None,
                "in_other": text_words[at] in of_other,
            }
            for at in (range(len(text_words)) if side == "query" else left_out)
        ],
    }


def _require_word(text: str, side: Side) -> None:
    label = "the query" if side == "query" else "the title"
    if not isinstance(text, str):
        raise UsageError(f"As {label} something of type {type(text).__name__} is given.", "Give one text.")
    if not words(text):
        raise UsageError(
            f"In {label} there is no word, and a text without a word has no embedding.",
            f"Give {label} at least one word.",
        )
