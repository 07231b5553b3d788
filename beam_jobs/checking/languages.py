"""Languages of queries, detected from many of them together by py3langid, on this machine. The library is optional.

A query of a few words hardly shows its language, a product name (`ryobi 2x4`) none: one by one, py3langid puts
the queries of an English shop into a dozen languages. So no votes are counted. The shares are those that make all its
answers together most likely, found by expectation maximisation (Saerens, Latinne and Decaestecker, "Adjusting the
outputs of a classifier to new a priori probabilities", Neural Computation 14(1), 2002): what English explains well
enough needs no second language. `benchmarks/languages.py` measures how right this is.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

MIN_QUERIES = 100  # different ones; of fewer, chance and a few loan words make languages
MIN_SHARE = 0.05  # what is below may be of the library's making
# Of the queries that a language is given, the part that the library must give it one by one. In texts of one language
# it is a third and more; names of Americans are made out English by a sixth of them.
MIN_BY_ITSELF = 0.25

_MAX_QUERIES = 2_000  # enough to know a share within 0.02
_MAX_LETTERS = 200
_NO_LANGUAGE = "zxx"  # as ISO 639-2 has it: part numbers, letters at random
# Varieties that the library distinguishes from the language whose name people give them.
_PART_OF = {"wuu": "zh", "yue": "zh", "arz": "ar", "ary": "ar", "nn": "no", "uzs": "uz", "hbo": "he", "grc": "el"}


def find_languages(queries: Sequence[str]) -> dict[str, Any]:
    """The languages of different, normalised queries, from a draw of 2,000 of them. Takes about a second.

    `shares`: of the queries with letters, by ISO 639 code, the largest first; what is missing to 1 is unsure.
    `queries`: how many were looked at; 0 where none were, and `why_not` says why.
    """
    lettered = sorted(query for query in queries if any(map(str.isalpha, query)))
    if len(lettered) < MIN_QUERIES:
        why_not = f"{len(lettered)} different queries with letters are too few, it takes {MIN_QUERIES}"
        return {"shares": {}, "queries": 0, "why_not": why_not}
    drawn = np.random.default_rng(0).permutation(len(lettered))[:_MAX_QUERIES]
    try:
        codes, probabilities = identify([lettered[at] for at in drawn])
    except ImportError:
        why_not = "py3langid is not installed (pip install 'clicktower[check]')"
        return {"shares": {}, "queries": 0, "why_not": why_not}
    shares = {code: round(share, 4) for code, share in language_shares(codes, probabilities).items()}
    return {"shares": shares, "queries": len(drawn), "why_not": None}


def identify(queries: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """(codes, how likely each is for each query by itself: float64 [queries, codes], rows sum to 1).

    Raises ImportError where py3langid is not installed.
    """
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    codes = list(identifier.labels)
    answers = [dict(identifier.rank(query[:_MAX_LETTERS])) for query in queries]
    probabilities = np.array([[answer[code] for code in codes] for answer in answers], np.float64)
    probabilities += 1e-9  # a zero would keep a language out for good
    return codes, probabilities / probabilities.sum(axis=1, keepdims=True)


def language_shares(codes: Sequence[str], probabilities: np.ndarray) -> dict[str, float]:
    """The shares of the languages that there is evidence for, by code, the largest first."""
    best = np.bincount(probabilities.argmax(axis=1), minlength=len(codes)) / len(probabilities)
    shares: defaultdict[str, float] = defaultdict(float)
    by_itself: defaultdict[str, float] = defaultdict(float)
    for code, share, alone in zip(codes, most_likely_shares(probabilities).tolist(), best.tolist(), strict=True):
        # Only now: two columns added up before would be twice as likely as their neighbours from the start.
        shares[_PART_OF.get(code, code)] += share
        by_itself[_PART_OF.get(code, code)] += alone
    return {
        code: share
        for code, share in sorted(shares.items(), key=lambda pair: -pair[1])
        if share >= MIN_SHARE and by_itself[code] >= MIN_BY_ITSELF * share and code != _NO_LANGUAGE
    }


def most_likely_shares(probabilities: np.ndarray) -> np.ndarray:
    """The shares of the columns, float64 [columns], sum 1, under which all rows together are most likely."""
    shares = np.full(probabilities.shape[1], 1 / probabilities.shape[1])
    for _ in range(500):
        weighted = probabilities * shares
        before, shares = shares, (weighted / weighted.sum(axis=1, keepdims=True)).mean(axis=0)
        if np.abs(shares - before).max() < 1e-5:
            break
    return shares
