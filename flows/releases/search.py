"""Search of a release: a typed query -> ranked documents, by the model's whole score, by vectors alone or by BM25."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import safetensors

from clicktower.flows.releases.document_filter import Filter, matching_rows, require_filter
from clicktower.flows.releases.release_documents import CANDIDATES, IVF, IndexSearch, open_documents, read_ivf
from clicktower.schemas import storage
from clicktower.schemas.document_forms import finite
from clicktower.schemas.errors import StageError, UsageError, require_major
from clicktower.schemas.manifest import damaged_files
from clicktower.schemas.release import MODEL, kept_folder, read_folder, read_release, require_searchable
from clicktower.schemas.text_contract import CONTRACT_VERSION, words
from clicktower.training.model.embedding import search_vectors
from clicktower.training.model.model import load_encoder
from clicktower.training.ranking.bm25 import INDEX, TitleBM25
from clicktower.training.ranking.hybrid import Confidence, rerank
from clicktower.training.ranking.nearest import Partitions
from clicktower.training.ranking.title_ranking import WORDS, WordMatches, mixed, with_best_by_terms

Mode = Literal["hybrid", "vector", "bm25"]

# The default number of nearest documents that a second scorer reranks.
RERANKED = 100

# The first hits, which are the same for every k and offset, so that pages neither repeat nor skip any: they are ranked
# among the same CANDIDATES, which the index searches at the one depth where its recall for so many was measured.
PAGED = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    rank: int
    id: str
    title: str
    score: float  # R, M and L by their shares in a hybrid (title_ranking), the cosine or minus the distance, or BM25
    cosine: float | None = None  # None if it was neither needed nor requested; likewise the next four
    distance: float | None = None  # for a release that compares by distance, without cosines
    words: float | None = None  # M, for a model that matches words
    terms: float | None = None  # L
    bm25: float | None = None
    confidence: float | None = None  # of a second scorer, if its confidence ranks
    release: str | None = None  # of an interleaving: the release that added it
    columns: Mapping[str, Any] = field(default_factory=dict)  # that the release keeps, besides id and title


def open_index(folder: str, index: Mapping[str, Any], vectors_ND: np.ndarray) -> Partitions | None:
    """The index of a release's vectors, or None without one. Raises StageError if it is missing, damaged or of other
    vectors.
    """
    try:
        partitions = read_ivf(folder) if index["kind"] == "ivf" else None
        if partitions:
            partitions.require_of(vectors_ND)
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError):
        raise StageError(
            f"In {folder} the index {IVF} is missing, damaged or of other documents.",
            "Run `clicktower verify` on it, and publish again.",
        ) from None
    return partitions


class OpenRelease:
    """An open release: the pointer is resolved once, and every file that a search reads is mapped or read.

    So every search is of that release, even if its folder is removed meanwhile. What searches need is prepared by the
    first; `load` prepares all of it. Afterwards many threads may use it.
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
        contract = self.release.text_contract.get("trigrams")
        require_major(f"the text contract of {uri}", contract, CONTRACT_VERSION, stage="publish")
        require_searchable(uri, self.release)
        if wrong := damaged_files(self.folder, self.release.files, hashes=hashes):
            raise StageError(
                f"The release at {uri} cannot be opened: {'; '.join(wrong[:3])}.", "Publish again, which repairs it."
            )
        self.encoder = load_encoder(f"{self.folder}/{MODEL}")
        self.documents, self.vectors_ND = open_documents(self.folder)
        self.ids, self.titles = self.documents["id"], self.documents["title"]  # by row: large_string
        try:
            if self.vectors_ND.shape != (self.release.num_documents, self.release.dimensions):
                raise ValueError("its documents are not as many, or as long, as its record says")
            self._terms = TitleBM25.open(storage.join(self.folder, INDEX), self.release.language)
            # The titles' words, encoded individually, of a model that matches words.
            self.word_matches = (
                WordMatches.open(storage.join(self.folder, WORDS), self.encoder) if self.encoder.word_share else None
            )
            for name, part in ((INDEX, self._terms), (WORDS, self.word_matches)):
                if part and part.num_titles != len(self.titles):
                    raise ValueError(f"{name} is of {part.num_titles:,} other titles")
        except ValueError as error:
            raise StageError(
                f"{self.folder} cannot be opened: {error}.", "Run `clicktower verify` on it, and publish again."
            ) from None
        self._partitions = open_index(self.folder, self.release.index, self.vectors_ND)

    @cached_property
    def bm25(self) -> TitleBM25:
        """The titles, indexed by term. A release of another lexical contract has an index of other terms."""
        return self._terms or TitleBM25(self.titles, self.release.language)

    @cached_property
    def documents_search(self) -> IndexSearch:
        """The search over the documents' vectors."""
        search = IndexSearch(self.vectors_ND, self._partitions, similarity=self.release.similarity)
        search.steps = self.release.index.get("steps", ())
        return search

    def load(self) -> None:
        """Read and prepare everything now. Raises StageError if something cannot be read."""
        from clicktower.training.analysis import traces  # noqa: F401  # an explanation needs torch, which loads slowly

        _ = self.bm25
        self.search("a", 1)  # the compiled tower is prepared at its first text

    def search(
        self,
        text: str,
        k: int = 10,
        mode: Mode = "hybrid",
        *,
        offset: int = 0,
        lexical_share: float | None = None,
        details: bool = False,
        where: Filter | None = None,
    ) -> list[Hit]:
        """The k best documents for a query after the first `offset`, best first, ties by descending id as in
        evaluation.

        hybrid: by the score that evaluation measures (title_ranking), over the CANDIDATES nearest and as many best by
        BM25; `lexical_share` replaces the model's. vector: by the nearness of vectors alone. bm25: documents that share
        a term with the query. details: give each hit every part of a score in any mode. where: the documents to choose
        from (document_filter), which are then all compared, without the index. With an offset hits are among the first
        PAGED; k alone may be more, and then as many candidates are ranked. Raises UsageError for a query without a
        word, for k, offset, mode or share out of range, a share in another mode than hybrid, and for a filter that does
        not fit the documents.
        """
        require_search(text, k, mode, lexical_share, offset=offset, where=where)
        search, among = self.documents_search, self._matching(where)
        if among is not None and not len(among):
            return []
        query = None if mode == "bm25" and not details else self.vector(text)
        last = offset + k
        terms = self.encoder.lexical_share if lexical_share is None else lexical_share
        near = of_words = of_terms = bm25 = None
        if mode == "bm25":
            rows, scores = self.bm25.best(text, last, among)
        elif mode == "vector" or not (self.word_matches or terms):
            assert query is not None
            rows, scores = self._nearest(query, last, among)
        else:
            assert query is not None
            rows = self._candidates(query, text, last, among)
            near = search.scores_of(query, rows)
            of_words = self.word_matches.scores_of(text, rows) if self.word_matches else None
            if terms:
                bm25 = self.bm25.scores_of(text, rows)
                of_terms = self.bm25.relative(text, bm25)
            scores = mixed(near, of_words, of_terms, self.encoder.word_share, terms)
        first = self._first(last, rows, scores)[offset:]
        at = [place for place, _ in first]
        rows, scores = rows[at], scores[at]
        parts = (near, of_words, of_terms, bm25)
        near, of_words, of_terms, bm25 = (None if part is None else part[at] for part in parts)
        if query is not None and near is None:
            near = search.scores_of(query, rows)
        if details and self.word_matches and of_words is None:
            of_words = self.word_matches.scores_of(text, rows)
        if bm25 is None and (details or mode == "bm25"):
            bm25 = self.bm25.scores_of(text, rows)
            of_terms = self.bm25.relative(text, bm25)
        return [
            self._hit(
                rank, name, rows[place], float(scores[place]), near=_at(near, place), words=_at(of_words, place),
                terms=_at(of_terms, place), bm25=_at(bm25, place),
            )
            for place, (rank, (_, name)) in enumerate(enumerate(first, offset + 1))
        ]  # fmt: skip

    def rerank(
        self,
        text: str,
        k: int,
        confidence: Confidence,
        *,
        depth: int = RERANKED,
        offset: int = 0,
        where: Filter | None = None,
    ) -> list[Hit]:
        """The k documents with the highest confidence of a second scorer among the `depth` nearest (hybrid).

        offset, where: as in `search`. Raises UsageError as it does, and for a depth out of range, StageError for an
        invalid confidence.
        """
        require_search(text, k, "vector", None, offset=offset, where=where)
        if depth < offset + k:
            raise UsageError(
                f"The {offset + k} best cannot be chosen from the {depth} nearest documents.",
                "Rerank at least as many as are wanted.",
            )
        query, search, similarity = self.vector(text), self.documents_search, self.release.similarity
        among = self._matching(where)
        if among is not None and not len(among):
            return []
        rows, near = self._nearest(query, depth, among)
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
            for rank, candidate in enumerate(reranked[offset : offset + k], offset + 1)
        ]

    def vector(self, text: str) -> np.ndarray:
        """The search vector of a query, float32 [dimensions]. Raises UsageError for a query without a word."""
        return search_vectors(self.encoder, [text], "query")[0]

    def title_vector(self, title: str) -> np.ndarray:
        """The search vector of a title, float32 [dimensions], as a search compares it if a document has that title.

        Raises UsageError for a title without a word.
        """
        row = pc.index(self.titles, title).as_py()
        if row < 0:
            return search_vectors(self.encoder, [title], "document")[0]
        return self.documents_search.vectors_of(np.array([row]))[0]

    def title_of(self, document_id: str) -> str | None:
        """The title of a document; None if no document has the id."""
        row = pc.index(self.ids, document_id).as_py()
        return None if row < 0 else self.titles[row].as_py()

    def _nearest(self, query: np.ndarray, k: int, among: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """(rows, scores) of the documents nearest by vectors alone.

        An index that was measured on hybrids finds less of them, and every document is compared.
        """
        if "candidates" in self.release.index:
            return self.documents_search.exact(query, k, among)
        return self.documents_search.best(query, max(k, PAGED), among=among)

    def _candidates(self, query: np.ndarray, text: str, k: int, among: np.ndarray | None) -> np.ndarray:
        """The rows of the documents that a hybrid ranks: the nearest, and the best by BM25."""
        depth = max(k, CANDIDATES)
        # Not where neither words nor terms of the model have a share: its index was measured on vectors alone.
        results = max(k, PAGED) if self.release.index.get("candidates") == CANDIDATES else None
        nearest, _ = self.documents_search.best(query, depth, among=among, results=results)
        return with_best_by_terms(self.bm25, text, nearest, depth, among)

    def _matching(self, where: Filter | None) -> np.ndarray | None:
        return None if where is None else matching_rows(self._finite, where)

    @cached_property
    def _finite(self) -> pa.RecordBatch:
        """The documents as answers have them."""
        return finite(self.documents)

    def _hit(self, rank: int, name: str, row: int, score: float, *, near: float | None, **scores: Any) -> Hit:
        by_distance = self.release.similarity == "euclidean"
        documents, row = self._finite, int(row)
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
        id_of = {at: self.ids[int(rows[at])].as_py() for at in best.tolist()}
        order = sorted(id_of, key=lambda at: (scores[at], id_of[at]), reverse=True)[:k]
        return [(at, id_of[at]) for at in order]


def search(
    release: str,
    text: str,
    k: int = 10,
    mode: Mode = "hybrid",
    *,
    offset: int = 0,
    lexical_share: float | None = None,
    rerank: int | None = None,
    where: Filter | None = None,
) -> list[Hit]:
    """The k best documents of the live release at a URI for a query, after the first `offset`; `rerank`: by the
    classifier of its model, among that many of the nearest. Raises UsageError or StageError.
    """
    require_search(text, k, mode, lexical_share, offset=offset, where=where)  # before anything is loaded
    if rerank is None:
        opened = OpenRelease(release)
        return opened.search(text, k, mode, offset=offset, lexical_share=lexical_share, where=where)
    if mode == "bm25" or lexical_share is not None:
        reason = "the mode is bm25" if mode == "bm25" else "the terms are given a share"
        raise UsageError(
            f"The classifier reranks the nearest documents by vector, and {reason}.",
            f"Leave {'--mode' if mode == 'bm25' else '--lexical-share'} or --rerank out.",
        )
    from clicktower.training.analysis.classifying import confidence_of

    opened = OpenRelease(release)
    return opened.rerank(text, k, confidence_of(opened.encoder), depth=rerank, offset=offset, where=where)


def require_search(
    text: str, k: int, mode: str, lexical_share: float | None, *, offset: int = 0, where: Filter | None = None
) -> None:
    """Raises UsageError for a query that is no text or has no word, for settings of another type or out of range, and
    for a share where terms have none.
    """
    if not isinstance(text, str):
        raise UsageError(f"The query is no text, but of type {type(text).__name__}.", "Give it as one text.")
    for name, value, least in (("k", k, 1), ("offset", offset, 0)):
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < least:
            raise UsageError(
                f"A search needs {name} = {least} or more, not {value!r}.", f"Set {name} to {least} or more."
            )
    if offset and offset + k > PAGED:
        raise UsageError(
            f"Hits {offset + 1:,} to {offset + k:,} are asked for, and pages reach the first {PAGED}.",
            f"Ask for all at once: k = {offset + k} without an offset, which ranks as many candidates.",
        )
    if mode not in get_args(Mode):
        raise UsageError(f"There is no mode {mode!r} of search.", f"Use one of {', '.join(get_args(Mode))}.")
    if lexical_share is not None and not (
        isinstance(lexical_share, int | float | np.number) and 0 <= lexical_share < 1
    ):
        raise UsageError(
            f"The share of the terms in a score is {lexical_share}; it must be 0 or more, and below 1.",
            "Give such a number, or leave it out.",
        )
    if where is not None:
        require_filter(where)
    if lexical_share is not None and mode != "hybrid":
        raise UsageError(
            f"The mode {mode} ranks by {'terms' if mode == 'bm25' else 'vectors'} alone, without a share of the terms.",
            "Leave the mode or the lexical share out.",
        )
    if not words(text):
        raise UsageError(
            "The query has no word, and a text without a word has no embedding.", "Type at least one word."
        )


def _at(values: np.ndarray | None, place: int) -> float | None:
    return None if values is None else float(values[place])
