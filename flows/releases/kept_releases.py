"""The releases that are kept, and an earlier one made live again (publish).

    list_releases("release")                newest first, with why a candidate is not live
    rollback("release")                     the one that was live before
    rollback("release", release="DIGEST")   any that is kept, a candidate too

`rollback` checks every byte of the release first. The pointer moves by compare-and-swap, so a concurrent publisher
reports that the pointer moved. Rolling back twice returns to the start.

`verify` compares every byte of a stage's output, a store, a release or a release URI with the recorded hashes.
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from clicktower.flows.releases.publish import Published, find, record_decision, swap
from clicktower.schemas import manifest as manifests
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError, require_major
from clicktower.schemas.manifest import OutputFile, damaged_files, from_bytes, is_broken, is_respelled
from clicktower.schemas.release import (
    DECISIONS,
    POINTER,
    RELEASE,
    SWAPS,
    Decision,
    kept_folder,
    read_decision,
    read_folder,
    read_pointer,
    release_folder,
    require_searchable,
)
from clicktower.schemas.stage import Progress, silent
from clicktower.schemas.text_contract import CONTRACT_VERSION


def list_releases(uri: str) -> list[dict[str, Any]]:
    """All kept releases, newest first, as `clicktower releases --json` lists them.

    `state`: live, previous, candidate (made and not promoted), kept (it was live once, or is older than the previous
    one) or damaged. `ndcg@10`: of its model with its interval, from its evaluation. Raises UsageError if there is no
    release, StageError for a damaged pointer.
    """
    pointer = read_pointer(uri)
    folders = storage.list_folders(storage.join(uri, "releases"))
    digests = [name for name in folders if not name.startswith(".") and ".damaged-" not in name]
    if not digests:
        raise UsageError(f"Nothing is published at {uri} yet.", "Run `clicktower publish` first, or check the URI.")
    states = {pointer.release: "live", pointer.previous: "previous"} if pointer else {}
    kept = [_kept_release(uri, digest, states.get(digest)) for digest in digests]
    return sorted(kept, key=lambda row: row["created"] or "", reverse=True)


def _kept_release(uri: str, digest: str, state: str | None) -> dict[str, Any]:
    release, decision, wrong, is_whole = None, None, list[str](), True
    try:
        release, wrong = find(release_folder(uri, digest))
        is_whole = release is not None
        decision = read_decision(uri, digest)
    except StageError as error:  # perhaps it is of a later version
        wrong = [*wrong, error.problem]
    if not is_whole:
        state, wrong = "damaged", wrong or ["it is not finished"]
    elif release and not release.is_searchable:
        wrong = [*wrong, "it is of an earlier version, and is not searched"]
    if not state:
        state = "candidate" if decision and not decision.promote else "kept"
    return {
        "digest": digest,
        "state": state,
        "created": release and release.created,
        "num_documents": release and release.num_documents,
        "model": release and release.inputs.get("model"),
        "ndcg@10": release and release.evaluation.get("systems", {}).get("model", {}).get("ndcg@10"),
        "index": release and release.index["kind"],
        "recall": release and release.index["recall"],
        "labels": dict(release.labels) if release else {},
        "decision": decision and asdict(decision),
        "wrong": "; ".join(wrong[:3]),
    }


def rollback(uri: str, *, release: str | None = None) -> Published:
    """Make `release`, or the previously live one, live again; returns it.

    Raises UsageError (nothing was published there, no such release, no previous one) and StageError (it is damaged, of
    an unknown version, or the pointer moved meanwhile); the pointer then stays unchanged.
    """
    before = read_pointer(uri)
    if before is None:
        raise UsageError(f"Nothing is published at {uri} yet.", "Check the URI.")
    digest = release or before.previous
    if digest is None:
        raise UsageError(
            f"The release {before.release} is the first that was live at {uri}.",
            "Name another with --release; `clicktower releases` lists those that are kept.",
        )
    folder = kept_folder(uri, digest)
    release_there = read_folder(folder)
    require_searchable(uri, release_there)
    contract = release_there.text_contract.get("trigrams")
    require_major(f"the text contract of {digest}", contract, CONTRACT_VERSION, stage="publish")
    if wrong := damaged_files(folder, release_there.files, hashes=True):
        raise StageError(
            f"The release {digest} cannot go live: {'; '.join(wrong[:3])}. The live release stays.",
            "Name another release, or publish again: that repairs it.",
        )
    is_live = before.release == digest
    if not is_live:
        reason = f"made live by a rollback from {before.release}"
        record_decision(uri, digest, Decision(promote=True, reason=reason), before)
    pointer = swap(uri, expected=before, release=digest)
    return Published(stage="rollback", uri=uri, folder=folder, release=release_there, pointer=pointer, reused=is_live)


def verify(folder: str, *, progress: Progress = silent) -> list[str]:
    """The damage, one sentence each; empty if every byte is as written.

    folder: STORE/STAGE/DIGEST, a release's folder, a release URI, or a store, of which all outputs are verified.
    Raises UsageError where there is nothing to verify.
    """
    units, records = _output_folders(folder), _records(folder)
    if not units and not records:
        raise UsageError(f"{folder} is neither a stage's output nor a store nor a release.", "Check the path.")
    findings = _damage_of_records(folder, records) if records else []
    for number, unit in enumerate(units):
        progress("verify", number, len(units))
        prefix = "" if unit == folder else f"{unit.removeprefix(folder).strip('/')}: "
        findings += [prefix + sentence for sentence in output_damage(unit)]
    progress("verify", len(units), len(units))
    return findings


def _output_folders(folder: str) -> list[str]:
    """The folders with a manifest.json or release.json: this one, or those two levels below it."""
    names = (manifests.FILE_NAME, RELEASE)
    if any(storage.exists(storage.join(folder, name)) for name in names):
        return [folder]
    fs, root = storage.filesystem(folder)
    paths = [path for name in names for path in fs.glob(f"{root.rstrip('/')}/*/*/{name}")]
    inner = [path[len(root.rstrip("/")) + 1 :].rsplit("/", 1)[0] for path in paths]
    return [storage.join(folder, unit) for unit in sorted(inner) if "/." not in unit and ".damaged-" not in unit]


def _records(uri: str) -> list[str]:
    """The pointer of a release URI, and its records of swaps and decisions."""
    names = [
        f"{folder}/{name}"
        for folder in (SWAPS, DECISIONS)
        for name in storage.list_files(storage.join(uri, folder))
        if name.endswith(".json")  # not the remains of a kill
    ]
    return [POINTER, *names] if storage.exists(storage.join(uri, POINTER)) else names


def _damage_of_records(uri: str, records: Sequence[str]) -> list[str]:
    """The damage of a release URI's pointer and of its records of swaps and decisions: their seals, whether the
    releases that the pointer names exist, and whether it is there if a release went live.
    """
    try:
        pointer = read_pointer(uri)
    except StageError as error:
        return [error.problem]
    findings = [sentence for name in records for sentence in _record_damage(uri, name)]
    if pointer is None and not findings:
        decisions = [read_decision(uri, PurePath(name).stem) for name in records if name.startswith(DECISIONS)]
        if any(decision and decision.promote for decision in decisions):
            findings.append(f"{POINTER} is missing, although a release went live")
    for digest in (pointer.release, pointer.previous) if pointer else ():
        if digest and not storage.exists(storage.join(release_folder(uri, digest), RELEASE)):
            findings.append(f"{POINTER} names the release {digest}, which is not there")
    return findings


def _record_damage(folder: str, name: str) -> list[str]:
    """The damage of a sealed record, by its seal and its bytes; a record that predates seals may have any spelling."""
    content = storage.read_bytes(storage.join(folder, name))
    try:
        broken = is_broken(from_bytes(content))
    except (ValueError, AttributeError):  # not JSON, or not an object
        broken = True
    if broken:
        return [f"its {name} is damaged"]
    return [f"{name} has other bytes than were written"] if is_respelled(content) else []


def output_damage(folder: str) -> list[str]:
    """The damage of a stage's output or a release, by every byte, and the files there that are not of it."""
    try:
        if storage.exists(storage.join(folder, RELEASE)):
            release = read_folder(folder)
            digest, record = release.digest, RELEASE
            files: Sequence[OutputFile] = release.files
            present, findings = storage.list_files(folder), _record_damage(folder, RELEASE)
        else:
            manifest = manifests.read(folder)
            digest, files, record = manifest.digest, manifest.files, manifests.FILE_NAME
            written = storage.list_files(f"{folder}/{manifest.attempt}")
            present, findings = [f"{manifest.attempt}/{name}" for name in written], []
            if manifest.outcome.ledger:
                manifest.outcome.ledger.check()
    except StageError as error:
        return [error.problem]
    if not folder.rstrip("/").endswith(digest):
        findings.append(f"its record is that of {digest}: a folder was renamed")
    # An unrecorded file can change what is read: for example, a table's newest version is found by its name.
    extra = sorted(set(present) - {file.path for file in files} - {record})
    return findings + damaged_files(folder, files, hashes=True) + [f"{path} is not of this output" for path in extra]
