"""Export: the live release in a form that another system reads.

    export("release", form="parquet", into="titles.parquet")

A target that exists is never overwritten, and an export that fails leaves nothing under its name.
"""

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import pyarrow as pa

from flows.releases.exports.opensearch import write_opensearch
from flows.releases.exports.parquet import write_parquet
from flows.releases.exports.trec import write_trec
from flows.releases.release_table import open_table
from flows.search import OpenRelease
from schemas import storage
from schemas.errors import StageError, UsageError, os_error_kind
from schemas.stage import Progress, silent

Form = Literal["parquet", "opensearch", "trec"]
_BATCH_ROWS = 8_192


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """What was written, and of which release."""

    into: str
    form: Form
    digest: str
    counts: dict[str, int]
    duration_seconds: float

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        return {
            "stage": "export",
            "digest": self.digest,
            "path": self.into,
            "reused": False,
            "counts": self.counts,
            "metrics": {"form": self.form},
            "duration_seconds": self.duration_seconds,
        }


def export(
    release: str, *, form: Form, into: str, queries: str | None = None, k: int = 100, progress: Progress = silent
) -> Exported:
    """The live release at a URI, written to `into`: a file (parquet, trec) or a folder (opensearch).

    queries: of a TREC run, `id<TAB>text` lines; k: its documents a query. Raises UsageError or StageError.
    """
    started = time.monotonic()
    asked = f"the release at {release} was to be exported to {into}"
    _check(asked, form, into, queries, k)
    opened = OpenRelease(release)
    being_written = f"{into.rstrip('/')}.partial-{uuid.uuid4().hex[:12]}"
    try:
        counts = _write(being_written, opened, form, queries, k, progress)
        fs, path = storage.filesystem(being_written)
        fs.mv(path, storage.filesystem(into)[1], recursive=form == "opensearch")
    except (OSError, RuntimeError) as error:  # LanceDB raises RuntimeError
        storage.remove(being_written)
        kind = os_error_kind(error) if isinstance(error, OSError) else StageError
        found = (isinstance(error, OSError) and error.strerror) or str(error).splitlines()[0][:200]
        raise kind(asked=asked, found=found, follows="nothing was exported",
                   do="make room, or give a place that can be written") from None  # fmt: skip
    except BaseException:
        storage.remove(being_written)
        raise
    return Exported(
        into=into, form=form, digest=opened.release.digest, counts=counts,
        duration_seconds=round(time.monotonic() - started, 3),
    )  # fmt: skip


def _check(asked: str, form: str, into: str, queries: str | None, k: int) -> None:
    if form not in get_args(Form):
        raise UsageError(asked=asked, found=f"the form {form!r} is unknown", do=f"use {', '.join(get_args(Form))}")
    if (form == "trec") != (queries is not None):
        found = "a TREC run is of queries, and none were given" if form == "trec" else f"{form} is not of queries"
        raise UsageError(asked=asked, found=found, do="give --queries FILE with --form trec, and only there")
    if k < 1:
        raise UsageError(asked=asked, found=f"{k} documents a query were asked for", do="give --k 1 or more")
    if storage.exists(into):
        raise UsageError(asked=asked, found="there is something of that name",
                         do="give another name, or remove it first")  # fmt: skip


def _write(
    where: str, opened: OpenRelease, form: Form, queries: str | None, k: int, progress: Progress
) -> dict[str, int]:
    """Counts of what was written."""
    if queries is not None:
        num_queries, without = write_trec(where, opened, queries, k, progress)
        return {"queries": num_queries, "queries_without_words": without}
    reader = open_table(opened.folder).search().select(["id", "title", "vector"]).to_batches(_BATCH_ROWS)
    documents = {"documents": opened.release.num_documents}
    batches = _told(reader, opened.release.num_documents, progress)
    if form == "parquet":
        write_parquet(where, opened.release, batches, reader.schema)
        return documents
    return documents | {"files": write_opensearch(where, opened.release, batches)}


def _told(reader: pa.RecordBatchReader, total: int, progress: Progress) -> Iterator[pa.RecordBatch]:
    done = 0
    for batch in reader:
        progress("write documents", done, total)
        yield batch
        done += batch.num_rows
