"""Late interaction: each word of a query looks for its best match in a title.

    M(q, d) = Σ_w idf_w max_v R(w, v) / Σ_w idf_w        words w of the query, v of the title

The sum of maxima is ColBERT's (Khattab and Zaharia, SIGIR 2020, arXiv:2004.12832, eq. 3). A word's vector is the same
encoder's vector of the word alone, in an ensemble that of the members that match words: it needs no training or
storage, and the vector of the whole text provides the context. idf is BM25's (bm25), of the titles of the collection; a
word that no title has is the rarest. A word that occurs twice in a query counts twice. M lies within -1 and 1, as the
cosine does; title_ranking adds them up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clicktower.schemas.text_contract import words
from clicktower.training.model.embedding import TextEncoder, scores_one_by_one, search_vectors
from clicktower.training.model.ensemble import WordEncoder
from clicktower.training.ranking.term_counts import Titles, count_terms, idf


@dataclass(frozen=True, kw_only=True, slots=True)
class Match:
    """A query's word and its best match in a title."""

    word: str  # of the title
    cosine: float
    weight: float | None  # idf_w / Σ idf, as float32; None without a collection

    @property
    def part(self) -> np.float32:
        """What it adds to M."""
        assert self.weight is not None
        return np.float32(self.weight) * np.float32(self.cosine)


def best_matches(encoder: TextEncoder, of_query: Sequence[str], of_title: Sequence[str]) -> list[Match]:
    """The best match in a title of each word of a query, without a collection, which weighs them."""
    of_words = WordEncoder(encoder)
    vectors_VD = search_vectors(of_words, of_title, "document")
    return [_best(of_title, vectors_VD, vector_D) for vector_D in search_vectors(of_words, of_query, "query")]


def _best(of_title: Sequence[str], vectors_VD: np.ndarray, vector_D: np.ndarray, weight: float | None = None) -> Match:
    cosines_V = scores_one_by_one("cosine", vectors_VD, vector_D)
    best = int(cosines_V.argmax())
    return Match(word=of_title[best], cosine=float(cosines_V[best]), weight=weight)


class WordMatches:
    """M of a query for the titles of a collection. Safe for many threads.

    Each distinct word of the titles is encoded once; a title is the list of its distinct words' numbers.
    """

    def __init__(self, encoder: TextEncoder, titles: Titles) -> None:
        terms = count_terms(titles, None)
        self._encoder, self._vocabulary = WordEncoder(encoder), terms.vocabulary
        self._num_titles, self._titles_with = len(titles), terms.titles_with
        by_title = np.argsort(terms.title_of, kind="stable")
        word_of, title_of = terms.word_of[by_title].astype(np.int32), terms.title_of[by_title]
        vectors_VD = search_vectors(self._encoder, list(terms.vocabulary), "document")
        # A title of characters that nobody sees had a word in the text contract 1.0, whose releases are still searched:
        # the vector of that word is now 0.
        wordless = np.flatnonzero(terms.lengths == 0)
        places = np.searchsorted(title_of, wordless)
        self._word_of = np.insert(word_of, places, len(vectors_VD))
        self._starts = np.searchsorted(np.insert(title_of, places, wordless), np.arange(len(titles) + 1))
        self._vectors_VD = np.pad(vectors_VD, ((0, 1 if len(wordless) else 0), (0, 0)))

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """M of each query and title, float32 [queries, titles]."""
        return np.stack([self._matches(query, self._vectors_VD, self._word_of, self._starts) for query in queries])

    def scores_of(self, query: str, rows: np.ndarray) -> np.ndarray:
        """M of some titles for a query, float32 [rows], as in `scores`."""
        lengths = self._starts[rows + 1] - self._starts[rows]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        at = np.repeat(self._starts[rows] - starts[:-1], lengths) + np.arange(starts[-1])
        distinct, word_of = np.unique(self._word_of[at], return_inverse=True)
        return self._matches(query, self._vectors_VD[distinct], word_of, starts)

    def best(self, query: str, title: str) -> list[Match]:
        """The best match of each word of a query in a title, which need not be in the collection.

        Weight times cosine, in float32 and added up in the words' order, is M to the last bit.
        """
        of_query, of_title = words(query), words(title)
        vectors_VD = self._vectors_of(of_title)
        vectors_QD = search_vectors(self._encoder, of_query, "query")
        return [
            _best(of_title, vectors_VD, vector_D, float(weight))
            for weight, vector_D in zip(self._weights(of_query), vectors_QD, strict=True)
        ]

    def _matches(self, query: str, vectors_VD: np.ndarray, word_of: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """M of titles whose words have the vectors word_of[starts[t]:starts[t + 1]]."""
        of_query = words(query)
        matches = np.zeros(len(starts) - 1, np.float32)
        # Individually, so that titles with the same words have exactly the same score in any company.
        vectors_QD = search_vectors(self._encoder, of_query, "query")
        for weight, vector_D in zip(self._weights(of_query), vectors_QD, strict=True):
            cosines_V = scores_one_by_one("cosine", vectors_VD, vector_D)
            matches += weight * np.maximum.reduceat(cosines_V[word_of], starts[:-1])
        return matches

    def _weights(self, of_query: Sequence[str]) -> np.ndarray:
        """The share of each word of a query in M, float32 [words]."""
        rarities = [self._idf(word) for word in of_query]
        total = sum(rarities)
        return np.array([rarity / total for rarity in rarities], np.float32)

    def _vectors_of(self, of_title: Sequence[str]) -> np.ndarray:
        """The vectors of a title's words, float32 [words, dimensions]; only those that no title has are encoded."""
        strange = [word for word in of_title if word not in self._vocabulary]
        vector_of = dict(zip(strange, search_vectors(self._encoder, strange, "document"), strict=True))
        numbers = [(word, self._vocabulary.get(word)) for word in of_title]
        return np.stack([vector_of[word] if at is None else self._vectors_VD[at] for word, at in numbers])

    def _idf(self, word: str) -> float:
        number = self._vocabulary.get(word)
        return idf(self._num_titles, 0 if number is None else int(self._titles_with[number]))
