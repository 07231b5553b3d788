"""BM25 over titles: the lexical baseline of every table, and a mode of the search service.

    score(q, d) = sum over the words t of q of  idf_t * tf / (tf + K(d)),  K(d) = k1 (1 - b + b |d| / avgdl)
    idf_t = ln(1 + (N - df_t + 0.5) / (df_t + 0.5))

This is the form of Lucene, Elasticsearch and OpenSearch (bm25s calls it "lucene"), whose scores it has: the idf is
never negative, and the factor k1 + 1, which changes no order, is left out. Words are the terms of the lexical contract
in a language; N, df and avgdl are of the whole collection. A word that occurs twice in a query counts twice. k1 and b
are those that rank best on average over four data sets (benchmarks/analysers.py).

The contribution of every word to every title is computed once, in whole columns, and stored by word; a query adds up
those of its words: by the kernel (kernel_search) if only some are needed, otherwise by NumPy, with the same result. The
scores are those of the package bm25s, bit for bit; indexing a million titles takes seconds instead of half a minute.

Tantivy's index is a quarter as large (22 MB for a million titles; ours has 99), but one search in a hundred takes it
over 5 ms, and ours over 1 (benchmarks/lexical_speed.py). It also fixes k1 and b, and rounds the lengths of titles to a
byte.

An index can be written to a file and opened again without being read: an Arrow file with one record batch, a row per
word in the order of its UTF-8 bytes.

    term      large_string
    largest   float32: the largest part among the entries
    entries   large_list<struct<title: int32, part: float32>>: titles ascending; the word's part of their scores

Its metadata `bm25` is JSON: version, the contract of the words, titles, mean_words (avgdl), k1 and b.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np
import pyarrow as pa

from clicktower.schemas import storage
from clicktower.schemas.languages import DEFAULT_LANGUAGE, Language
from clicktower.schemas.manifest import canonical_json, from_bytes
from clicktower.training.kernel.kernel_library import status
from clicktower.training.kernel.kernel_search import Postings
from clicktower.training.ranking.term_counts import SortedTerms, Titles, contract, count_terms, idf, terms_of

K1, B = 0.9, 0.6
INDEX = "bm25.arrow"  # the file's name in a release
_VERSION = "1.0"
_METADATA = b"bm25"
_ENTRY = pa.struct([pa.field("title", pa.int32(), nullable=False), pa.field("part", pa.float32(), nullable=False)])
_SCHEMA = pa.schema(
    [
        pa.field("term", pa.large_string(), nullable=False),
        pa.field("largest", pa.float32(), nullable=False),
        pa.field("entries", pa.large_list(pa.field("item", _ENTRY, nullable=False)), nullable=False),
    ]
)


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
        self._take(_index(titles, language, k1, b), language, compiled)

    @classmethod
    def open(
        cls,
        uri: str,
        language: Language | None = DEFAULT_LANGUAGE,
        *,
        k1: float = K1,
        b: float = B,
        compiled: bool | None = None,
    ) -> Self | None:
        """The index that `write` wrote, mapped from a local disk or read from elsewhere.

        None if there is no such file, or if it has other words than ours or other settings than these: it is to be made
        anew from the titles. Raises ValueError for a damaged file.
        """
        try:
            file = pa.ipc.open_file(pa.py_buffer(storage.map_bytes(uri)))
            facts = from_bytes((file.schema.metadata or {})[_METADATA])
            if facts["version"] != _VERSION or {**facts, **_settings(language, k1, b)} != facts:
                return None
            index = file.get_batch(0)
            index.validate()
            self = cls.__new__(cls)
            self._take(index, language, compiled)
        except FileNotFoundError:
            return None
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{uri} is no index of BM25, or a damaged one: {error}") from None
        return self

    def write(self, uri: str) -> None:
        """Write the index to a file. The same titles, language and settings make the same bytes."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, self._index.schema) as writer:
            writer.write_batch(self._index)
        storage.write_atomic(uri, memoryview(sink.getvalue()))

    def _take(self, index: pa.RecordBatch, language: Language | None, compiled: bool | None) -> None:
        """Search an index. Raises ValueError if it is not of `_SCHEMA`, or if its parts do not fit each other."""
        if not index.schema.equals(_SCHEMA):
            raise ValueError(f"its columns are {', '.join(index.schema.names)}")
        facts = from_bytes(index.schema.metadata[_METADATA])
        self._index, self._language = index, language
        self._k1, self._b, self._mean_words = facts["k1"], facts["b"], facts["mean_words"]
        self._num_titles = facts["titles"]
        _, bounds, characters = index["term"].buffers()
        self._terms = SortedTerms(bounds[: 8 * (len(index) + 1)], characters or memoryview(b""))
        self._starts = np.frombuffer(index["entries"].buffers()[1], np.int64)[: len(index) + 1]
        if (self._starts[:-1] > self._starts[1:]).any():
            raise ValueError("its words' entries overlap")
        entries = index["entries"].values
        self._titles = _as_numpy(entries.field("title"), np.int32)
        self._parts = _as_numpy(entries.field("part"), np.float32)
        if compiled is None:
            compiled = status().available
        largest = _as_numpy(index["largest"], np.float32)
        if not (largest > 0).all():
            raise ValueError("the largest part of a word is not above 0")
        self._kernel = Postings(self._starts, self._titles, self._parts, largest) if compiled else None

    @property
    def num_titles(self) -> int:
        return self._num_titles

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
        if self._kernel and among is None:
            return self._kernel.best(self._numbers(query), k)
        rows = np.arange(self._num_titles) if among is None else among
        scores = self.scores_of(query, rows)
        is_best = scores > 0  # every part is
        if k < is_best.sum():
            is_best = scores >= np.partition(scores, len(rows) - k)[len(rows) - k]
        return rows[is_best].astype(np.int32), scores[is_best]

    def scores_of(self, query: str, rows: np.ndarray) -> np.ndarray:
        """The scores of some titles for a query, float32 [rows], as in `scores`; fastest if they ascend."""
        if self._kernel:
            return self._kernel.scores_of(self._numbers(query), rows)
        return self.scores([query])[0][rows]

    def relative_scores(self, queries: Sequence[str]) -> np.ndarray:
        """`relative` of each query and title, float32 [queries, titles]."""
        scores_BN = self.scores(queries)
        return np.stack([self.relative(query, scores_N) for query, scores_N in zip(queries, scores_BN, strict=True)])

    def relative_scores_of(self, query: str, rows: np.ndarray) -> np.ndarray:
        """`relative` of some titles for a query, float32 [rows]."""
        return self.relative(query, self.scores_of(query, rows))

    def self_score(self, query: str) -> float:
        """The score of a title equal to the query, with |q| words, each as often as in the query.

            self_score(q) = sum over the words t of q of  idf_t * tf_q(t) / (tf_q(t) + K(q))

        A word that no title has counts too: with df 0 it is the rarest. 0 for a query without a word.
        """
        of_query = terms_of(query, self._language)
        counts, saturation = Counter(of_query), self._saturation(len(of_query))
        return sum(self._idf(term) * counts[term] / (counts[term] + saturation) for term in of_query)

    def relative(self, query: str, scores: np.ndarray) -> np.ndarray:
        """Scores of a query in parts of its `self_score`, float32: comparable across queries, and hardly above 1.

            relative(q, d) = score(q, d) / self_score(q)

        0 for a query without a word.
        """
        largest = np.float32(self.self_score(query))
        return scores / largest if largest else np.zeros_like(scores)

    def parts(self, query: str, title: str) -> list[tuple[str, float]]:
        """Each term of a query and its part of the score of a title, 0 if the title or every title lacks it.

        Added up in their order in float32 they are the score, to the last bit. The title need not be in the collection:
        it is scored as if it were, with the collection's counts.
        """
        of_title = terms_of(title, self._language)
        counts, saturation = Counter(of_title), self._saturation(len(of_title))

        def part(term: str) -> float:
            if not counts[term] or self._terms.number(term) is None:
                return 0.0
            # In the precision of the index.
            rarity = float(np.float32(self._idf(term)))
            return float(np.float32(rarity * (counts[term] / (saturation + counts[term]))))

        return [(term, part(term)) for term in terms_of(query, self._language)]

    def _saturation(self, num_words: int) -> float:
        """K of a title with so many words."""
        return self._k1 * ((1 - self._b) + self._b * num_words / self._mean_words)

    def _idf(self, term: str) -> float:
        number = self._terms.number(term)
        having = 0 if number is None else int(self._starts[number + 1] - self._starts[number])
        return idf(self._num_titles, having)

    def _numbers(self, query: str) -> np.ndarray:
        """The numbers of the known terms of a query, int64, in order and with repeats."""
        numbers = map(self._terms.number, terms_of(query, self._language))
        return np.array([number for number in numbers if number is not None], np.int64)

    def _postings(self, query: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """(titles with the word, ascending; its part of their scores) of each known word of a query, as often as it
        occurs.
        """
        for number in self._numbers(query):
            entries = slice(self._starts[number], self._starts[number + 1])
            yield self._titles[entries], self._parts[entries]


class RelativeBM25:
    """BM25(q, d) / BM25(q, q) as a system."""

    def __init__(self, bm25: TitleBM25) -> None:
        self._bm25 = bm25

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        return self._bm25.relative_scores(queries)


def _as_numpy(column: pa.Array, dtype: type[np.number]) -> np.ndarray:
    """A column without nulls, not copied. `to_numpy` does the same, but imports pandas."""
    return np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * np.dtype(dtype).itemsize)


def _settings(language: Language | None, k1: float, b: float) -> dict:
    return {"contract": contract(language), "k1": k1, "b": b}


def _index(titles: Titles, language: Language | None, k1: float, b: float) -> pa.RecordBatch:
    """The index of titles, of `_SCHEMA`."""
    counted = count_terms(titles, language)
    mean_words = float(counted.lengths.mean()) or 1.0
    rarity = np.array([idf(len(titles), n) for n in counted.titles_with.tolist()], np.float32)
    saturation = k1 * ((1 - b) + b * counted.lengths / mean_words)
    # rarity * (counts / (saturation + counts)), in place: there are many.
    parts = saturation[counted.title_of]
    parts += counted.counts
    np.divide(counted.counts, parts, out=parts)
    parts *= np.repeat(rarity, counted.titles_with)
    parts = parts.astype(np.float32)
    # Code points have the order of their UTF-8 bytes.
    terms = sorted(counted.vocabulary)
    order = np.fromiter(map(counted.vocabulary.__getitem__, terms), np.int64, len(terms))
    starts = np.concatenate([[0], np.cumsum(counted.titles_with[order])])
    at = np.repeat(counted.starts[order] - starts[:-1], np.diff(starts)) + np.arange(len(parts))
    title_of, parts = counted.title_of[at], parts[at]
    entries = pa.StructArray.from_arrays([pa.array(title_of), pa.array(parts)], fields=list(_ENTRY))
    facts = {"version": _VERSION, "titles": len(titles), "mean_words": mean_words, **_settings(language, k1, b)}
    return pa.record_batch(
        [
            pa.array(terms, pa.large_string()),
            pa.array(np.maximum.reduceat(parts, starts[:-1]) if terms else [], pa.float32()),
            pa.LargeListArray.from_arrays(starts, entries, type=_SCHEMA.field("entries").type),
        ],
        schema=_SCHEMA.with_metadata({_METADATA: canonical_json(facts)}),
    )
