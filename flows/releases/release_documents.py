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
import safetensors.numpy

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.release import DOCUMENTS
from clicktower.training.ranking.nearest import Nearest, Partitions

IVF = "ivf.safetensors"
VECTOR = "vector"  # the column's name
CANDIDATES = 200  # of the nearest documents and of the best by BM25, which a hybrid ranks
_COMPARED_ROWS = 65_536


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Rows:
    """The rows of a release: the documents, and the vector of each as a row of `vectors_TD` (float32)."""

    documents: pa.Table  # documents.Documents.table
    vectors_TD: np.ndarray
    text_of_N: np.ndarray

    def __len__(self) -> int:
        return self.documents.num_rows


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class EarlierRows:
    """An intact release of the same model: its folder, index and vectors, and the row there of each text, int64 [T], -1
    for a new one.
    """

    folder: str
    index: Mapping[str, Any]
    vectors_ND: np.ndarray
    row_of_T: np.ndarray


def write_rows(folder: str, rows: Rows) -> np.ndarray:
    """Write the documents into a local folder and read them back; returns the vectors that were read, float32
    [documents, dimensions].

    Raises StageError if they could not be written or came back different by a bit.
    """
    documents, vector = _wide(rows.documents), _vector_field(rows.vectors_TD.shape[1])
    schema = documents.schema.append(vector)
    path = storage.join(folder, DOCUMENTS)
    try:
        flat = pa.array(rows.vectors_TD[rows.text_of_N].reshape(-1))
        columns = [*documents.columns, pa.FixedSizeListArray.from_arrays(flat, type=vector.type)]
        with storage.open_new(path) as file, pa.ipc.new_file(file, schema, options=_OPTIONS) as writer:
            writer.write_batch(pa.record_batch(columns, schema=schema))
        del flat, columns
        read, vectors_ND = open_documents(folder)
    except OSError as error:
        raise StageError(
            f"{len(rows):,} documents cannot be written to {path}: {error}. What is live stays as it is.",
            "Make room or give a folder that can be written, and publish again.",
        ) from None
    parts = (slice(start, start + _COMPARED_ROWS) for start in range(0, len(rows), _COMPARED_ROWS))
    if not _bits(read).equals(_bits(documents)) or not all(
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
        batch = pa.ipc.open_file(pa.py_buffer(storage.map_bytes(uri))).get_batch(0)
        batch.validate(full=True)
        *names, last = batch.schema.names
        dimensions = batch.schema.field(last).type.list_size
        has_form = batch.schema.field(VECTOR).equals(_vector_field(dimensions)) and names[:2] == ["id", "title"]
        if not has_form or any(batch[name].null_count or batch[name].type != pa.large_string() for name in names[:2]):
            raise ValueError(f"its columns are {', '.join(batch.schema.names)}")
        # `to_numpy` would import pandas.
        flat = np.frombuffer(batch[VECTOR].flatten().buffers()[1], np.float32, len(batch) * dimensions)
    except (pa.ArrowException, OSError, ValueError, KeyError, AttributeError) as error:
        raise StageError(
            f"The documents of {folder} cannot be opened: {str(error).splitlines()[0][:200]}.",
            "Run `clicktower verify` on it, and publish again.",
        ) from None
    return batch.select(names), flat.reshape(len(batch), dimensions)


def _bits(documents: pa.RecordBatch) -> pa.RecordBatch:
    """Numbers as their bits: a NaN equals itself."""
    integer_type = {pa.float16(): pa.int16(), pa.float32(): pa.int32(), pa.float64(): pa.int64()}
    columns = [column.view(integer_type.get(column.type, column.type)) for column in documents.columns]
    return pa.record_batch(columns, names=documents.schema.names)


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


def read_ivf(folder: str) -> Partitions:
    tensors = safetensors.numpy.load(storage.read_bytes(storage.join(folder, IVF)))
    return Partitions(centres_PD=tensors["centres"], of_N=tensors["partition_of"])


# The recall of a search, against one that compares every document.

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


def recall(scores: Sequence[np.ndarray], limits_Q: np.ndarray, k: int) -> float:
    """The share of the k nearest that searches found. Any document as near as the k-th counts, since titles repeat."""
    hits = [min(k, int((hits >= limit).sum())) for hits, limit in zip(scores, limits_Q, strict=True)]
    return sum(hits) / (k * len(hits))
