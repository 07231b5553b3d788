"""Pools for assessors in files: runs -> a sheet, filled-in sheets -> qrels. Neither ever replaces a file."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from schemas import storage
from schemas.documents import read_documents
from schemas.errors import StageError, UsageError
from schemas.judgments import Qrels, are_click_derived, read_qrels, read_queries, read_run
from training.judging.assessors import Merge, judged_by
from training.judging.judged_pool import pooled
from training.judging.sheet import read_sheet, sheet_bytes


def write_pool(
    runs: Sequence[str],
    *,
    queries: str,
    documents: str,
    sheet: str,
    depth: int = 10,
    num_queries: int | None = None,
    judged: Sequence[str] = (),
    seed: int = 0,
) -> dict[str, Any]:
    """The JSON object of a sheet that was written to `sheet`. Raises UsageError and StageError."""
    sheet_bytes((), sheet)  # a name that cannot be written is refused before anything is read
    catalogue = read_documents(documents)
    found = pooled(
        {uri: read_run(uri) for uri in runs},
        read_queries(queries),
        dict(zip(catalogue.ids, catalogue.titles, strict=True)),
        depth=depth,
        judged=_judged_by_people(judged),
        num_queries=num_queries,
        seed=seed,
    )
    return _result(_write_once({sheet: sheet_bytes(found.items, sheet)}), sheet, found.counts, {"depth": depth})


def read_pool(
    sheets: Sequence[str],
    *,
    qrels: str,
    queries: str | None = None,
    merge: Merge = "median",
    allow_partial: bool = False,
) -> dict[str, Any]:
    """The JSON object of judgments that were written to `qrels`, their queries to `queries` if that is given.

    Raises UsageError and StageError.
    """
    if len(set(sheets)) < len(sheets):
        raise UsageError(
            asked="the sheets of several assessors were to be read",
            found="one is given twice",
            follows="it would agree with itself",
            do="give each once",
        )
    found = judged_by([read_sheet(uri) for uri in sheets], merge=merge, allow_partial=allow_partial)
    lines = [f"{query_id} 0 {d} {grade}\n" for query_id, grades in found.qrels.items() for d, grade in grades.items()]
    files = {qrels: "".join(lines).encode()}
    if queries:
        files[queries] = "".join(f"{query_id}\t{text}\n" for query_id, text in found.queries.items()).encode()
    return _result(_write_once(files), qrels, found.counts, found.metrics)


def _judged_by_people(uris: Sequence[str]) -> Qrels:
    together: Qrels = {}
    for uri in uris:
        found = read_qrels(uri)
        if are_click_derived(found):
            raise StageError(
                asked=f"what is judged in {uri} was to be left out of the sheet",
                found="its judgments are derived from clicks",
                follows="no person has judged these documents",
                do="give qrels of people",
            )
        for query_id, grades in found.items():
            together.setdefault(query_id, {}).update(grades)
    return together


def _write_once(files: Mapping[str, bytes]) -> tuple[str, bool]:
    """(a digest of the files, whether all were there already). Raises UsageError for one with other bytes."""
    there = {uri: storage.read_bytes(uri) for uri in files if storage.exists(uri)}
    for uri, content in there.items():
        if content != files[uri]:
            raise _taken(uri)
    for uri, content in files.items():
        if uri not in there and not storage.write_new(uri, content):
            raise _taken(uri)
    digest = hashlib.sha256(b"".join(files.values())).hexdigest()[:24]
    return digest, len(there) == len(files)


def _taken(uri: str) -> UsageError:
    return UsageError(
        asked=f"{uri} was to be written",
        found="there is such a file, and it holds something else",
        follows="perhaps hours of an assessor's work would be lost",
        do="give another name, or move the file away",
    )


def _result(
    written: tuple[str, bool], path: str, counts: Mapping[str, int], metrics: Mapping[str, Any]
) -> dict[str, Any]:
    digest, reused = written
    return {
        "stage": "pool",
        "digest": digest,
        "path": path,
        "reused": reused,
        "counts": dict(counts),
        "metrics": dict(metrics),
    }
