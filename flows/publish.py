"""Publish: model + documents -> a release behind the pointer of a URI.

    python: publish("store/train/DIGEST", documents="documents.tsv", to="release", config=PublishConfig())

Encodes all documents, writes URI/releases/DIGEST (schemas.release), reads it back, measures its index against exact
search, and only then moves the pointer. Whatever fails before that leaves the old release live.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from flows import release_folder
from flows.pointer import swap
from schemas import storage
from schemas.errors import StageError, UsageError
from schemas.manifest import Manifest, Request
from schemas.release import Pointer, Release, read_pointer
from schemas.release import release_folder as folder_of
from schemas.stage import Progress, StageResult, open_result, silent

STAGE_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class PublishConfig:
    # auto: an IVF index above `index_above` documents, exact search up to it (20 ms a query at 55,000 documents).
    # hnsw takes 30 times as long to build (11 s at 55,000) and answers as fast.
    index: Literal["auto", "none", "ivf-flat", "hnsw"] = "auto"
    index_above: int = 20_000
    recall_at: int = 10
    min_recall: float = 0.95  # of the index, against exact search, or it is not used
    num_recall_queries: int = 200  # titles drawn by a keyed hash, encoded as queries
    seed: int = 0
    keep: int = 7  # earlier releases that stay, besides the live one and its predecessor

    def __post_init__(self) -> None:
        if self.index not in ("auto", "none", "ivf-flat", "hnsw"):
            raise ValueError("index must be auto, none, ivf-flat or hnsw")
        if not 0 < self.min_recall <= 1:
            raise ValueError("min_recall must be above 0 and at most 1")
        if min(self.recall_at, self.num_recall_queries) < 1 or min(self.index_above, self.keep) < 0:
            raise ValueError("recall_at and num_recall_queries must be at least 1, index_above and keep 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """A live release: where it is, whether it was live before, and what had to be repaired or cleared away."""

    uri: str  # what `search` takes
    folder: str
    release: Release
    pointer: Pointer
    reused: bool
    repaired: Sequence[str] = ()
    removed: Sequence[str] = ()
    duration_seconds: float | None = None  # of making it; not recorded with a release, so unknown when it is reused
    milliseconds_per_search: float | None = None  # measured while publishing

    def to_json(self) -> dict:
        """The object that `--json` prints."""
        return {
            "stage": "publish",
            "digest": self.release.digest,
            "path": self.folder,
            "data": self.folder,
            "reused": self.reused,
            "repaired": list(self.repaired),
            "counts": {"documents": self.release.num_documents},
            "metrics": {
                "release": self.uri,
                "previous": self.pointer.previous,
                "num_documents": self.release.num_documents,
                "dimensions": self.release.dimensions,
                "index": dict(self.release.index),
                "recall": self.release.index["recall"],
                "milliseconds_per_search": self.milliseconds_per_search,
                "removed": list(self.removed),
            },
            "labels": dict(self.release.labels),
            "duration_seconds": self.duration_seconds,
        }


def publish(
    model: str,
    *,
    documents: str,
    to: str,
    config: PublishConfig,
    evaluation: str | None = None,
    progress: Progress = silent,
) -> Published:
    """The release of a model over documents, live at `to`; reused if it is live already and whole.

    model, evaluation: folders of those stages. Raises UsageError or StageError; the pointer then stays where it was,
    and StageError too if another publisher moved it in the meantime.
    """
    started = time.monotonic()
    trained = open_result(model)
    evaluated = _evaluation_of(trained, evaluation)
    if storage.size_bytes(documents) is None:
        raise UsageError(asked=f"documents were to be read from {documents}", found="there is no such file",
                         do="check the path")  # fmt: skip
    request = _request(trained, documents, config, evaluated)
    digest = request.digest
    folder = folder_of(to, digest)
    try:
        before = read_pointer(to)
        release, wrong = release_folder.find(folder)
        if release and before and before.release == digest:
            return Published(uri=to, folder=folder, release=release, pointer=before, reused=True)
        milliseconds = None
        if release is None:
            from flows.make_release import make_release  # torch and LanceDB take seconds to import

            release, milliseconds = make_release(to, request, trained, documents, config, evaluated, progress)
        progress("swap pointer", 0, None)
        pointer = swap(to, expected=before, release=digest)
    except OSError as error:
        raise StageError(asked=f"a release was to be published to {to}", found=error.strerror or str(error),
                         follows="what is live there stays as it is",
                         do="make room, or give a folder that can be written") from None  # fmt: skip
    return Published(
        uri=to, folder=folder, release=release, pointer=pointer, reused=False, repaired=wrong,
        removed=release_folder.prune(to, pointer, config.keep),
        duration_seconds=round(time.monotonic() - started, 3), milliseconds_per_search=milliseconds,
    )  # fmt: skip


def _request(trained: StageResult, documents: str, config: PublishConfig, evaluated: Manifest | None) -> Request:
    decides = {name: value for name, value in asdict(config).items() if name != "keep"}
    return Request(
        stage="publish",
        stage_version=STAGE_VERSION,
        config=decides,
        inputs={
            "model": trained.manifest.digest,
            "documents": storage.fingerprint(documents),
            "evaluation": evaluated.digest if evaluated else "",
        },
        seed=config.seed,
    )


def _evaluation_of(trained: StageResult, evaluation: str | None) -> Manifest | None:
    if evaluation is None:
        return None
    evaluated = open_result(evaluation).manifest
    if evaluated.request.inputs.get("model") != trained.manifest.digest:
        raise UsageError(asked=f"the evaluation in {evaluation} was to travel with the release",
                         found="it is of another model", follows="the release would carry wrong figures",
                         do="give the folder that `evaluate` printed for this model")  # fmt: skip
    return evaluated
