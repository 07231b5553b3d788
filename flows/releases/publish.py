"""Publishing: a model and documents become the live release of a URI (kept_releases: listing, rolling back).

    publish("store/train/DIGEST", documents="documents.tsv", to="release", config=PublishConfig())

`publish` encodes the titles whose vectors no earlier release has, writes URI/releases/DIGEST (schemas.release), reads
it back, measures its index against exact search, and only then moves the pointer. A failure before that leaves the old
release live. A candidate is complete, but does not go live.

The pointer moves by compare-and-swap, so a concurrent publisher reports that the pointer moved.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from clicktower.flows.releases.release_folder import PublishConfig, find, prune, swap
from clicktower.schemas import storage
from clicktower.schemas.documents import UnfitRows, skipped_rows
from clicktower.schemas.errors import LaterVersionError, StageError, UsageError, os_error_kind
from clicktower.schemas.release import (
    ENCODING,
    Decide,
    Decision,
    Pointer,
    Release,
    read_folder,
    read_pointer,
    release_folder,
    remove_decision,
    write_decision,
)
from clicktower.schemas.section import Language
from clicktower.schemas.stage import (
    Progress,
    Stage,
    StageResult,
    WouldRun,
    claimed,
    is_planning,
    open_result,
    require_present,
    silent,
)

PUBLISH = Stage("publish", version=7)
AS_A_CANDIDATE = "published as a candidate: it goes live when a person decides so"


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """The result of publishing or rolling back: the release, whether it is live and was before, what was repaired."""

    stage: Literal["publish", "rollback"] = "publish"
    uri: str  # the URI for `search`
    folder: str
    release: Release
    pointer: Pointer | None  # the current pointer; None if this is a candidate and nothing was ever live
    reused: bool
    decision: Decision | None = None  # None: no rule was applied
    repaired: Sequence[str] = ()
    removed: Sequence[str] = ()
    duration_seconds: float | None = None  # of making it, if it is reused: unknown for one before 2.1
    milliseconds_per_search: float | None = None  # measured while publishing
    unfit: Sequence[UnfitRows] = ()  # rows of the documents file that are no documents; not recorded with a release

    @property
    def is_live(self) -> bool:
        return self.pointer is not None and self.pointer.release == self.release.digest

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        release, pointer = self.release, self.pointer
        return {
            "stage": self.stage,
            "digest": release.digest,
            "path": self.folder,
            "data": self.folder,
            "reused": self.reused,
            "repaired": list(self.repaired),
            "counts": {"documents": release.num_documents},
            "metrics": {
                "release": self.uri,
                "live": self.is_live,
                "decision": asdict(self.decision) if self.decision else None,
                "previous": pointer.previous if pointer else None,
                "num_documents": release.num_documents,
                "dimensions": release.dimensions,
                "encoded": dict(release.encoded),
                "index": dict(release.index),
                "recall": release.index["recall"],
                "query_tower": dict(release.query_tower),
                "milliseconds_per_search": self.milliseconds_per_search,
                "removed": list(self.removed),
                **skipped_rows(self.unfit),
            },
            "labels": dict(release.labels),
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
    """Publish a model over documents, live at `to`; reused if it is already live and intact.

    model, evaluation: folders of those stages. candidate: make it, and leave the pointer unchanged. decide: called
    once, after the release is made and before the pointer moves, to decide whether it goes live; the answer is recorded
    beside the release. The live release passed to it is None if nothing is live or the live one is unreadable. workers:
    of encoding (encode_texts); they change no byte.

    Raises UsageError or StageError; the pointer then stays unchanged, and StageError too if another publisher moved it
    in the meantime.
    """
    started = time.monotonic()
    if workers < 1:
        raise UsageError(f"Titles cannot be encoded by {workers} workers.", "Give --workers 1 or more.")
    if candidate and decide:
        raise UsageError("A release is either kept as a candidate or decided on.", "Leave one of the two out.")
    trained = open_result(model)
    evaluated = _evaluation_of(trained, evaluation, config.language)
    if storage.size_bytes(documents) is None:
        raise UsageError(f"There is no documents file {documents}.", "Check the path.")
    inputs = {
        "model": trained.manifest.digest,
        "documents": storage.fingerprint(documents),
        "evaluation": evaluated.manifest.digest if evaluated else "",
    }
    request = PUBLISH.request(config, inputs)
    digest = request.digest
    folder = release_folder(to, digest)
    try:
        before = read_pointer(to)
        release, wrong = find(folder)
        if release and (is_planning() or (before and before.release == digest)):
            return Published(
                uri=to, folder=folder, release=release, pointer=before, reused=True,
                duration_seconds=release.duration_seconds,
            )  # fmt: skip
        if is_planning():
            raise WouldRun(request, wrong)
        milliseconds, is_there, unfit = None, release is not None, tuple[UnfitRows, ...]()
        if release is None:
            from clicktower.flows.releases.make_release import make_release  # torch takes seconds to import

            with claimed(storage.join(to, ENCODING, digest), progress, reads=request.named_digests()):
                require_present([trained, *([evaluated] if evaluated else [])])
                release, wrong = find(folder)
                if release:  # the process that this one waited for made it
                    before, is_there = read_pointer(to), True
                else:
                    release, milliseconds, unfit = make_release(
                        to, request, trained, documents, config, evaluated, progress, workers=workers
                    )
        decision = _decision(to, before, release, folder, candidate=candidate, decide=decide)
        if decision is None or decision.promote:
            progress("swap pointer", 0, None)
            pointer: Pointer | None = swap(to, expected=before, release=digest)
        else:
            pointer = before
    except OSError as error:
        raise os_error_kind(error)(
            f"A release cannot be published to {to}: {error.strerror or str(error)}. What is live there stays as it"
            " is.",
            "Make room, or give a folder that can be written.",
        ) from None
    return Published(
        uri=to, folder=folder, release=release, pointer=pointer, decision=decision, repaired=wrong,
        reused=is_there and pointer == before, removed=prune(to, config.keep, made=digest),
        duration_seconds=round(time.monotonic() - started, 3), milliseconds_per_search=milliseconds, unfit=unfit,
    )  # fmt: skip


def _evaluation_of(trained: StageResult, evaluation: str | None, language: Language) -> StageResult | None:
    if evaluation is None:
        return None
    evaluated = open_result(evaluation)
    if evaluated.manifest.request.inputs.get("model") != trained.manifest.digest:
        raise UsageError(
            f"The evaluation in {evaluation} is of another model: the release would carry wrong figures.",
            "Give the folder that `evaluate` printed for this model.",
        )
    measured = evaluated.manifest.request.config.get("language", language)  # earlier versions have none
    if measured != language:
        raise UsageError(
            f"The evaluation in {evaluation} is by terms of the language {measured}, and the release by {language}: it"
            " would carry wrong figures.",
            f"Evaluate with --set language={language}, or publish with --set language={measured}.",
        )
    return evaluated


def _decision(
    to: str, before: Pointer | None, release: Release, folder: str, *, candidate: bool, decide: Decide | None
) -> Decision | None:
    """The decision whether it goes live, recorded beforehand; None without a `decide` function."""
    if candidate:
        decision = Decision(promote=False, reason=AS_A_CANDIDATE)
    elif decide:
        live_folder = release_folder(to, before.release) if before else None
        try:
            live = read_folder(live_folder) if live_folder else None
        except LaterVersionError:
            raise
        except StageError:
            live = None
        decision = decide(live, live_folder if live else None, release, folder)
    else:
        remove_decision(to, release.digest)  # an earlier decision about the candidate no longer holds
        return None
    record_decision(to, release.digest, decision, before)
    return decision


def record_decision(uri: str, digest: str, decision: Decision, before: Pointer | None) -> None:
    """Write a decision about a release, made against the live one."""
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    with claimed(uri, silent):
        write_decision(uri, digest, decision, against=before.release if before else None, decided=now)
