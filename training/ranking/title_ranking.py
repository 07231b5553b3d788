"""The score by which a model ranks titles: near vectors, words that match, and terms that a query and a title share.

    score(q, d) = (1 - l) ((1 - w) R(q, d) + w M(q, d)) + l L(q, d)

    R   the cosine of the two texts, or minus their distance (embedding)
    M   each word's best match in the title, weighed by rarity (WordMatches)
    L   BM25(q, d) / BM25(q, q): what the title has of the query's terms (bm25)

w and l, the model's `word_share` and `lexical_share`, are set by its recipe. R reads whole texts, M finds a word's near
relatives, L the very term, which no vector spells exactly. Every place that ranks calls `mixed`, so evaluation, search
and promotion rank alike.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from clicktower.schemas import storage
from clicktower.schemas.section import Language
from clicktower.schemas.stage import Progress, silent
from clicktower.schemas.text_contract import words
from clicktower.training.model.embedding import (
    AnyEncoder,
    TextEncoder,
    TitleEmbeddings,
    scores_one_by_one,
    search_vectors,
)
from clicktower.training.model.model_folder import read_arrays, safetensors_pieces
from clicktower.training.ranking.bm25 import SortedTerms, TitleBM25, Titles, count_terms, idf


def mixed(
    nearness: np.ndarray, matches: np.ndarray | None, terms: np.ndarray | None, word_share: float, lexical_share: float
) -> np.ndarray:
    """The scores of documents from R, M and L, float32; M and L may be None if their share is 0."""
    scores = nearness
    if word_share:
        assert matches is not None
        scores = (np.float32(1) - np.float32(word_share)) * scores + np.float32(word_share) * matches
    if lexical_share:
        assert terms is not None
        scores = (np.float32(1) - np.float32(lexical_share)) * scores + np.float32(lexical_share) * terms
    return scores


def with_best_by_terms(
    bm25: TitleBM25, query: str, nearest: np.ndarray, depth: int, among: np.ndarray | None = None
) -> np.ndarray:
    """The rows to rank: the nearest, and up to `depth` best by BM25; ascending. among: as in `TitleBM25.best`.

    Of titles with an equal share of the query's terms the first rows are taken: any that is near is there already.
    """
    rows, scores = bm25.best(query, depth, among)
    if len(rows) > depth:
        rows = rows[np.lexsort((rows, -scores))[:depth]]
    return np.union1d(nearest, rows)


class TitleRanking:
    """The titles of a collection ranked by a model."""

    def __init__(
        self,
        encoder: AnyEncoder,
        titles: Sequence[str],
        language: Language,
        *,
        lexical_share: float | None = None,
        bm25: TitleBM25 | None = None,
        progress: Progress = silent,
    ) -> None:
        """lexical_share: in place of the model's. bm25: the titles' index, if there is one already."""
        self._word_share = encoder.word_share
        self._lexical_share = encoder.lexical_share if lexical_share is None else lexical_share
        self.vectors = TitleEmbeddings(encoder, titles, progress=progress)
        self._matches = WordMatches(encoder, titles) if self._word_share else None
        self._bm25 = bm25 or TitleBM25(titles, language) if self._lexical_share else None

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """float32 [queries, titles]."""
        return mixed(
            self.vectors.scores(queries),
            self._matches.scores(queries) if self._matches else None,
            self._bm25.relative_scores(queries) if self._bm25 else None,
            self._word_share,
            self._lexical_share,
        )


# Late interaction: each word of a query looks for its best match in a title.
#
#     M(q, d) = Σ_w idf_w max_v R(w, v) / Σ_w idf_w        words w of the query, v of the title
#
# The sum of maxima is ColBERT's (Khattab and Zaharia, SIGIR 2020, arXiv:2004.12832, eq. 3). A word's vector is the same
# encoder's vector of the word alone, in an ensemble that of the members that match words: it needs no training or
# storage, and the vector of the whole text provides the context. idf is BM25's (bm25), of the titles of the collection;
# a word that no title has is the rarest. A word that occurs twice in a query counts twice. M lies within -1 and 1, as
# the cosine does.

WORDS = "words.safetensors"  # the file's name in a release


def word_encoder(encoder: TextEncoder) -> TextEncoder:
    """The encoder of single words: an ensemble has its own."""
    return getattr(encoder, "of_words", encoder)


class WordMatches:
    """M of a query for the titles of a collection. Safe for many threads.

    Each distinct word of the titles is encoded once; a title is the list of its distinct words' numbers.
    """

    def __init__(self, encoder: TextEncoder, titles: Titles) -> None:
        """titles: each has a word."""
        counts = count_terms(titles, None)
        terms = sorted(counts.vocabulary)  # code points have the order of their UTF-8 bytes
        order = np.fromiter(map(counts.vocabulary.__getitem__, terms), np.int64, len(terms))
        number_of = np.empty(len(terms), np.int32)
        number_of[order] = np.arange(len(terms), dtype=np.int32)
        encoded = [term.encode("utf-8", "surrogatepass") for term in terms]
        by_title = np.argsort(counts.title_of, kind="stable")
        self._take(
            encoder,
            {
                "characters": np.frombuffer(b"".join(encoded), np.uint8),
                "bounds": np.cumsum([0, *map(len, encoded)]),
                "titles_with": counts.titles_with[order],
                "vectors": search_vectors(word_encoder(encoder), terms, "document"),
                "word_of": number_of[counts.word_of[by_title]],
                "starts": np.searchsorted(counts.title_of[by_title], np.arange(len(titles) + 1)),
            },
        )

    @classmethod
    def open(cls, uri: str, encoder: TextEncoder) -> Self:
        """What `write` wrote, mapped from a local disk or read from elsewhere. encoder: the one that encoded the words.

        Raises ValueError for a missing or damaged file.
        """
        self = cls.__new__(cls)
        try:
            self._take(encoder, read_arrays(storage.map_bytes(uri)))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{uri} is not a file of the titles' words, or is damaged: {error}") from None
        return self

    def write(self, uri: str) -> None:
        """Write a safetensors file.

        characters, bounds   the distinct words in the order of their UTF-8 bytes (bm25.SortedTerms)
        titles_with          int64: the number of titles with each word
        vectors              float32 [words, dimensions]
        word_of, starts      int32, int64: title t has the words word_of[starts[t]:starts[t + 1]]
        """
        storage.write_atomic(uri, *safetensors_pieces(self._arrays))

    def _take(self, encoder: TextEncoder, arrays: Mapping[str, np.ndarray]) -> None:
        """Raises ValueError, KeyError and TypeError for arrays that do not fit each other."""
        self._encoder, self._arrays = word_encoder(encoder), arrays
        self._terms = SortedTerms(arrays["bounds"], arrays["characters"])
        self._titles_with, self._vectors_VD = arrays["titles_with"], arrays["vectors"]
        self._word_of, self._starts = arrays["word_of"], arrays["starts"]
        num_words = len(self._terms)
        if (
            [array.dtype for array in (self._vectors_VD, self._word_of, self._starts)] != ["float32", "int32", "int64"]
            or (num_words, num_words) != (len(self._titles_with), len(self._vectors_VD))
            or not (self._starts[:-1] < self._starts[1:]).all()
            or (self._starts[0], self._starts[-1]) != (0, len(self._word_of))
            or (self._word_of.min(initial=0) < 0 or self._word_of.max(initial=0) >= num_words)
        ):
            raise ValueError("its arrays do not fit each other")

    @property
    def num_titles(self) -> int:
        return len(self._starts) - 1

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """M of each query and title, float32 [queries, titles]."""
        order, columns = self._by_length
        matches_QN = np.zeros((len(queries), self.num_titles), np.float32)
        for matches_N, query in zip(matches_QN, queries, strict=True):
            sums_N = np.zeros(self.num_titles, np.float32)
            for weight, cosines_V in self._weighed_cosines(query, self._vectors_VD):
                best_N = cosines_V.take(columns[0])
                for column in columns[1:]:
                    part = best_N[: len(column)]
                    np.maximum(part, cosines_V.take(column), out=part)
                sums_N += weight * best_N
            matches_N[order] = sums_N
        return matches_QN

    @cached_property
    def _by_length(self) -> tuple[np.ndarray, list[np.ndarray]]:
        """(the titles, those of most words first; their first words, their second words, ..., as far as they have so
        many): the best of a word in all titles is then found in a third of the time of `np.maximum.reduceat`.
        """
        lengths = np.diff(self._starts)
        order = np.argsort(-lengths, kind="stable")
        starts, word_of = self._starts[order], self._word_of.astype(np.int64)
        having = [np.count_nonzero(lengths > place) for place in range(lengths.max(initial=1))]
        return order, [word_of[starts[:number] + place] for place, number in enumerate(having)]

    def scores_of(self, query: str, rows: np.ndarray) -> np.ndarray:
        """M of some titles for a query, float32 [rows], as in `scores`."""
        lengths = self._starts[rows + 1] - self._starts[rows]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        at = np.repeat(self._starts[rows] - starts[:-1], lengths) + np.arange(starts[-1])
        distinct, word_of = np.unique(self._word_of[at], return_inverse=True)
        return self._matches(query, self._vectors_VD[distinct], word_of, starts)

    def _matches(self, query: str, vectors_VD: np.ndarray, word_of: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """M of titles whose words have the vectors word_of[starts[t]:starts[t + 1]]."""
        matches = np.zeros(len(starts) - 1, np.float32)
        for weight, cosines_V in self._weighed_cosines(query, vectors_VD):
            matches += weight * np.maximum.reduceat(cosines_V[word_of], starts[:-1])
        return matches

    def _weighed_cosines(self, query: str, vectors_VD: np.ndarray) -> Iterator[tuple[np.float32, np.ndarray]]:
        """The weight of each word of a query, and its cosines with some words of titles."""
        of_query = words(query)
        vectors_QD = search_vectors(self._encoder, of_query, "query")
        for weight, vector_D in zip(self.weights(of_query), vectors_QD, strict=True):
            # Individually, so that titles with the same words have exactly the same score in any company.
            yield weight, scores_one_by_one("cosine", vectors_VD, vector_D)

    def weights(self, of_query: Sequence[str]) -> np.ndarray:
        """The share of each word of a query in M, float32 [words]."""
        rarities = [self._idf(word) for word in of_query]
        total = sum(rarities)
        return np.array([rarity / total for rarity in rarities], np.float32)

    def vectors_of(self, of_title: Sequence[str]) -> np.ndarray:
        """The vectors of a title's words, float32 [words, dimensions]; only those that no title has are encoded."""
        numbers = [(word, self._terms.number(word)) for word in of_title]
        strange = [word for word, at in numbers if at is None]
        vector_of = dict(zip(strange, search_vectors(self._encoder, strange, "document"), strict=True))
        return np.stack([vector_of[word] if at is None else self._vectors_VD[at] for word, at in numbers])

    def _idf(self, word: str) -> float:
        number = self._terms.number(word)
        return idf(self.num_titles, 0 if number is None else int(self._titles_with[number]))
