"""Search of a release: a typed query -> ranked documents, by vector, by BM25, or by a weighted sum of both."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pyarrow as pa

from clicktower.flows.releases.document_filter import Filter, matching_rows
from clicktower.flows.releases.release_documents import WORDS_RANK, IndexSearch, open_search, read_table
from clicktower.schemas.errors import StageError, UsageError, require_major
from clicktower.schemas.manifest import damaged_files
from clicktower.schemas.release import MODEL, kept_folder, read_folder, read_release
from clicktower.schemas.text_contract import CONTRACT_VERSION, words
from clicktower.training.model.embedding import search_vectors
from clicktower.training.model.text_encoder import load_text_encoder
from clicktower.training.ranking.bm25 import TitleBM25
from clicktower.training.ranking.rerank import Confidence, rerank
from clicktower.training.ranking.word_matches import WordMatches, with_words

if TYPE_CHECKING:
    from clicktower.training.model.model import AnyEncoder

Mode = Literal["vector", "bm25", "hybrid"]

# The default weight of BM25 in a hybrid. `clicktower compare` reports the one that judged queries choose.
WEIGHT = 0.02
# A hybrid ranks the union of this many best documents of each method.
_CANDIDATES = 100
# The default number of nearest documents that a second scorer reranks.
RERANKED = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    rank: int
    id: str
    title: str
    # The score of the ranking: the cosine (with the words' matches, if the model has them), minus the distance, the
    # BM25 score, or the first of these + weight * BM25.
    score: float
    cosine: float | None = None  # None if it was neither needed nor requested; likewise distance and bm25
    bm25: float | None = None
    distance: float | None = None  # for a release that compares by distance, without cosines
    confidence: float | None = None  # of a second scorer, if its confidence ranks
    release: str | None = None  # of an interleaving: the release that added it
    columns: Mapping[str, Any] = field(default_factory=dict)  # that the release keeps, besides id and title


class OpenRelease:
    """An open release: the pointer is resolved once, and every search stays in that release's folder.

    Its documents are read into memory at the first search, and its titles indexed at the first that needs BM25; `load`
    does both. Afterwards many threads may use it.
    """

    def __init__(self, uri: str, *, digest: str | None = None, hashes: bool = False) -> None:
        """`digest`: of a release that is kept there; None: the live one. Raises UsageError if it is not there,
        StageError if nothing is published, or if the release is damaged or of another version.

        It checks the size of every file; with `hashes` every byte.
        """
        self.uri = uri
        if digest is None:
            self.folder, self.release = read_release(uri)
        else:
            self.folder = kept_folder(uri, digest)
            self.release = read_folder(self.folder)
        require_major(f"the text contract of {uri}", self.release.text_contract.get("trigrams"), CONTRACT_VERSION)
        if wrong := damaged_files(self.folder, self.release.files, hashes=hashes):
            raise StageError(
                f"The release at {uri} cannot be opened: {'; '.join(wrong[:3])}.", "Publish again, which repairs it."
            )
        self.encoder = load_text_encoder(f"{self.folder}/{MODEL}")

    @cached_property
    def model(self) -> "AnyEncoder":
        """The whole model, which explains and classifies; torch takes seconds to load."""
        from clicktower.training.model.model import load_encoder

        return load_encoder(f"{self.folder}/{MODEL}")

    @cached_property
    def bm25(self) -> TitleBM25:
        """The titles, indexed by word."""
        return TitleBM25(self.titles)

    @cached_property
    def word_matches(self) -> WordMatches:
        """The titles' words, encoded individually, for a model that matches words."""
        return WordMatches(self.encoder, self.titles)

    @property
    def ids(self) -> pa.Array:
        """The documents' ids by row: large_string."""
        return self._documents[0]["id"]

    @property
    def titles(self) -> pa.Array:
        """The documents' titles by row: large_string."""
        return self._documents[0]["title"]

    @property
    def documents_search(self) -> IndexSearch:
        """The search over the documents' vectors."""
        return self._documents[1]

    def load(self) -> None:
        """Read and prepare everything now, the whole model too. Raises StageError if something cannot be read."""
        _, self.encoder = self.bm25, self.model
        self.search(self.titles[0].as_py(), 1)  # the compiled tower is prepared at its first text

    def search(
        self,
        text: str,
        k: int = 10,
        mode: Mode = "vector",
        *,
        weight: float = WEIGHT,
        both: bool = False,
        where: Filter | None = None,
    ) -> list[Hit]:
        """The k best documents for a query, best first, ties by descending id as in evaluation.

        A hybrid is cosine + weight * BM25 over the union of each method's best; for a release that compares by
        distance, minus the distance replaces the cosine. If a model matches words (ranking.word_matches), they rerank
        the documents nearest by the cosine, and a hybrid uses that score instead of the cosine. BM25 returns only
        documents that share a word with the query. both: give each hit both scores in any mode. where: the documents to
        choose from (document_filter), which are then all compared, without the index. Raises UsageError for a query
        without a word, for k, mode or weight out of range, and for a filter that does not fit the documents.
        """
        _require(text, k, mode, weight)
        search, among = self.documents_search, self._matching(where)
        if among is not None and not len(among):
            return []
        query = None if mode == "bm25" and not both else self.vector(text)
        near = bm25 = None
        if mode == "vector":
            assert query is not None
            rows, near = self._nearest(query, k, among)
            scores = self._with_words(text, rows, near)
        elif mode == "bm25":
            rows, bm25 = self.bm25.best(text, k, among)
            scores = bm25
        else:
            assert query is not None
            depth = max(k, WORDS_RANK if self.encoder.word_share else _CANDIDATES)
            nearest, _ = self._nearest(query, max(k, _CANDIDATES), among)
            rows = np.union1d(nearest, self.bm25.best(text, depth, among)[0])
            near, bm25 = search.scores_of(query, rows), self.bm25.scores_of(text, rows)
            scores = self._with_words(text, rows, near) + np.float32(weight) * bm25
        if both and near is None and query is not None:
            near = search.scores_of(query, rows)
        if both and bm25 is None:
            bm25 = self.bm25.scores_of(text, rows)
        return [
            self._hit(
                rank, name, rows[at], float(scores[at]),
                near=None if near is None else float(near[at]), bm25=None if bm25 is None else float(bm25[at]),
            )
            for rank, (at, name) in enumerate(self._first(k, rows, scores), 1)
        ]  # fmt: skip

    def rerank(
        self, text: str, k: int, confidence: Confidence, *, depth: int = RERANKED, where: Filter | None = None
    ) -> list[Hit]:
        """The k documents with the highest confidence of a second scorer among the `depth` nearest (rerank).

        where: as in `search`. Raises UsageError as it does, and for a depth out of range, StageError for an invalid
        confidence.
        """
        _require(text, k, "vector", WEIGHT)
        if depth < k:
            raise UsageError(
                f"The {k} best cannot be chosen from the {depth} nearest documents.",
                "Rerank at least as many as are wanted.",
            )
        query, search, similarity = self.vector(text), self.documents_search, self.release.similarity
        among = self._matching(where)
        if among is not None and not len(among):
            return []
        rows, near = search.best(query, depth, among=among)
        nearest = self._first(depth, rows, near)
        candidates = search.vectors_of(rows[[at for at, _ in nearest]])
        reranked = rerank(query, candidates, [name for _, name in nearest], confidence, similarity=similarity)
        return [
            self._hit(
                rank,
                candidate.id,
                rows[nearest[candidate.at][0]],
                candidate.score,
                near=candidate.score,
                confidence=candidate.confidence,
            )
            for rank, candidate in enumerate(reranked[:k], 1)
        ]

    def vector(self, text: str) -> np.ndarray:
        """The search vector of a query, float32 [dimensions]. Raises UsageError for a query without a word."""
        return search_vectors(self.encoder, [text], "query")[0]

    def _nearest(self, query: np.ndarray, results: int, among: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """(rows, nearness) of the documents to rank: as many as are wanted, or as the words rerank."""
        search = self.documents_search
        if not self.encoder.word_share:
            return search.best(query, results, among=among)
        # Earlier versions measured indices without the words.
        is_measured = self.release.index.get("words_rank") == WORDS_RANK
        depth = max(results, WORDS_RANK)
        return search.best(query, depth, among=among, results=results if is_measured else None)

    def _with_words(self, text: str, rows: np.ndarray, near: np.ndarray) -> np.ndarray:
        """The scores of some documents by their nearness to the query, and by their words if the model matches
        words.
        """
        share = self.encoder.word_share
        return with_words(near, self.word_matches.scores_of(text, rows), share) if share else near

    def _matching(self, where: Filter | None) -> np.ndarray | None:
        return None if where is None else matching_rows(self._documents[0], where)

    @cached_property
    def _documents(self) -> tuple[pa.RecordBatch, IndexSearch]:
        documents, vectors_ND = read_table(self.folder)
        return documents, open_search(self.folder, self.release.index, vectors_ND, self.release.similarity)

    def _hit(self, rank: int, name: str, row: int, score: float, *, near: float | None, **scores: Any) -> Hit:
        by_distance = self.release.similarity == "euclidean"
        documents, row = self._documents[0], int(row)
        _, _, *kept = documents.schema.names  # after id and title
        return Hit(
            rank=rank,
            id=name,
            title=documents["title"][row].as_py(),
            score=score,
            cosine=None if by_distance else near,
            distance=abs(near) if by_distance and near is not None else None,
            columns={column: documents[column][row].as_py() for column in kept},
            **scores,
        )

    def _first(self, k: int, rows: np.ndarray, scores: np.ndarray) -> list[tuple[int, str]]:
        """(index among the rows, id) of the k best, in order."""
        if k < len(rows):  # ids are read and compared only for rows that may be among them
            best = np.flatnonzero(scores >= np.partition(scores, len(rows) - k)[len(rows) - k])
        else:
            best = np.arange(len(rows))
        id_of = dict(zip(best.tolist(), self.ids.take(pa.array(rows[best])).to_pylist(), strict=True))
        order = sorted(id_of, key=lambda at: (scores[at], id_of[at]), reverse=True)[:k]
        return [(at, id_of[at]) for at in order]


def search(
    release: str,
    text: str,
    k: int = 10,
    mode: Mode = "vector",
    *,
    weight: float = WEIGHT,
    rerank: int | None = None,
    where: Filter | None = None,
) -> list[Hit]:
    """The k best documents of the live release at a URI for a query; `rerank`: by the classifier of its model, among
    that many of the nearest. Raises UsageError or StageError.
    """
    _require(text, k, mode, weight)  # before anything is loaded
    if rerank is None:
        return OpenRelease(release).search(text, k, mode, weight=weight, where=where)
    if mode != "vector":
        raise UsageError(
            f"The classifier reranks the nearest documents by vector, and the mode is {mode}.",
            "Leave --mode or --rerank out.",
        )
    from clicktower.training.analysis.classifying import confidence_of

    opened = OpenRelease(release)
    return opened.rerank(text, k, confidence_of(opened.model), depth=rerank, where=where)


def _require(text: str, k: int, mode: str, weight: float) -> None:
    if k < 1:
        raise UsageError(f"A search needs k = 1 or more, not {k}.", "Set k to 1 or more.")
    if mode not in get_args(Mode):
        raise UsageError(f"There is no mode {mode!r} of search.", f"Use one of {', '.join(get_args(Mode))}.")
    if not 0 <= weight < float("inf"):
        raise UsageError(
            f"The weight of BM25 is {weight}; it must be a number of 0 or more.", "Give such a number, or leave it out."
        )
    if not words(text):
        raise UsageError(
            "The query has no word, and a text without a word has no embedding.", "Type at least one word."
        )
