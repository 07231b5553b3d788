"""Export of the live release in a format that another system reads.

    export("release", form="parquet", into="titles.parquet")

All forms but the TREC run hold the vectors alone, and say what these reach beside the score that is served
(make_release.Figures). An existing target is never overwritten, and a failed export leaves nothing under its name.

A new form is a function that writes an Export, and its entry in FORMS.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from clicktower.flows.releases.kept_releases import output_damage
from clicktower.flows.releases.make_release import Figures, figures, means_in_words
from clicktower.flows.releases.opensearch_index import write_index
from clicktower.flows.releases.release_documents import VECTOR
from clicktower.flows.releases.search import OpenRelease
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError, os_error_kind
from clicktower.schemas.judgments import read_queries, run_lines
from clicktower.schemas.release import CARD, MODEL
from clicktower.schemas.stage import Progress, silent
from clicktower.schemas.text_contract import words
from clicktower.training.model.model_folder import DESCRIPTION, WEIGHTS

_BATCH_ROWS = 8_192
_TABLE = "documents"
_COMPARED = {"cosine": "dot product = cosine", "euclidean": "Euclidean distance"}


def export(
    release: str, *, form: str, into: str, queries: str | None = None, k: int = 100, progress: Progress = silent
) -> dict[str, Any]:
    """Write the live release at a URI to `into`: a file (parquet, trec) or a folder (lancedb, opensearch, hub); returns
    what `--json` prints.

    queries: for a TREC run, `id<TAB>text` lines; k: its documents per query. Raises UsageError or StageError; also for
    a release with other bytes or files than were published, which may be a stranger's.
    """
    started = time.monotonic()
    if form not in FORMS:
        raise UsageError(f"The form {form!r} of an export is unknown.", f"Use {', '.join(FORMS)}.")
    if (form == "trec") != (queries is not None):
        problem = "A TREC run needs queries." if form == "trec" else f"The form {form} takes no queries."
        raise UsageError(problem, "Give --queries FILE with --form trec, and only there.")
    if k < 1:
        raise UsageError(f"An export needs at least 1 document per query, not {k}.", "Give --k 1 or more.")
    if form == "lancedb" and not find_spec("lancedb"):
        raise UsageError("The form lancedb needs the package lancedb.", "Run `pip install 'clicktower[lancedb]'`.")
    if storage.exists(into):
        raise UsageError(f"Something named {into} exists.", "Give another name, or remove it first.")
    opened = OpenRelease(release)
    progress("check every byte", 0, None)
    if damage := output_damage(opened.folder):
        raise StageError(
            f"The release at {release} is not as it was published: {'; '.join(damage[:3])}. Nothing was exported.",
            "Publish again, which repairs it.",
        )
    measured = figures(opened.release.evaluation, opened.encoder)
    try:
        with storage.building(into) as built:
            counts = FORMS[form](
                Export(where=built, opened=opened, measured=measured, queries=queries or "", k=k, progress=progress)
            )
            storage.place(built, into)
    except (OSError, RuntimeError) as error:  # LanceDB raises RuntimeError for a full disk
        kind = os_error_kind(error) if isinstance(error, OSError) else StageError
        reason = (isinstance(error, OSError) and error.strerror) or str(error).splitlines()[0][:200]
        problem = f"The release cannot be exported to {into}: {reason}. Nothing was exported."
        raise kind(problem, "Make room, or give a place that can be written.") from None
    return {
        "stage": "export",
        "digest": opened.release.digest,
        "path": into,
        "reused": False,
        "counts": counts,
        "metrics": {
            "form": form,
            "sentence": _of_service(measured) if form == "trec" else measured.of_vectors(),
            "measured": figures_json(measured),
        },
        "duration_seconds": round(time.monotonic() - started, 3),
    }


def _of_service(measured: Figures) -> str:
    """What the service reaches, in a sentence."""
    if measured.whole is None:
        return "The release was published without an evaluation: what its searches reach was not measured."
    return f"Ranked as the service does: {means_in_words(measured.whole)} ({measured.n:,} queries)."


def figures_json(measured: Figures) -> dict[str, Any]:
    """The means, and the sentence about the vectors."""
    systems = {"vectors": measured.vectors, "whole_score": measured.whole}
    means = {
        system: None if measures is None else {name: value["mean"] for name, value in measures.items()}
        for system, measures in systems.items()
    }
    return {"queries": measured.n, **means, "sentence": measured.of_vectors()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Export:
    """What a form is written from. `where`: its file or folder. The others as in `export`."""

    where: str
    opened: OpenRelease
    measured: Figures
    queries: str
    k: int
    progress: Progress

    @property
    def about(self) -> dict[str, Any]:
        """What a form says beside the documents."""
        release = self.opened.release
        return {
            "release": release.digest,
            "num_documents": release.num_documents,
            "dimensions": release.dimensions,
            "text_contract": dict(release.text_contract),
            "similarity": _COMPARED[release.similarity],
            "shares": {"words": self.opened.encoder.word_share, "terms": self.opened.encoder.lexical_share},
            "measured": figures_json(self.measured),
        }

    def documents(self) -> pa.RecordBatchReader:
        """Id, title, kept columns and vector of all documents, a batch at a time, with `about` in the metadata."""
        documents, release = self.opened.documents, self.opened.release
        vector = pa.list_(pa.field("item", pa.float32()), release.dimensions)
        narrow = [f.with_type(pa.string()) if f.type == pa.large_string() else f for f in documents.schema]
        schema = pa.schema([*narrow, pa.field(VECTOR, vector, nullable=False)])
        schema = schema.with_metadata({"clicktower": json.dumps(self.about, allow_nan=False)})

        def batches() -> Iterator[pa.RecordBatch]:
            for start in range(0, release.num_documents, _BATCH_ROWS):
                self.progress("write documents", start, release.num_documents)
                rows = slice(start, start + _BATCH_ROWS)
                vectors = pa.FixedSizeListArray.from_arrays(self.opened.vectors_ND[rows].reshape(-1), type=vector)
                columns = [column[rows].cast(field.type) for column, field in zip(documents, narrow, strict=True)]
                yield pa.record_batch([*columns, vectors], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())


# The forms. Each returns counts.


def write_parquet(export: Export) -> dict[str, int]:
    """Write a file of documents and vectors."""
    documents = export.documents()
    with storage.open_new(export.where) as file, pq.ParquetWriter(file, documents.schema, compression="zstd") as writer:
        for batch in documents:  # a row group each
            writer.write_batch(batch)
    return {"documents": export.opened.release.num_documents}


def write_lancedb(export: Export) -> dict[str, int]:
    """Write a folder with a table of documents and vectors."""
    import lancedb

    lancedb.connect(export.where).create_table(_TABLE, export.documents())
    return {"documents": export.opened.release.num_documents}


def write_opensearch(export: Export) -> dict[str, int]:
    """Write a folder with an index's definition, its bulk bodies, and a search."""
    release = export.opened.release
    num_files = write_index(export.where, release, export.about, export.documents())
    return {"documents": release.num_documents, "files": num_files}


# How sentence-transformers opens the folder: its one module is imported where clicktower is installed.
_MODULES = [{"idx": 0, "name": "0", "path": "", "type": "clicktower.sentence_transformer.Towers"}]
_HUB_USE = """## Use

```python
from sentence_transformers import SentenceTransformer  # pip install clicktower[sentence-transformers]

model = SentenceTransformer("OWNER/NAME", trust_remote_code=True)
model.encode_query(["..."]) @ model.encode_document(["..."]).T
```
"""


def write_hub(export: Export) -> dict[str, int]:
    """Write the folder that a model hub takes: the model's two files, how to open them, and the card.

    The owner adds the licence. The card describes no documents' files: a hub gets the model alone.
    """
    opened = export.opened
    about, _, _ = storage.read_bytes(storage.join(opened.folder, CARD)).decode().partition("## Files\n")
    about = about.replace('library_name: "clicktower"', 'library_name: "sentence-transformers"', 1)
    config = {"model_type": "SentenceTransformer", "similarity_fn_name": opened.release.similarity}
    files = {
        CARD: (about + _HUB_USE).encode(),
        "modules.json": json.dumps(_MODULES, indent=2).encode(),
        "config_sentence_transformers.json": json.dumps(config, indent=2).encode(),
    }
    for name in (WEIGHTS, DESCRIPTION):
        files[name] = storage.read_bytes(storage.join(opened.folder, MODEL, name))
    for name, content in files.items():
        storage.write_atomic(storage.join(export.where, name), content)
    return {"files": len(files)}


def write_trec(export: Export) -> dict[str, int]:
    """Write the run; counts queries and those without a word, which have no results. Raises UsageError or
    StageError.
    """
    text_of_query = read_queries(export.queries)
    tag = f"clicktower-{export.opened.release.digest}"
    with storage.open_new(export.where) as file:
        for number, (query_id, text) in enumerate(text_of_query.items()):
            export.progress("search", number, len(text_of_query))
            if words(text):
                scores = {_field(hit.id): hit.score for hit in export.opened.search(text, export.k)}
                for line in run_lines({_field(query_id): scores}, tag):
                    file.write(line.encode())
    return {
        "queries": len(text_of_query),
        "queries_without_words": sum(not words(text) for text in text_of_query.values()),
    }


def _field(name: str) -> str:
    if not name or len(name.split()) != 1 or name.strip() != name:
        raise StageError(
            "An id has white space in it, or is empty: the fields of its line in a TREC run could not be told apart.",
            "Give ids without white space, or use another form.",
        )
    return name


FORMS: Mapping[str, Callable[[Export], dict[str, int]]] = {
    "parquet": write_parquet,
    "lancedb": write_lancedb,
    "opensearch": write_opensearch,
    "trec": write_trec,
    "hub": write_hub,
}
