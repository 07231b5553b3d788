"""Verification of every byte of a stage's output, a store, a release or a release URI against the recorded hashes."""

from collections.abc import Sequence

from clicktower.schemas import manifest as manifests
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.manifest import OutputFile, damaged_files, from_bytes, is_broken, is_respelled
from clicktower.schemas.release import DECISIONS, POINTER, RELEASE, SWAPS, read_folder, read_pointer, release_folder
from clicktower.schemas.stage import Progress, silent


def verify(folder: str, *, progress: Progress = silent) -> list[str]:
    """The damage, one sentence each; empty if every byte is as written.

    folder: STORE/STAGE/DIGEST, a release's folder, a release URI, or a store, of which all outputs are verified.
    Raises UsageError where there is nothing to verify.
    """
    units = _output_folders(folder)
    if not units:
        raise UsageError(f"{folder} is neither a stage's output nor a store nor a release.", "Check the path.")
    findings = []
    if storage.exists(storage.join(folder, POINTER)):
        findings += _pointer_damage(folder)
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


def _pointer_damage(uri: str) -> list[str]:
    """The damage of a release URI's pointer and decisions: their seals, and whether the releases that they name
    exist.
    """
    try:
        pointer = read_pointer(uri)
    except StageError as error:
        return [error.problem]
    records = [
        f"{folder}/{name}"
        for folder in (SWAPS, DECISIONS)
        for name in storage.list_files(f"{uri}/{folder}")
        if name.endswith(".json")  # not the remains of a kill
    ]
    findings = [sentence for name in (POINTER, *records) for sentence in _record_damage(uri, name)]
    for digest in (pointer.release, pointer.previous) if pointer else ():
        if digest and not storage.exists(storage.join(release_folder(uri, digest), RELEASE)):
            findings.append(f"{POINTER} names the release {digest}, which is not there")
    return findings


def _record_damage(folder: str, name: str) -> list[str]:
    """The damage of a sealed record, by its seal and its bytes; a record that predates seals may have any spelling."""
    content = storage.read_bytes(storage.join(folder, name))
    try:
        broken = is_broken(from_bytes(content), since="1.1")
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
