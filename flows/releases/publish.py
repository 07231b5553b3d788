"""Publish: model + documents -> a release behind the pointer of a URI.

    python: publish("store/train/DIGEST", documents="documents.tsv", to="release", config=PublishConfig())

Encodes the titles whose vectors no earlier release has, writes URI/releases/DIGEST (schemas.release), reads it back,
measures its index against exact search, and only then moves the pointer. A failure before that leaves the old release
live. A candidate is made completely, but does not go live.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from flows.releases import release_folder
from flows.releases.publish_config import PublishConfig
from flows.releases.release_folder import swap
from schemas import storage
from schemas.claim import claimed
from schemas.errors import StageError, UsageError, os_error_kind
from schemas.manifest import Request
from schemas.release import (
    ENCODING,
    Decide,
    Decision,
    Pointer,
    Release,
    read_folder,
    read_pointer,
    remove_decision,
    write_decision,
)
from schemas.release import release_folder as folder_of
from schemas.stage import Progress, StageResult, open_result, silent

STAGE_VERSION = 3
AS_A_CANDIDATE = "published as a candidate: it goes live when a person decides so"


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """The result of publishing: the release's place, whether it is live and was before, and what was repaired."""

    uri: str  # what `search` takes
    folder: str
    release: Release
    pointer: Pointer | None  # as it is now; None where this is a candidate and nothing was ever live
    reused: bool
    decision: Decision | None = None  # None: nobody was asked
    repaired: Sequence[str] = ()
    removed: Sequence[str] = ()
    duration_seconds: float | None = None  # of making it; not recorded with a release, so unknown when it is reused
    milliseconds_per_search: float | None = None  # measured while publishing

    @property
    def is_live(self) -> bool:
        return self.pointer is not None and self.pointer.release == self.release.digest

    def to_json(self) -> dict[str, Any]:
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
                "live": self.is_live,
                "decision": asdict(self.decision) if self.decision else None,
                "previous": self.pointer.previous if self.pointer else None,
                "num_documents": self.release.num_documents,
                "dimensions": self.release.dimensions,
                "encoded": dict(self.release.encoded),
                "index": dict(self.release.index),
                "recall": self.release.index["recall"],
                "query_tower": dict(self.release.query_tower),
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
    candidate: bool = False,
    decide: Decide | None = None,
    workers: int = 1,
    progress: Progress = silent,
) -> Published:
    """Publish a model over documents, live at `to`; reused if it is live already and intact.

    model, evaluation: folders of those stages. candidate: make it, and leave the pointer where it is. decide: asked
    once, when the release is made and before the pointer moves, whether it goes live; what it answers is recorded
    beside the release. The live release it is given is None where nothing is live, or what is cannot be read. workers:
    of encoding (encode_titles); they change no byte.

    Raises UsageError or StageError; the pointer then stays where it was, and StageError too if another publisher moved
    it in the meantime.
    """
    started = time.monotonic()
    if workers < 1:
        raise UsageError(asked=f"titles were to be encoded by {workers} workers", found="there must be at least 1",
                         do="give --workers 1 or more")  # fmt: skip
    if candidate and decide:
        raise UsageError(asked="a release was to be published", found="as a candidate, and to be decided on as well",
                         do="leave one of the two out")  # fmt: skip
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
        milliseconds, is_there = None, release is not None
        if release is None:
            from flows.releases.make_release import make_release  # torch and LanceDB take seconds to import

            with claimed(storage.join(to, ENCODING, digest), progress):
                release, wrong = release_folder.find(folder)
                if release:  # whoever was waited for made it
                    before, is_there = read_pointer(to), True
                else:
                    release, milliseconds = make_release(
                        to, request, trained, documents, config, evaluated, progress, workers=workers
                    )
        decision = _decision(to, before, release, folder, candidate=candidate, decide=decide)
        if decision is None or decision.promote:
            progress("swap pointer", 0, None)
            pointer: Pointer | None = swap(to, expected=before, release=digest)
        else:
            pointer = before
    except OSError as error:
        raise os_error_kind(error)(asked=f"a release was to be published to {to}", found=error.strerror or str(error),
                                   follows="what is live there stays as it is",
                                   do="make room, or give a folder that can be written") from None  # fmt: skip
    return Published(
        uri=to, folder=folder, release=release, pointer=pointer, decision=decision, repaired=wrong,
        reused=is_there and pointer == before, removed=release_folder.prune(to, config.keep, made=digest),
        duration_seconds=round(time.monotonic() - started, 3), milliseconds_per_search=milliseconds,
    )  # fmt: skip


def _decision(
    to: str, before: Pointer | None, release: Release, folder: str, *, candidate: bool, decide: Decide | None
) -> Decision | None:
    """The decision whether it goes live, recorded before it does; None without a `decide` function."""
    if candidate:
        decision = Decision(promote=False, reason=AS_A_CANDIDATE)
    elif decide:
        live_folder = folder_of(to, before.release) if before else None
        live = _read_live(live_folder)
        decision = decide(live, live_folder if live else None, release, folder)
    else:
        remove_decision(to, release.digest)  # what was said of it as a candidate no longer holds
        return None
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    write_decision(to, release.digest, decision, against=before.release if before else None, decided=now)
    return decision


def _read_live(folder: str | None) -> Release | None:
    try:
        return read_folder(folder) if folder else None
    except StageError:
        return None


def _request(trained: StageResult, documents: str, config: PublishConfig, evaluated: StageResult | None) -> Request:
    decides = {name: value for name, value in asdict(config).items() if name != "keep"}
    return Request(
        stage="publish",
        stage_version=STAGE_VERSION,
        config=decides,
        inputs={
            "model": trained.manifest.digest,
            "documents": storage.fingerprint(documents),
            "evaluation": evaluated.manifest.digest if evaluated else "",
        },
        seed=config.seed,
    )


def _evaluation_of(trained: StageResult, evaluation: str | None) -> StageResult | None:
    if evaluation is None:
        return None
    evaluated = open_result(evaluation)
    if evaluated.manifest.request.inputs.get("model") != trained.manifest.digest:
        raise UsageError(asked=f"the evaluation in {evaluation} was to become part of the release",
                         found="it is of another model", follows="the release would carry wrong figures",
                         do="give the folder that `evaluate` printed for this model")  # fmt: skip
    return evaluated
