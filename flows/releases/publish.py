"""Publishing: a model and documents become the live release of a URI (kept_releases: listing, rolling back).

    publish("store/train/DIGEST", documents="documents.tsv", to="release", config=PublishConfig())

`publish` encodes the titles whose vectors no earlier release has, writes URI/releases/DIGEST (schemas.release), reads
it back, measures its index against exact search, and only then moves the pointer. A failure before that leaves the old
release live. A candidate is complete, but does not go live.

A release is built under a temporary name and renamed in one step, so URI/releases/DIGEST is complete or absent. The
pointer moves by compare-and-swap, so a concurrent publisher reports that the pointer moved. Old releases are removed.
"""

import os
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from clicktower.flows.config.guard_rules import PublishConfig
from clicktower.schemas import storage
from clicktower.schemas.documents import UnfitRows, skipped_rows
from clicktower.schemas.errors import LaterVersionError, StageError, UsageError, os_error_kind
from clicktower.schemas.manifest import damaged_files, to_bytes
from clicktower.schemas.release import (
    DECISIONS,
    ENCODING,
    POINTER,
    RELEASE,
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
            from clicktower.flows.releases.make_release import make_release  # torch takes seconds

            with claimed(storage.join(to, ENCODING, digest), progress, reads=request.named_digests()):
                require_present([trained, *([evaluated] if evaluated else [])])
                release, wrong = find(folder)
                if release:  # the process that this one waited for made it
                    before, is_there = read_pointer(to), True
                else:
                    with building(folder) as built:
                        release, milliseconds, unfit, parts = make_release(
                            built, to, request, trained, documents, config, evaluated, progress, workers=workers
                        )
                        place(built, release, folder)
                    for part in parts:
                        storage.remove(part)
                    release = read_folder(folder)  # that of another publisher, if it was first
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
        reused=is_there and pointer == before, removed=prune(to, config.keep, published=digest),
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


# The folder of a release, and the pointer.


def building(folder: str) -> AbstractContextManager[str]:
    """The name of a local folder to build a release in; removed at the end of the context.

    The caller holds the claim on the digest, so the remains of a killed publisher are removed first.
    """
    if storage.is_local(folder):
        return storage.building(folder, abandoned_seconds=0)
    return tempfile.TemporaryDirectory(ignore_cleanup_errors=True)


def place(built: str, release: Release, folder: str) -> None:
    """Rename a built folder to its final name. If another publisher of the same release was first, theirs stays.

    A damaged release at that place is renamed, not deleted. On an object store, which cannot rename, its files are
    uploaded (object_release). Raises StageError if the uploaded files differ from those built.
    """
    is_damaged, aside = bool(find(folder)[1]), f"{folder}.damaged-{uuid.uuid4().hex[:8]}"
    if not storage.is_local(folder):
        from clicktower.flows.releases import object_release

        if is_damaged:
            object_release.move_damaged(folder, aside)
        object_release.upload(built, release, folder)
        return
    if is_damaged:
        storage.move(folder, aside)
    storage.write_atomic(os.path.join(built, RELEASE), to_bytes(release.to_json()))
    try:
        storage.place(built, folder)
    except OSError:
        if find(folder)[0] is None:
            raise


def find(folder: str) -> tuple[Release | None, list[str]]:
    """The release in a folder if it is there and intact (by sizes), otherwise its damage. Raises LaterVersionError."""
    if not storage.exists(storage.join(folder, RELEASE)):
        return None, [f"{RELEASE} is missing"] if storage.list_files(folder) else []
    try:
        release = read_folder(folder)
    except LaterVersionError:
        raise
    except StageError as error:
        return None, [error.problem]
    wrong = damaged_files(folder, release.files)
    return (None, wrong) if wrong else (release, [])


def prune(uri: str, keep: int, *, published: str = "") -> list[str]:
    """Remove all but the live release, its predecessor, the one just published and the `keep` newest others.

    Returns their digests. What publishers that were killed had half-written goes too, and after a day what they had
    built. Anything that cannot be removed stays: the new release is live regardless.
    """
    releases = storage.join(uri, "releases")
    with claimed(uri, silent):  # no release goes live meanwhile
        live = read_pointer(uri)
        spared = {published, *((live.release, live.previous) if live else ())}
        removed, earlier, abandoned = list[str](), list[tuple[str, str]](), list[str]()
        if storage.is_local(uri):
            encoding = storage.join(uri, ENCODING)
            abandoned += [storage.join(encoding, name) for name in storage.list_files(encoding)]
            for folder in (uri, storage.join(uri, DECISIONS)):
                for name in storage.list_names(folder):
                    if name.endswith(".partial"):  # only the holder of this claim writes there
                        with suppress(OSError):
                            storage.remove(storage.join(folder, name))
        for name in storage.list_folders(releases):
            if name.startswith(storage.BUILDING):  # only a local publisher builds in the folder
                abandoned.append(storage.join(releases, name))
            elif name not in spared:
                with suppress(LaterVersionError):  # it stays
                    if release := find(storage.join(releases, name))[0]:
                        earlier.append((release.created, name))
        for _, name in sorted(earlier, reverse=True)[keep:]:
            with suppress(OSError):
                storage.remove(storage.join(releases, name))
                remove_decision(uri, name)
                removed.append(name)
        for path in abandoned:
            with suppress(OSError):
                if time.time() - os.path.getmtime(storage.filesystem(path)[1]) > storage.ABANDONED_SECONDS:
                    storage.remove(path)
    return removed


def swap(uri: str, *, expected: Pointer | None, release: str) -> Pointer:
    """Swap the live pointer to `release` if it is still `expected`, or already names that release; returns it.

    The comparison and the replacement happen under the URI's claim (schemas.stage), as does the removal of old
    releases. On a local disk, or a network file system with locks, that is all it takes; on an object store a claim may
    be taken over, and whoever creates the object of the next swap is first (object_release).

    Raises StageError if the pointer moved elsewhere because another publisher was first, or if the release no longer
    exists.
    """
    with claimed(uri, silent):
        current = read_pointer(uri)
        if current and current.release == release:
            return current
        if current != expected:
            raise _pointer_moved(uri, release, current)
        if not storage.exists(storage.join(release_folder(uri, release), RELEASE)):
            raise StageError(
                f"The release {release} is no longer at {uri}: another publisher may have removed it among the oldest."
                " What is live stays.",
                "Publish it again.",
            )
        pointer = Pointer(
            release=release,
            previous=current.release if current else None,
            swapped=datetime.now(UTC).isoformat(timespec="microseconds"),
            number=current.number + 1 if current else 1,
        )
        if not storage.is_local(uri):
            from clicktower.flows.releases.object_release import create_swap

            if not create_swap(uri, pointer):
                raise _pointer_moved(uri, release, read_pointer(uri))
        storage.write_atomic(storage.join(uri, POINTER), to_bytes(pointer.to_json()))
    return pointer


def _pointer_moved(uri: str, release: str, current: Pointer | None) -> StageError:
    return StageError(
        f"Another publisher moved the pointer of {uri} to {current.release if current else 'nothing'} in the meantime:"
        f" moving it to {release} would silently undo that publication.",
        "Look at what is live, and publish again if yours is to replace it: its files are kept.",
    )
