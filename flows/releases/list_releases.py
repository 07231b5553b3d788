"""What is kept at a release URI: which release is live, which was before, and why a candidate is not."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from flows.releases import release_folder
from schemas import storage
from schemas.errors import StageError, UsageError
from schemas.release import Decision, Release, read_decision, read_pointer
from schemas.release import release_folder as folder_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """One release. candidate: made and not promoted; kept: it was live once, or is older than the one before."""

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
    """All that is kept, newest first. Raises UsageError where there is nothing, StageError for a damaged pointer."""
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
    release, wrong = release_folder.find(folder_of(uri, digest))
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
