"""The releases kept at a URI: listing them, and making another one live.

    list_releases("release")                newest first, with why a candidate is not live
    rollback("release")                     the one that was live before
    rollback("release", release="DIGEST")   any that is kept, a candidate too

Every byte of the release is checked first. The pointer moves by compare-and-swap, as in publish, so a publisher at work
meanwhile reports that the pointer moved. Rolling back twice returns to the start.
"""

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from flows.releases.release_folder import files_of, find, swap
from schemas import storage
from schemas.errors import StageError, UsageError, require_major
from schemas.manifest import damaged_files
from schemas.release import (
    Decision,
    Pointer,
    Release,
    read_decision,
    read_folder,
    read_pointer,
    release_folder,
    write_decision,
)
from schemas.trigrams import CONTRACT_VERSION


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """A kept release. candidate: made and not promoted; kept: it was live once, or is older than the previous one."""

    digest: str
    state: Literal["live", "previous", "candidate", "kept", "damaged"]
    release: Release | None  # None where it is damaged
    decision: Decision | None = None
    wrong: str = ""

    def to_json(self) -> dict[str, Any]:
        found = self.release
        return {
            "digest": self.digest,
            "state": self.state,
            "created": found.created if found else None,
            "num_documents": found.num_documents if found else None,
            "model": found.inputs.get("model") if found else None,
            "ndcg@10": ndcg(found) if found else None,
            "index": found.index["kind"] if found else None,
            "recall": found.index["recall"] if found else None,
            "labels": dict(found.labels) if found else {},
            "decision": asdict(self.decision) if self.decision else None,
            "wrong": self.wrong,
        }


def list_releases(uri: str) -> list[Kept]:
    """All kept releases, newest first. Raises UsageError where there is none, StageError for a damaged pointer."""
    pointer = read_pointer(uri)
    digests = [name for name in storage.list_folders(storage.join(uri, "releases")) if _is_release(name)]
    if not digests:
        raise UsageError(asked=f"the releases at {uri} were to be listed", found="nothing was published there yet",
                         do="run `clicktower publish` first, or check the URI")  # fmt: skip
    names = {pointer.release: "live", pointer.previous: "previous"} if pointer else {}
    kept = [_kept(uri, digest, names.get(digest, "")) for digest in digests]
    return sorted(kept, key=lambda one: one.release.created if one.release else "", reverse=True)


def ndcg(release: Release) -> dict[str, float] | None:
    """NDCG@10 of its model with its interval, as it was evaluated; None where it was not."""
    return release.evaluation.get("systems", {}).get("model", {}).get("ndcg@10")


def _kept(uri: str, digest: str, state: Any) -> Kept:
    release, wrong = find(release_folder(uri, digest))
    try:
        decision = read_decision(uri, digest)
    except StageError as error:
        decision, wrong = None, [*wrong, error.found]
    told = "; ".join(wrong[:3])
    if release is None:
        return Kept(digest=digest, state="damaged", release=None, decision=decision, wrong=told or "it is not finished")
    if not state:
        state = "candidate" if decision and not decision.promote else "kept"
    return Kept(digest=digest, state=state, release=release, decision=decision, wrong=told)


def _is_release(name: str) -> bool:
    return not name.startswith(".") and ".damaged-" not in name


@dataclass(frozen=True, kw_only=True, slots=True)
class RolledBack:
    """The release that is live now, the pointer as it is, and whether it was live already."""

    uri: str
    folder: str
    release: Release
    pointer: Pointer
    reused: bool

    def to_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        return {
            "stage": "rollback",
            "digest": self.release.digest,
            "path": self.folder,
            "reused": self.reused,
            "metrics": {
                "release": self.uri,
                "live": True,
                "previous": self.pointer.previous,
                "num_documents": self.release.num_documents,
            },
            "labels": dict(self.release.labels),
        }


def rollback(uri: str, *, release: str | None = None) -> RolledBack:
    """Make `release`, or the one that was live before, live again; returns it.

    Raises UsageError (nothing was published there, no such release, none was live before) and StageError (it is
    damaged, of an unknown version, or somebody moved the pointer meanwhile); the pointer then stays where it was.
    """
    asked = f"{f'the release {release}' if release else 'the release before'} was to be made live at {uri}"
    before = read_pointer(uri)
    if before is None:
        raise UsageError(asked=asked, found="nothing was published there yet", do="check the URI")
    digest = release or before.previous
    if digest is None:
        raise UsageError(asked=asked, found=f"the release {before.release} is the first that was live there",
                         do="name another with --release; `clicktower releases` lists what is kept")  # fmt: skip
    if digest not in storage.list_folders(storage.join(uri, "releases")):
        raise UsageError(asked=asked, found=f"no release {digest} is kept there",
                         do="name one that `clicktower releases` lists")  # fmt: skip
    folder = release_folder(uri, digest)
    found = read_folder(folder)
    require_major(f"the text contract of {digest}", found.text_contract.get("trigrams"), CONTRACT_VERSION)
    if wrong := damaged_files(folder, files_of(found), hashes=True):
        raise StageError(asked=asked, found="; ".join(wrong[:3]),
                         follows="its answers could not be trusted, so the live release stays",
                         do="name another release, or publish again: that repairs it")  # fmt: skip
    if before.release == digest:
        return RolledBack(uri=uri, folder=folder, release=found, pointer=before, reused=True)
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    decision = Decision(promote=True, reason=f"made live by a rollback from {before.release}")
    write_decision(uri, digest, decision, against=before.release, decided=now)
    return RolledBack(
        uri=uri, folder=folder, release=found, pointer=swap(uri, expected=before, release=digest), reused=False
    )
