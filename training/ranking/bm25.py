"""BM25 over titles: the lexical baseline of every table, and a mode of the search service.

    score(q, d) = sum over the words t of q of  idf_t * tf / (tf + K(d)),  K(d) = k1 (1 - b + b |d| / avgdl)
    idf_t = ln(1 + (N - df_t + 0.5) / (df_t + 0.5))

This is the form of Lucene, Elasticsearch and OpenSearch (bm25s calls it "lucene"), whose scores it has: the idf is
never negative, and the factor k1 + 1, which changes no order, is left out. Words are the terms of the lexical contract
in a language; N, df and avgdl are of the whole collection. A word that occurs twice in a query counts twice. k1 and b
are those that rank best on average over four data sets (benchmarks/analysers.py).

The contribution of every word to every title is computed once, in whole columns, and stored by word; a query adds up
those of its words: by the kernel (kernel_library.Postings) if only some are needed, otherwise by NumPy, with the same
result. The scores are those of the package bm25s, bit for bit; indexing a million titles takes seconds instead of half
a minute.

Tantivy's index is a quarter as large (22 MB for a million titles; ours has 99), but one search in a hundred takes it
over 5 ms, and ours over 1 (benchmarks/lexical_speed.py). It also fixes k1 and b, and rounds the lengths of titles to a
byte.

An index can be written to a file and opened again without being read: an Arrow file with one record batch, a row per
word in the order of its UTF-8 bytes.

    term      large_string
    largest   float32: the largest part among the entries
    entries   large_list<struct<title: int32, part: float32>>: titles ascending; the word's part of their scores

Its metadata `bm25` is JSON: version, the contract of the words, titles, mean_words (avgdl), k1 and b.

TermCounts is how often each word occurs in each title, sparse: one entry for each title and distinct word of it.

Words are the terms of the lexical contract in a language or, without a language, the words of the text contract. A
column of titles is cut as a whole, a million titles in seconds.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa

from clicktower.schemas import storage
from clicktower.schemas.lexical_contract import Analyser
from clicktower.schemas.manifest import canonical_json, from_bytes
from clicktower.schemas.section import DEFAULT_LANGUAGE, Language
from clicktower.schemas.text_contract import CONTRACT_VERSION, normalise_column, words, words_of_column
from clicktower.training.kernel.kernel_library import Postings, status

Titles: TypeAlias = Sequence[str] | pa.Array | pa.ChunkedArray
_CHUNK_TITLES = 1 << 20  # cut into words at once
_FREQUENT_TERMS = 16_384  # whose numbers are kept


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TermCounts:
    """Entries in the order of the words, within a word by title; word w has the entries starts[w]:starts[w + 1]."""

    vocabulary: Mapping[str, int]  # in order of first appearance
    starts: np.ndarray  # int64 [words + 1]
    title_of: np.ndarray  # int32 [entries]
    counts: np.ndarray  # int64 [entries]: at least 1
    lengths: np.ndarray  # int64 [titles]: words, repeated ones as often as they occur

    @property
    def titles_with(self) -> np.ndarray:
        """The number of titles that have each word, int64 [words]."""
        return np.diff(self.starts)

    @property
    def word_of(self) -> np.ndarray:
        """The word of each entry, int64 [entries]; ascending."""
        return np.repeat(np.arange(len(self.vocabulary)), self.titles_with)

    @property
    def of_words(self) -> np.ndarray:
        """The occurrences of each word in all titles, int64 [words]."""
        return np.bincount(self.word_of, self.counts, len(self.vocabulary)).astype(np.int64)


class SortedTerms:
    """The terms of a file in the order of their UTF-8 bytes: term i is characters[bounds[i]:bounds[i + 1]].

    Only those that a term is compared with are read.
    """

    def __init__(self, bounds: Any, characters: Any) -> None:
        """Both are bytes-like: arrays, or buffers of Arrow; bounds: int64."""
        self._bounds, self._characters = memoryview(bounds).cast("B").cast("q"), memoryview(characters).cast("B")
        self._frequent = lru_cache(_FREQUENT_TERMS)(self._find)  # queries share most of their words

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def number(self, term: str) -> int | None:
        """The number of a term, None for an unknown one."""
        try:
            return self._frequent(term)
        except KeyError:  # is not kept: anyone may ask for any word
            return None

    def _find(self, term: str) -> int:
        encoded = term.encode("utf-8", "surrogatepass")
        number = bisect_left(range(len(self)), encoded, key=self._encoded)
        if number == len(self) or self._encoded(number) != encoded:
            raise KeyError(term)
        return number

    def _encoded(self, number: int) -> bytes:
        return self._characters[self._bounds[number] : self._bounds[number + 1]].tobytes()


def count_terms(titles: Titles, language: Language | None) -> TermCounts:
    """The counts of the titles' words."""
    analyser = Analyser(language) if language else None
    vocabulary: dict[str, int] = {}
    lengths, numbers_of_chunks = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for start in range(0, len(titles), _CHUNK_TITLES):
        part = titles[start : start + _CHUNK_TITLES]
        column = part if isinstance(part, pa.Array | pa.ChunkedArray) else pa.array(part)
        column = column.cast(pa.string())
        offsets, of_chunk = analyser.terms_of_column(column) if analyser else words_of_column(normalise_column(column))
        lengths.append(np.diff(offsets))
        numbers = [vocabulary.setdefault(word, len(vocabulary)) for word in of_chunk.dictionary.to_pylist()]
        numbers_of_chunks.append(np.array(numbers, np.int64)[of_chunk.indices.to_numpy()])
    lengths_N = np.concatenate(lengths)
    # Word and title as one number with the same order, in place: there are many.
    keys = np.concatenate(numbers_of_chunks)
    del numbers_of_chunks
    keys *= len(titles)
    keys += np.repeat(np.arange(len(titles)), lengths_N)
    keys.sort()
    firsts = np.flatnonzero(np.diff(keys, prepend=-1))
    counts = np.diff(firsts, append=len(keys))
    word_of, title_of = np.divmod(keys[firsts], max(1, len(titles)))
    starts = np.concatenate([[0], np.cumsum(np.bincount(word_of, minlength=len(vocabulary)))])
    return TermCounts(
        vocabulary=vocabulary, starts=starts, title_of=title_of.astype(np.int32), counts=counts, lengths=lengths_N
    )


def terms_of(text: str, language: Language | None) -> list[str]:
    """The words of a text, as `count_terms` counts them, in reading order and with repeats."""
    return Analyser(language).terms(text) if language else words(text)


def contract(language: Language | None) -> dict[str, str]:
    """What a reader of saved words must have, to look them up."""
    return Analyser(language).contract if language else {"trigrams": CONTRACT_VERSION}


def idf(num_titles: int, having: int) -> float:
    """The rarity of a word by the number of titles that have it, in Lucene's form: never negative."""
    return math.log(1 + (num_titles - having + 0.5) / (having + 0.5))


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
    def open(cls, uri: str, language: Language | None = DEFAULT_LANGUAGE) -> Self | None:
        """The index that `write` wrote, mapped from a local disk or read from elsewhere.

        None if there is no such file, or if it has other words or settings than ours: it is to be made anew from the
        titles. Raises ValueError for a damaged file.
        """
        try:
            file = pa.ipc.open_file(pa.py_buffer(storage.map_bytes(uri)))
            facts = from_bytes((file.schema.metadata or {})[_METADATA])
            if facts["version"] != _VERSION or {**facts, **_settings(language, K1, B)} != facts:
                return None
            index = file.get_batch(0)
            index.validate()
            self = cls.__new__(cls)
            self._take(index, language, None)
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
