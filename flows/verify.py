"""Verify: every byte of a stage's output, a store, a release or a release URI against what was recorded."""

from collections.abc import Iterable

from schemas import manifest as manifests
from schemas import storage
from schemas.errors import StageError, UsageError
from schemas.manifest import OutputFile, damaged_files
from schemas.release import POINTER, RELEASE, read_folder, read_pointer, release_folder
from schemas.stage import Progress, silent


def verify(folder: str, *, progress: Progress = silent) -> list[str]:
    """What is wrong, one sentence each; empty if every byte is as it was written.

    folder: STORE/STAGE/DIGEST, a release's folder, a release URI, or a store, of which all outputs are verified.
    Raises UsageError where there is nothing to verify.
    """
    units = _units(folder)
    if not units:
        raise UsageError(
            asked=f"{folder} was to be verified",
            found="it is no stage's output, no store and no release",
            do="check the path",
        )
    found = []
    if storage.exists(storage.join(folder, POINTER)):
        found += _of_pointer(folder)
    for done, unit in enumerate(units):
        progress("verify", done, len(units))
        prefix = "" if unit == folder else f"{unit.removeprefix(folder).strip('/')}: "
        found += [prefix + sentence for sentence in _of_unit(unit)]
    progress("verify", len(units), len(units))
    return found


def _units(folder: str) -> list[str]:
    """The folders with a manifest.json or release.json: this one, or those two levels below it."""
    names = (manifests.FILE_NAME, RELEASE)
    if any(storage.exists(storage.join(folder, name)) for name in names):
        return [folder]
    fs, root = storage.filesystem(folder)
    paths = [path for name in names for path in fs.glob(f"{root.rstrip('/')}/*/*/{name}")]
    inner = [path[len(root.rstrip("/")) + 1 :].rsplit("/", 1)[0] for path in paths]
    return [storage.join(folder, unit) for unit in sorted(inner) if "/." not in unit and ".damaged-" not in unit]


def _of_pointer(uri: str) -> list[str]:
    try:
        pointer = read_pointer(uri)
    except StageError as error:
        return [error.found]
    if pointer and not storage.exists(storage.join(release_folder(uri, pointer.release), RELEASE)):
        return [f"{POINTER} names the release {pointer.release}, which is not there"]
    return []


def _of_unit(folder: str) -> list[str]:
    try:
        if storage.exists(storage.join(folder, RELEASE)):
            release = read_folder(folder)
            files = [OutputFile(path=f["path"], size_bytes=f["size_bytes"], sha256=f["sha256"]) for f in release.files]
            return _misnamed(folder, release.digest) + _of_files(folder, files, storage.list_files(folder), RELEASE)
        manifest = manifests.read(folder)
        written = (f"{manifest.attempt}/{name}" for name in storage.list_files(f"{folder}/{manifest.attempt}"))
        found = _misnamed(folder, manifest.digest) + _of_files(folder, manifest.files, written, manifests.FILE_NAME)
        if manifest.outcome.ledger:
            manifest.outcome.ledger.check()
        return found
    except StageError as error:
        return [error.found]


def _misnamed(folder: str, digest: str) -> list[str]:
    return [] if folder.rstrip("/").endswith(digest) else [f"its record is that of {digest}: a folder was renamed"]


def _of_files(folder: str, files: Iterable[OutputFile], present: Iterable[str], record: str) -> list[str]:
    recorded = list(files)
    # A file that nobody recorded can change what is read: a table's newest version, for one, is found by its name.
    extra = sorted(set(present) - {file.path for file in recorded} - {record})
    return damaged_files(folder, recorded, hashes=True) + [f"{path} is not of this output" for path in extra]
