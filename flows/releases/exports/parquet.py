"""A Parquet file: id, title, vector (a list of float32), and what it is and how it is compared in the metadata."""

import json
from collections.abc import Iterable

import pyarrow as pa
import pyarrow.parquet as pq

from schemas import storage
from schemas.release import Release

_COMPARED = {"cosine": "dot product = cosine", "euclidean": "Euclidean distance"}


def write_parquet(where: str, release: Release, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    """The documents as one file; a row group for each batch."""
    about = {
        "release": release.digest,
        "num_documents": release.num_documents,
        "dimensions": release.dimensions,
        "text_contract": dict(release.text_contract),
        "similarity": _COMPARED[release.similarity],
    }
    schema = schema.with_metadata({"clicktower": json.dumps(about)})
    with storage.open_new(where) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch.cast(schema))
