"""BM25 over titles: the lexical baseline of every table, and a mode of the search service.

    score(q, d) = sum over the words t of q of  idf_t * tf / (tf + k1 (1 - b + b |d| / avgdl))
    idf_t = ln(1 + (N - df_t + 0.5) / (df_t + 0.5))

This is the form of Lucene, Elasticsearch and OpenSearch (bm25s calls it "lucene"): the idf is never
negative, and the factor k1 + 1, which changes no order, is left out. Words are those of the text contract,
unstemmed; N, df and avgdl are of the whole collection. A word that occurs twice in a query counts twice.

The contribution of every word to every title is computed once, in whole columns, and stored by word; a query adds up
those of its words: by the kernel (kernel_search) if only the best are needed, otherwise by NumPy, with the same result.
The scores are those of the package bm25s, bit for bit; indexing a million titles takes seconds instead of half a
minute.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from clicktower.schemas.lexical_contract import DEFAULT_LANGUAGE, Analyser, Language
from clicktower.schemas.text_contract import words
from clicktower.training.kernel.kernel_library import status
from clicktower.training.kernel.kernel_search import Postings
from clicktower.training.ranking.term_counts import Titles, count_terms, idf, known_words

K1, B = 0.9, 0.4


class TitleBM25:
    """BM25 scores of a query for the titles of a collection. Safe for many threads."""

    def __init__(
        self,
        titles: Titles,
        language: Language | None = DEFAULT_LANGUAGE,
        *,
        k1: float = K1,
        b: float = B,
        compiled: bool | None = None,
    ) -> None:
        """Raises ValueError without a title.

        language: of the titles' words; None: the words of the text contract, which white space separates.
        compiled: whether the kernel finds the best, or NumPy; by default the kernel, if there is one.
        """
        if not len(titles):
            raise ValueError("BM25 needs at least one title")
        terms = count_terms(titles, language)
        self._language, self._k1, self._b = language, k1, b
        self._num_titles = len(titles)
        self._vocabulary, self._starts, self._titles = terms.vocabulary, terms.starts, terms.title_of
        self._mean_words = float(terms.lengths.mean()) or 1.0
        rarity = np.array([idf(self._num_titles, n) for n in terms.titles_with.tolist()], np.float32)
        saturation = k1 * ((1 - b) + b * terms.lengths / self._mean_words)
        counts = terms.counts
        self._parts = (rarity[terms.word_of] * (counts / (saturation[self._titles] + counts))).astype(np.float32)
        if compiled is None:
            compiled = status().available
        self._kernel = Postings(self._titles, self._parts) if compiled else None

    @property
    def parameters(self) -> int:
        """The number of stored values: one per title and distinct word of it."""
        return len(self._parts)

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        """The score of each query and title, float32 [queries, titles]; 0 where they share no word."""
        scores_BN = np.zeros((len(queries), self._num_titles), np.float32)
        for scores_N, query in zip(scores_BN, queries, strict=True):
            for titles, parts in self._postings(query):
                scores_N[titles] += parts
        return scores_BN

    def best(self, query: str, k: int, among: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(titles, scores) of the k best that share a word with a query, int32 and float32, unordered.

        There are more than k if several have the k-th score, fewer if fewer share a word. among: the titles to choose
        from, ascending; None: all.
        """
        columns = np.array(known_words(query, self._vocabulary, self._language), np.int64)
        if not len(columns):
            return np.empty(0, np.int32), np.empty(0, np.float32)
        if self._kernel and among is None:
            return self._kernel.best(self._starts[columns], self._starts[columns + 1], k)
        scores_N = self.scores([query])[0]
        rows = np.flatnonzero(scores_N) if among is None else among[scores_N[among] > 0]  # every part is above 0
        rows = rows.astype(np.int32)
        scores = scores_N[rows]
        if k < len(rows):
            kept = scores >= np.partition(scores, len(rows) - k)[len(rows) - k]
            rows, scores = rows[kept], scores[kept]
        return rows, scores

    def scores_of(self, query: str, rows: np.ndarray) -> np.ndarray:
        """The scores of some titles for a query, float32 [rows], as in `scores`."""
        sums = np.zeros(len(rows), np.float32)
        for titles, parts in self._postings(query):
            at = np.minimum(np.searchsorted(titles, rows), len(titles) - 1)
            sums += np.where(titles[at] == rows, parts[at], np.float32(0))
        return sums

    def parts(self, query: str, title: str) -> list[float]:
        """The contribution of each word of a query to the score of a title, 0 if the title lacks it.

        The title need not be in the collection: it is scored as if it were, with the collection's counts.
        """
        of_title = Counter(self._words(title))
        saturation = self._k1 * (1 - self._b + self._b * of_title.total() / self._mean_words)
        parts = []
        for word in self._words(query):
            column = self._vocabulary.get(word)
            if not of_title[word] or column is None:
                parts.append(0.0)
                continue
            rarity = idf(self._num_titles, int(self._starts[column + 1] - self._starts[column]))
            parts.append(rarity * of_title[word] / (of_title[word] + saturation))
        return parts

    def _words(self, text: str) -> list[str]:
        return Analyser(self._language).terms(text) if self._language else words(text)

    def _postings(self, query: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(titles with the word, ascending; its part of their scores) of each known word of a query, as often as it
        occurs.
        """
        for column in known_words(query, self._vocabulary, self._language):
            entries = slice(self._starts[column], self._starts[column + 1])
            yield self._titles[entries], self._parts[entries]
