"""A folder that OpenSearch loads with two commands: index.json, a k-NN index, and bulk bodies of at most BULK_BYTES.

    curl -X PUT localhost:9200/titles -H 'Content-Type: application/json' --data-binary @index.json
    for f in documents-*.ndjson; do
      curl -X POST localhost:9200/titles/_bulk -H 'Content-Type: application/x-ndjson' --data-binary @$f; done

The Lucene engine has cosinesimil from OpenSearch 2.2 on; Faiss took it in 2.19, and NMSLIB is gone in 3.0. Vectors have
length 1, so its score, (1 + cosine) / 2, ranks as ours does. A release that compares by distance has the space l2: its
score is 1 / (1 + distance²).
"""

import json
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from schemas import storage
from schemas.release import Release

INDEX = "index.json"
BULK_BYTES = 20_000_000  # OpenSearch refuses bodies above 100 MB unless told otherwise
_EF_CONSTRUCTION, _LINKS = 100, 16  # OpenSearch's defaults, written down
_SPACE_TYPES = {"cosine": "cosinesimil", "euclidean": "l2"}


def write_opensearch(folder: str, release: Release, batches: Iterable[pa.RecordBatch]) -> int:
    """The index's definition and the bulk bodies; returns how many bodies there are."""
    num_bodies = 0
    for body in _bodies(batches):
        storage.write_atomic(storage.join(folder, f"documents-{num_bodies:05}.ndjson"), body)
        num_bodies += 1
    content = json.dumps(index_definition(release), indent=1).encode()
    storage.write_atomic(storage.join(folder, INDEX), content)
    return num_bodies


def index_definition(release: Release) -> dict:
    """The body of the request that creates the index."""
    vector = {
        "type": "knn_vector",
        "dimension": release.dimensions,
        "method": {
            "name": "hnsw",
            "engine": "lucene",
            "space_type": _SPACE_TYPES[release.similarity],
            "parameters": {"ef_construction": _EF_CONSTRUCTION, "m": _LINKS},
        },
    }
    return {
        "settings": {"index": {"knn": True}},
        "mappings": {
            "_meta": {"clicktower_release": release.digest, "text_contract": dict(release.text_contract)},
            "properties": {"title": {"type": "text"}, "vector": vector},
        },
    }


def _bodies(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    body: list[bytes] = []
    size = 0
    for batch in batches:
        for lines in _documents(batch):
            if size + len(lines) > BULK_BYTES and body:
                yield b"".join(body)
                body, size = [], 0
            body.append(lines)
            size += len(lines)
    if body:
        yield b"".join(body)


def _documents(batch: pa.RecordBatch) -> Iterator[bytes]:
    """The two lines of each document: what is to be done with it, and what it is."""
    columns = (batch["id"].to_pylist(), batch["title"].to_pylist(), _written(batch["vector"]).to_pylist())
    for document_id, title, numbers in zip(*columns, strict=True):
        action = json.dumps({"index": {"_id": document_id}}, ensure_ascii=False)
        yield f'{action}\n{{"title":{json.dumps(title, ensure_ascii=False)},"vector":[{numbers}]}}\n'.encode()


def _written(vectors: pa.FixedSizeListArray) -> pa.StringArray:
    """Each vector's numbers with commas between, in the fewest digits that name the float32."""
    numbers = pc.cast(vectors.flatten(), pa.string())
    offsets = pa.array(range(0, len(numbers) + 1, vectors.type.list_size), pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(offsets, numbers), ",")
