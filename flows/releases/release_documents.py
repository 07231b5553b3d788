"""The documents of a release, an Arrow file, and the index that searches their vectors (IVF).

documents.arrow   one record batch, uncompressed, a row per document: id and title (large_string), the kept columns, and
                  vector (fixed_size_list of float32). A local file is mapped, any other is read
ivf.safetensors   centres: float32 [partitions, dimensions]; partition_of: int32 [documents], in the file's order

An index that reached the required recall in `publish` is used for as many results as were measured (`recall_at` and ten
times that); any other request compares the query with every document.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import safetensors
import safetensors.numpy

from clicktower.flows.releases.release_folder import PublishConfig
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.release import DOCUMENTS, Similarity
from clicktower.schemas.stage import Progress
from clicktower.training.model.embedding import keys_at_once, scores_one_by_one
from clicktower.training.ranking.measure import score_blocks, top_k
from clicktower.training.ranking.nearest import Nearest, Partitions, partition

IVF = "ivf.safetensors"
VECTOR = "vector"  # the column's name
DEEP = 10  # an index is also measured, and used, at this multiple of `recall_at` results
CANDIDATES = 200  # of the nearest documents and of the best by BM25, which a hybrid ranks
_COMPARED_ROWS = 65_536
# Partitions to visit, in steps, until the recall is good enough.
_NUM_PROBES = (4, 8, 12, 16, 20, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024)
_MOST_SHARE = 0.5  # of all partitions: visiting more would save nothing


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rows:
    """The rows of a release: the documents, and the vector of each as a row of `vectors_TD` (float32)."""

    documents: pa.Table  # documents.Documents.table
    vectors_TD: np.ndarray
    text_of_N: np.ndarray

    def __len__(self) -> int:
        return self.documents.num_rows


def write_rows(folder: str, rows: Rows) -> np.ndarray:
    """Write the documents into a local folder and read them back; returns the vectors that were read, float32
    [documents, dimensions].

    Raises StageError if they could not be written or came back different by a bit.
    """
    documents, vector = _wide(rows.documents), _vector_field(rows.vectors_TD.shape[1])
    schema = documents.schema.append(vector)
    path = storage.absolute(storage.join(folder, DOCUMENTS))
    try:
        flat = pa.array(rows.vectors_TD[rows.text_of_N].reshape(-1))
        columns = [*documents.columns, pa.FixedSizeListArray.from_arrays(flat, type=vector.type)]
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, schema, options=_OPTIONS) as writer:
            writer.write_batch(pa.record_batch(columns, schema=schema))
        del flat, columns
        read, vectors_ND = open_documents(folder)
    except OSError as error:
        raise StageError(
            f"{len(rows):,} documents cannot be written to {path}: {error}. What is live stays as it is.",
            "Make room or give a folder that can be written, and publish again.",
        ) from None
    parts = (slice(start, start + _COMPARED_ROWS) for start in range(0, len(rows), _COMPARED_ROWS))
    if not read.equals(documents) or not all(
        np.array_equal(vectors_ND[part].view(np.int32), rows.vectors_TD[rows.text_of_N[part]].view(np.int32))
        for part in parts
    ):
        raise StageError(
            f"The {len(rows):,} documents of {path} came back different from what was written. What is live stays as it"
            " is.",
            "Check the disk, and publish again.",
        )
    return vectors_ND


def open_documents(folder: str) -> tuple[pa.RecordBatch, np.ndarray]:
    """(documents, vectors) in the order they were written: id, title and kept columns, text as large_string; float32
    [N, dimensions]. Raises StageError if they are missing or damaged.

    They stay readable when the folder is removed.
    """
    uri = storage.join(folder, DOCUMENTS)
    try:
        source = pa.memory_map(storage.absolute(uri)) if storage.is_local(uri) else storage.read_bytes(uri)
        batch = pa.ipc.open_file(source).get_batch(0)
        batch.validate(full=True)
        *names, last = batch.schema.names
        dimensions = batch.schema.field(last).type.list_size
        wanted = batch.schema.field(VECTOR).equals(_vector_field(dimensions)) and names[:2] == ["id", "title"]
        if not wanted or any(batch[name].null_count or batch[name].type != pa.large_string() for name in names[:2]):
            raise ValueError(f"its columns are {', '.join(batch.schema.names)}")
        vectors_ND = batch[VECTOR].flatten().to_numpy().reshape(len(batch), dimensions)
    except (pa.ArrowException, OSError, ValueError, KeyError, AttributeError) as error:
        raise StageError(
            f"The documents of {folder} cannot be opened: {str(error).splitlines()[0][:200]}.",
            "Run `clicktower verify` on it, and publish again.",
        ) from None
    return batch.select(names), vectors_ND


_OPTIONS = pa.ipc.IpcWriteOptions(allow_64bit=True)  # more than 2^31 numbers


def _vector_field(dimensions: int) -> pa.Field:
    return pa.field(VECTOR, pa.list_(pa.field("item", pa.float32(), nullable=False), dimensions), nullable=False)


def _wide(documents: pa.Table) -> pa.RecordBatch:
    """Documents in one piece, their text as large_string."""
    wide = [field.with_type(pa.large_string()) if field.type == pa.string() else field for field in documents.schema]
    [batch] = documents.cast(pa.schema(wide)).combine_chunks().to_batches()
    return batch


class IndexSearch(Nearest):
    """A search over the documents of a release in memory. `steps`: of its index, as recorded in the release."""

    steps: Sequence[Mapping[str, Any]] = ()

    def best(
        self,
        query_D: np.ndarray,
        k: int,
        num_probes: int | None = None,
        among: np.ndarray | None = None,
        *,
        results: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """(rows, scores) of the k documents nearest to a query's vector, unordered; more if several tie for place k.

        results: how many of them are wanted, if they are ranked by other scores too.
        """
        if num_probes is None:
            results = results or k
            num_probes = next((step["num_probes"] for step in self.steps if results <= step["recall_at"]), None)
        return super().best(query_D, k, num_probes, among)

    def exact(self, query_D: np.ndarray, k: int, among: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """As `best`, comparing every document."""
        return super().best(query_D, k, among=among)


def open_index(folder: str, index: Mapping[str, Any], vectors_ND: np.ndarray) -> Partitions | None:
    """The index of a release's vectors, or None without one. Raises StageError if it is missing, damaged or of other
    vectors.
    """
    try:
        partitions = _read_ivf(folder) if index["kind"] == "ivf" else None
        if partitions:
            partitions.require_of(vectors_ND)
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError):
        raise StageError(
            f"In {folder} the index {IVF} is missing, damaged or of other documents.",
            "Run `clicktower verify` on it, and publish again.",
        ) from None
    return partitions


# (the number of a query, the rows nearest to it, how near rows are) -> the scores by which a search ranks documents.
Rank = Callable[[int, np.ndarray, Callable[[np.ndarray], np.ndarray]], np.ndarray]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class RecallQueries:
    """Queries on which searches are measured. `rank`: of a model whose words or terms have a share of a score."""

    vectors_QD: np.ndarray
    rank: Rank | None = None

    def __len__(self) -> int:
        return len(self.vectors_QD)

    @property
    def num_nearest(self) -> int:
        """How many documents a search ranks at least."""
        return CANDIDATES if self.rank else 1

    def scores(self, search: IndexSearch, k: int, num_probes: int | None = None) -> list[np.ndarray]:
        """The scores of each query's k best documents, and of some others."""
        depth = max(k, self.num_nearest)
        ranked = []
        for number, query_D in enumerate(self.vectors_QD):
            rows, nearness = search.best(query_D, depth, num_probes, results=k)
            ranked.append(self.rank(number, rows, partial(search.scores_of, query_D)) if self.rank else nearness)
        return ranked


def build_index(
    folder: str,
    rows: Rows,
    vectors_ND: np.ndarray,
    queries: RecallQueries,
    config: PublishConfig,
    *,
    similarity: Similarity,
    progress: Progress,
) -> tuple[dict[str, Any], IndexSearch]:
    """(the index as recorded in a release, the search that `open_search` will return).

    The index visits as few partitions as reach `min_recall` against exact search, at `recall_at` results and at ten
    times as many; if no number of partitions does, the search is exact, and `note` says so. Recall is measured on the
    given queries. vectors_ND: of the documents, as `write_rows` read them. Raises StageError if even the exact search misses documents, which means that the vectors are not
    those that were encoded.
    """
    depths = sorted({min(depth, len(rows)) for depth in (config.recall_at, DEEP * config.recall_at)})
    limits_QK = _kth_scores(rows, queries, depths, similarity)
    facts: dict[str, Any] = {"min_recall": config.min_recall, "num_queries": len(queries)}
    if queries.rank:
        facts["candidates"] = CANDIDATES
    tried: list[dict[str, Any]] = []
    if config.index == "ivf" or (config.index == "auto" and len(rows) > config.index_above):
        partitions = partition(rows.vectors_TD, similarity=similarity, seed=config.seed, progress=progress)
        tensors = {
            "centres": partitions.centres_PD,
            "partition_of": np.ascontiguousarray(partitions.of_N[rows.text_of_N]),
        }
        storage.write_atomic(storage.join(folder, IVF), safetensors.numpy.save(tensors))
        search = IndexSearch(vectors_ND, _read_ivf(folder), similarity=similarity)
        num_partitions, steps = len(partitions.centres_PD), []
        for depth, limits_Q in zip(depths, limits_QK.T, strict=True):
            progress(f"measure recall@{depth}", 0, None)
            step = _fewest_partitions(search, queries, limits_Q, depth, config.min_recall, num_partitions, tried)
            if step is None:
                break
            steps.append(step)
        if len(steps) == len(depths):
            search.steps = steps
            record = {"kind": "ivf", "file": IVF, "num_partitions": num_partitions, **steps[0]}
            return {**record, "steps": steps, **facts, "tried": tried}, search
        storage.remove(storage.join(folder, IVF))
    exact = IndexSearch(vectors_ND, similarity=similarity)
    reached = recall(queries.scores(exact, depths[0]), limits_QK[:, 0], depths[0])
    if reached < config.min_recall:
        raise StageError(
            f"Even exact search has a recall@{depths[0]} of only {reached:.3f}, below {config.min_recall}. What is"
            " live stays as it is.",
            "Check the disk, and publish again.",
        )
    record = {"kind": "none", "recall": reached, "recall_at": config.recall_at, **facts, "tried": tried}
    if tried:
        best = max(attempt["recall"] for attempt in tried)
        record["note"] = f"the ivf index found at most {best:.3f} of the nearest: searches are exact, and slower"
    return record, exact


def _read_ivf(folder: str) -> Partitions:
    tensors = safetensors.numpy.load(storage.read_bytes(storage.join(folder, IVF)))
    return Partitions(centres_PD=tensors["centres"], of_N=tensors["partition_of"])


def _fewest_partitions(
    search: IndexSearch,
    queries: RecallQueries,
    limits_Q: np.ndarray,
    k: int,
    min_recall: float,
    num_partitions: int,
    tried: list[dict[str, Any]],
) -> dict[str, Any] | None:
    """The fewest partitions that reach the recall at k results, or None; every attempt is added to `tried`, which holds
    those at fewer results.
    """
    least = tried[-1]["num_probes"] if tried else 1  # more results need no fewer partitions
    probes = [number for number in _NUM_PROBES if number <= max(1.0, num_partitions * _MOST_SHARE)]
    # A search whose partitions hold fewer documents than it ranks compares all.
    room = 2 * max(k, queries.num_nearest) * num_partitions / len(search)
    for num_probes in [number for number in probes if number >= max(least, room)] or probes[-1:]:
        reached = recall(queries.scores(search, k, num_probes), limits_Q, k)
        tried.append({"recall_at": k, "num_probes": num_probes, "recall": reached})
        if reached >= min_recall:
            return tried[-1]
    return None


def _kth_scores(rows: Rows, queries: RecallQueries, depths: Sequence[int], similarity: Similarity) -> np.ndarray:
    """The exact score of each query's k-th best document, for each k of `depths`, float32 [queries, depths].

    All documents are compared at once, with rounding; the scores of the nearest are then recomputed as searches do.
    """
    of_texts, limits = keys_at_once(similarity, rows.vectors_TD), []
    num_ranked = [max(depth, queries.num_nearest) for depth in depths]

    def keys(block: slice) -> np.ndarray:
        return of_texts(queries.vectors_QD[block])[:, rows.text_of_N]

    for start, key_BN in score_blocks(len(queries), len(rows), keys):
        nearest_BK, _ = top_k(key_BN, min(max(num_ranked), len(rows)))
        for number, nearest_K in enumerate(nearest_BK, start):
            near = partial(_nearness, rows, similarity, queries.vectors_QD[number])
            rank = partial(queries.rank, number) if queries.rank else lambda rows_K, near: near(rows_K)
            scores = {size: rank(nearest_K[:size], near) for size in set(num_ranked)}
            limits.append([np.sort(scores[size])[-depth] for size, depth in zip(num_ranked, depths, strict=True)])
    return np.array(limits)


def _nearness(rows: Rows, similarity: Similarity, query_D: np.ndarray, rows_K: np.ndarray) -> np.ndarray:
    return scores_one_by_one(similarity, rows.vectors_TD[rows.text_of_N[rows_K]], query_D)


def recall(scores: Sequence[np.ndarray], limits_Q: np.ndarray, k: int) -> float:
    """The share of the k nearest that searches found. Any document as near as the k-th counts, since titles repeat."""
    hits = [min(k, int((hits >= limit).sum())) for hits, limit in zip(scores, limits_Q, strict=True)]
    return sum(hits) / (k * len(hits))
