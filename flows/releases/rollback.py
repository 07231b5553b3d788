"""Roll back: make a release live again that is kept, without making anything.

    rollback("release")                     the one that was live before
    rollback("release", release="DIGEST")   any that is kept, a candidate too

Every byte of it is checked first. The pointer moves by compare-and-swap, as in publish, so rolling back twice is back
where it began, and a publisher at work meanwhile says that the pointer moved.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from flows.releases.release_folder import files_of, swap
from schemas import storage
from schemas.errors import StageError, UsageError, require_major
from schemas.manifest import damaged_files
from schemas.release import (
    Decision,
    Pointer,
    Release,
    read_folder,
    read_pointer,
    release_folder,
    write_decision,
)
from schemas.trigrams import CONTRACT_VERSION


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
    """The release that is live now: `release`, or the one that was live before.

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
                         follows="its answers could not be believed, so what is live stays",
                         do="name another release, or publish again: that repairs it")  # fmt: skip
    if before.release == digest:
        return RolledBack(uri=uri, folder=folder, release=found, pointer=before, reused=True)
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    decision = Decision(promote=True, reason=f"made live by a rollback from {before.release}")
    write_decision(uri, digest, decision, against=before.release, decided=now)
    return RolledBack(
        uri=uri, folder=folder, release=found, pointer=swap(uri, expected=before, release=digest), reused=False
    )
