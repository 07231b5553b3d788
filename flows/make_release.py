"""A release, made: documents encoded, written, read back, their index measured against exact search. Not live yet."""

import hashlib
import time
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np

from flows import release_folder
from flows.publish import PublishConfig
from flows.release_index import IndexKind, Rows, build_index, nearest, write_rows
from schemas import storage
from schemas.documents import read_documents
from schemas.errors import StageError
from schemas.manifest import Manifest, Request
from schemas.release import MODEL, Release
from schemas.release import release_folder as release_folder_of
from schemas.stage import Progress, StageResult
from training.ensemble import Ensemble, load_encoder
from training.model import DESCRIPTION, WEIGHTS, Model
from training.ranking.embedding import title_vectors, unit_vectors


def make_release(
    to: str,
    request: Request,
    trained: StageResult,
    documents: str,
    config: PublishConfig,
    evaluated: Manifest | None,
    progress: Progress,
) -> tuple[Release, float]:
    """The release, written and placed but not live, and how long one search took in milliseconds."""
    digest, catalogue = request.digest, read_documents(documents)
    folder = release_folder_of(to, digest)
    with release_folder.building(to, digest) as built:
        _copy_model(trained, storage.join(built, MODEL))
        model = load_encoder(storage.join(built, MODEL))
        vectors_TD, text_of_N = title_vectors(model, catalogue.titles, progress=progress)
        rows = Rows(ids=catalogue.ids, titles=catalogue.titles, vectors_TD=vectors_TD, text_of_N=text_of_N)
        progress("write documents and read them back", 0, None)
        table = write_rows(built, rows)
        progress("measure the index against exact search", 0, None)
        queries_QD = _recall_queries(model, rows, config)
        kind = _index_kind(config, len(rows))
        index = build_index(table, rows, kind, queries_QD, recall_at=config.recall_at, min_recall=config.min_recall)
        asked_at = time.monotonic()
        for query in queries_QD:
            nearest(table, index, query, config.recall_at)
        milliseconds = round((time.monotonic() - asked_at) / len(queries_QD) * 1000, 3)
        release = Release(
            digest=digest,
            text_contract=model.text_contract,
            num_documents=len(rows),
            dimensions=vectors_TD.shape[1],
            index=index,
            evaluation=_table(evaluated),
            inputs=request.inputs,
            labels=trained.manifest.outcome.labels,
            created=datetime.now(UTC).isoformat(timespec="microseconds"),
            files=[asdict(file) for file in release_folder.list_built(built)],
        )
        release_folder.place(built, release, folder)
    return release_folder.read_folder(folder), milliseconds


def _table(evaluated: Manifest | None) -> dict[str, Any]:
    """The figures of an evaluation; its example queries and file names stay with it."""
    metrics = evaluated.outcome.metrics if evaluated else {}
    return {name: value for name, value in metrics.items() if name not in ("example_queries", "run_files")}


def _copy_model(trained: StageResult, folder: str) -> None:
    recorded = {file.path: file.sha256 for file in trained.manifest.files}
    for name in (WEIGHTS, DESCRIPTION):
        content = storage.read_bytes(storage.join(trained.data, name))
        if hashlib.sha256(content).hexdigest() != recorded.get(f"{trained.manifest.attempt}/{name}"):
            raise StageError(asked=f"the model in {trained.folder} was to be published",
                             found=f"{name} has other bytes than were written",
                             follows="its vectors would not be those evaluated", do="train again")  # fmt: skip
        storage.write_atomic(storage.join(folder, name), content)


def _index_kind(config: PublishConfig, num_documents: int) -> IndexKind:
    if config.index == "auto":
        return "ivf-flat" if num_documents > config.index_above else "none"
    return config.index


def _recall_queries(model: Model | Ensemble, rows: Rows, config: PublishConfig) -> np.ndarray:
    """Titles drawn by a keyed hash of their ids, as the query tower sees them."""
    key = config.seed.to_bytes(8, "big", signed=True)

    def drawn(row: int) -> bytes:
        return hashlib.blake2b(rows.ids[row].encode(), digest_size=8, key=key, person=b"recall").digest()

    chosen = sorted(range(len(rows)), key=drawn)[: config.num_recall_queries]
    return unit_vectors(model, [rows.titles[row] for row in chosen], "query")
