"""A release's documents as an index of OpenSearch: its definition, bulk bodies, and a search of vectors and terms.

    curl -X PUT localhost:9200/titles -H 'Content-Type: application/json' --data-binary @index.json
    for f in documents-*.ndjson; do
      curl -X POST localhost:9200/titles/_bulk -H 'Content-Type: application/x-ndjson' --data-binary @$f; done
    curl -X PUT localhost:9200/_scripts/titles -H 'Content-Type: application/json' --data-binary @search.json

`POST titles/_search/template {"id": "titles", "params": {"query", "vector", "boost"}}` then scores all documents that
share a term with the query, and the nearest:

    1 + R(q, d) + boost * BM25(q, d)        boost = l / (1 - l) / BM25(q, q)

which ranks as title_ranking does without the words' matches: it is that score divided by 1 - l, and above 0, as
OpenSearch wants it. The boost is the client's to compute (docs/serving.md): no query of OpenSearch knows BM25(q, q).
Its hybrid query would divide by the best score among the results instead, so that the best of poor matches would count
as much as a title equal to the query. By distance there is no such sum, and the search finds the nearest alone.

The Lucene engine has cosinesimil from OpenSearch 2.2 on; Faiss took it in 2.19, and NMSLIB is gone in 3.0. The score of
a nearest neighbour is (1 + cosine) / 2, and of the script from 2.19 on. A release that compares by distance has the
space l2, with the score 1 / (1 + distance²).
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from clicktower.flows.releases.release_documents import CANDIDATES
from clicktower.schemas import storage
from clicktower.schemas.document_forms import finite
from clicktower.schemas.lexical_contract import ARTICLES
from clicktower.schemas.manifest import to_bytes
from clicktower.schemas.release import Release
from clicktower.schemas.section import Language
from clicktower.training.ranking.bm25 import K1, B

INDEX, SEARCH = "index.json", "search.json"
BULK_BYTES = 20_000_000  # OpenSearch refuses bodies above 100 MB unless told otherwise
_EF_CONSTRUCTION, _LINKS = 100, 16  # OpenSearch's defaults, written down
_SPACE_TYPES = {"cosine": "cosinesimil", "euclidean": "l2"}
# Languages whose stemmer is younger than Lucene's Snowball: their words stay as they are.
_UNSTEMMED = ("none", "czech", "esperanto", "persian", "polish", "sesotho")


def write_index(folder: str, release: Release, about: Mapping[str, Any], batches: Iterable[pa.RecordBatch]) -> int:
    """Write the three kinds of files; returns the number of bulk bodies, of at most BULK_BYTES.

    about: what the index keeps beside its documents.
    """
    num_bodies = 0
    for body in _bodies(batches):
        storage.write_atomic(storage.join(folder, f"documents-{num_bodies:05}.ndjson"), body)
        num_bodies += 1
    for name, value in {INDEX: index_definition(release, about), SEARCH: search_template(release)}.items():
        storage.write_atomic(storage.join(folder, name), to_bytes(value))
    return num_bodies


def index_definition(release: Release, about: Mapping[str, Any]) -> dict:
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
        "settings": {
            "index": {"knn": True, "similarity": {"titles": {"type": "BM25", "k1": K1, "b": B}}},
            "analysis": _analysis(release.language),
        },
        "mappings": {
            "_meta": {"clicktower": about},
            "properties": {"title": {"type": "text", "analyzer": "titles", "similarity": "titles"}, "vector": vector},
        },
    }


def _analysis(language: Language) -> dict:
    """The lexical contract of a language in OpenSearch's parts."""
    # Korean has spaces.
    filters: dict[str, dict] = {"pairs": {"type": "cjk_bigram", "ignored_scripts": ["hangul"]}}
    if language == "english":
        filters["possessives"] = {"type": "stemmer", "language": "possessive_english"}
    if language in ARTICLES:
        filters["articles"] = {"type": "elision", "articles": ARTICLES[language].split()}
    if language not in _UNSTEMMED:
        filters["stems"] = {"type": "snowball", "language": language.capitalize()}
    return {
        "char_filter": {"plain": {"type": "mapping", "mappings": ["’=>'", "⁄=>/"]}},
        "filter": filters,
        "analyzer": {
            "titles": {
                "type": "custom",
                "tokenizer": "standard",
                "char_filter": ["plain"],
                "filter": ["cjk_width", "lowercase", *filters],
            }
        },
    }


def search_template(release: Release) -> dict:
    """The body of the request that stores the search: a template in Mustache, which OpenSearch fills."""
    query: dict[str, Any] = {"knn": {"vector": {"vector": "VECTOR", "k": CANDIDATES}}}
    if release.similarity == "cosine":
        match = {"query": "{{query}}"}
        params = {"field": "vector", "query_value": "VECTOR", "space_type": _SPACE_TYPES[release.similarity]}
        near = {
            "query": {"bool": {"should": [{"match": {"title": match}}, query]}},
            "script": {"lang": "knn", "source": "knn_score", "params": params},
            "boost": 2,
        }
        terms = {"match": {"title": match | {"boost": "BOOST"}}}
        query = {"bool": {"should": [terms, {"script_score": near}]}}
    source = json.dumps({"size": "SIZE", "_source": {"excludes": ["vector"]}, "query": query})
    for name, tag in {
        "VECTOR": "{{#toJson}}vector{{/toJson}}",
        "BOOST": "{{boost}}",
        "SIZE": "{{size}}{{^size}}10{{/size}}",
    }.items():
        source = source.replace(f'"{name}"', tag)
    return {"script": {"lang": "mustache", "source": source}}


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
    """The two lines of each document in a bulk body: the action and the document."""
    documents = finite(batch.drop_columns(["vector"])).to_pylist()
    for document, numbers in zip(documents, _format_vectors(batch["vector"]).to_pylist(), strict=True):
        action = json.dumps({"index": {"_id": document.pop("id")}}, ensure_ascii=False)
        fields = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        yield f'{action}\n{fields[:-1]},"vector":[{numbers}]}}\n'.encode()


def _format_vectors(vectors: pa.FixedSizeListArray) -> pa.StringArray:
    """The numbers of each vector, separated by commas, in the fewest digits that identify the float32."""
    numbers = pc.cast(vectors.flatten(), pa.string())
    offsets = pa.array(range(0, len(numbers) + 1, vectors.type.list_size), pa.int32())
    return pc.binary_join(pa.ListArray.from_arrays(offsets, numbers), ",")
