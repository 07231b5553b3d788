"""The frame of every stage: reuse a finished output, or make it in an attempt of its own and commit it.

    result = run_stage(store, request, produce)

`produce(folder)` writes files below `folder` (the attempt's own, fresh URI) and returns an Outcome. A stage that runs
on an engine calls `commit` inside its last step instead, so that a client that dies after submitting loses nothing, and
its `produce` returns None.
"""

import errno
import json
import os
import platform
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout

from clicktower.schemas import manifest as manifests
from clicktower.schemas import storage
from clicktower.schemas.errors import JobGoesOn, LaterVersionError, StageError, TransientError, UsageError
from clicktower.schemas.manifest import Manifest, Outcome, Request, from_bytes
from clicktower.schemas.process import raise_if_asked_to_end
from clicktower.schemas.section import named_settings

# Stages whose output only its owner can read: it contains queries as people typed them.
PRIVATE_STAGES = ("ingest",)

SMALL_BYTES = 64 << 20  # a small output: hashed in a tenth of a second

# A stage's progress: the activity, how much is done, of how much (None: unknown).
Progress = Callable[[str, int, int | None], None]


def silent(what: str, done: int, total: int | None) -> None:
    """A Progress that reports nothing."""


_is_planning: ContextVar[bool] = ContextVar("is_planning", default=False)


class WouldRun(Exception):
    """A stage would run, and is only planned. `wrong`: the damage of the output that it has."""

    def __init__(self, request: Request, wrong: Sequence[str]) -> None:
        self.request, self.wrong = request, wrong
        super().__init__(request.stage)


@contextmanager
def planning() -> Iterator[None]:
    """Within, a stage makes, writes and removes nothing: it returns its finished output, or raises WouldRun."""
    token = _is_planning.set(True)
    try:
        yield
    finally:
        _is_planning.reset(token)


def is_planning() -> bool:
    return _is_planning.get()


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage: its name, and the settings and inputs that identify its results.

    `version` is incremented when the same request gives other files.
    """

    name: str
    version: int

    def request(self, settings: Any, inputs: Mapping[str, Any], *, seed: int | None = None) -> Request:
        """A request to the stage. `settings`: a section, or sections and values by name. `inputs`: the digest or
        fingerprint of each input, by name. `seed`: by default that of the section, or 0.
        """
        return Request(
            stage=self.name,
            stage_version=self.version,
            config=named_settings(settings),
            inputs=inputs,
            seed=getattr(settings, "seed", 0) if seed is None else seed,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class StageResult:
    """A finished output: its place, its manifest, whether it was reused, and any damage that was repaired."""

    folder: str  # STORE/STAGE/DIGEST
    manifest: Manifest
    reused: bool
    repaired: tuple[str, ...] = ()

    @property
    def data(self) -> str:
        """The URI below which the files are."""
        return storage.join(self.folder, self.manifest.attempt)

    def to_json(self) -> dict:
        """The object that `--json` prints."""
        value = {
            "stage": self.manifest.request.stage,
            "digest": self.manifest.digest,
            "path": self.folder,
            "data": self.data,
            "reused": self.reused,
            "repaired": list(self.repaired),
            **self.manifest.to_json()["outcome"],
            "duration_seconds": self.manifest.duration_seconds,
        }
        if value["ledger"] is None:
            del value["ledger"]
        return value


def scratch_folder(attempt: str) -> str:
    """The folder for intermediate files of an attempt's workers; removed when the stage ends.

    It is beside the attempt's own folder, so a worker that was given up for dead can write there without its files
    being listed, or seen, as output.
    """
    return f"{attempt}-scratch"


def stage_folder(store: str, request: Request) -> str:
    return storage.join(store, request.stage, request.digest)


def open_result(folder: str, *stages: str, fix: str = "") -> StageResult:
    """A finished output by its folder. Raises StageError if it is not finished, UsageError if it belongs to another
    stage than these, with `fix`, by default to give a folder that one of them printed.
    """
    result = StageResult(folder=folder, manifest=manifests.read(folder), reused=True)
    if stages and (stage := result.manifest.request.stage) not in stages:
        commands = " or ".join(f"`clicktower {name}`" for name in stages)
        raise UsageError(f"{folder} is the output of {stage}.", fix or f"Give the folder that {commands} printed.")
    return result


def require_present(results: Sequence[StageResult]) -> None:
    """Raise TransientError for outputs that were removed after a stage had opened them and before its claim."""
    if gone := [r.folder for r in results if not manifests.is_finished(r.folder)]:
        raise TransientError(
            f"{', '.join(gone[:3])} was removed as this stage began (`clicktower prune`).",
            "Run the same command again: it takes what the store has now.",
        )


def find_finished(store: str, request: Request) -> tuple[StageResult | None, list[str]]:
    """The finished output of a request if it exists and is intact, otherwise its damage. Raises LaterVersionError.

    Every byte of a small output is checked. For a large one the sizes are, since its readers check the bytes: days when
    they are read (days), shards before training (shard_data).
    """
    return find_finished_in(stage_folder(store, request))


def find_finished_in(folder: str) -> tuple[StageResult | None, list[str]]:
    """As find_finished, by the folder."""
    if not manifests.is_finished(folder):
        return None, []
    try:
        manifest = manifests.read(folder)
    except LaterVersionError:
        raise
    except StageError as error:
        return None, [error.problem]
    is_small = sum(file.size_bytes for file in manifest.files) <= SMALL_BYTES
    damage = manifests.damaged_files(folder, manifest.files, hashes=is_small)
    return (None, damage) if damage else (StageResult(folder=folder, manifest=manifest, reused=True), [])


def run_stage(
    store: str, request: Request, produce: Callable[[str], Outcome | None], progress: Progress = silent
) -> StageResult:
    """The output of a request: reused if it exists and is intact, otherwise made by `produce` and committed.

    If another process is making it, this one waits, says so, and then answers "reused"; or makes it itself, if that one
    failed or died (schemas.stage). A damaged output is set aside under another name and made again; `repaired` says
    what was wrong. A failed attempt leaves nothing behind, unless an engine's job continues with it (JobGoesOn).
    """
    finished, wrong = find_and_clear_in(stage_folder(store, request))
    if finished:
        return finished
    if is_planning():
        raise WouldRun(request, wrong)
    if request.stage in PRIVATE_STAGES:
        storage.make_folder(storage.join(store, request.stage), private=True)
    with claimed(stage_folder(store, request), progress, reads=request.named_digests()):
        finished, wrong = find_and_clear_in(stage_folder(store, request))
        return finished or _make(store, request, produce, wrong)


def find_and_clear_in(folder: str) -> tuple[StageResult | None, list[str]]:
    """As find_finished_in; it also removes the remains of a job that committed after its client was gone."""
    finished, wrong = find_finished_in(folder)
    if finished and not is_planning():
        with suppress(OSError):  # leftovers do no harm
            clear_others(finished)
    return finished, wrong


def _make(store: str, request: Request, produce: Callable[[str], Outcome | None], wrong: Sequence[str]) -> StageResult:
    """A new output. If there is no claim, another process may be making it too: the first to commit counts."""
    folder = stage_folder(store, request)
    if wrong:
        fs, path = storage.filesystem(storage.join(folder, manifests.FILE_NAME))
        fs.mv(path, f"{path}.damaged-{uuid.uuid4().hex[:8]}")
    attempt = f"attempt-{uuid.uuid4().hex[:12]}"
    started = time.time()
    try:
        storage.make_folder(storage.join(folder, attempt))
        storage.make_folder(scratch_folder(storage.join(folder, attempt)), private=True)
        raise_if_asked_to_end()  # an interrupt may get lost among a command's imports, or in what it calls
        outcome = produce(storage.join(folder, attempt))
        raise_if_asked_to_end()
        if outcome is not None:
            commit(folder, request, attempt, outcome, started)
    except JobGoesOn:
        raise
    except BaseException as error:
        storage.remove(scratch_folder(storage.join(folder, attempt)))  # first: it has rows from before the privacy gate
        with _ENDING:
            finished, _ = find_finished(store, request)
            if not finished or finished.manifest.attempt != attempt:  # not this attempt, before the error
                _REMOVED.add(attempt)
                storage.remove(storage.join(folder, attempt))
        if finished and isinstance(error, Exception):  # another attempt may have been first, and cleared this one
            return finished
        raise
    manifest = manifests.read(folder)
    # If another attempt was first, its result counts: the request is the same.
    result = StageResult(folder=folder, manifest=manifest, reused=manifest.attempt != attempt, repaired=tuple(wrong))
    clear_others(result)
    return result


# An attempt ends once: a thread of a job in this process commits it, or the main thread, interrupted, removes it.
_ENDING = threading.Lock()
_REMOVED = set[str]()


def clear_others(finished: StageResult) -> None:
    """Remove the remains of other attempts at a finished output, and its own scratch files."""
    for name in storage.list_folders(finished.folder):
        if name.startswith("attempt-") and name != finished.manifest.attempt:
            storage.remove(storage.join(finished.folder, name))
    if storage.is_local(finished.folder):
        for name in storage.list_names(finished.folder):
            if name.endswith(".partial"):  # a manifest of a process that was killed as it wrote it
                storage.remove(storage.join(finished.folder, name))


def commit(folder: str, request: Request, attempt: str, outcome: Outcome, started: float) -> bool:
    """Write the manifest of an attempt, with the size and hash of every file below it, as the last step.

    `started` is in seconds since the epoch. False if another attempt has already committed: that one counts. Raises
    StageError if the ledger does not add up, or if this process has removed the attempt meanwhile.
    """
    if outcome.ledger:
        outcome.ledger.check()
    manifest = Manifest(
        request=request,
        outcome=outcome,
        files=manifests.output_files(storage.join(folder, attempt), f"{attempt}/"),
        attempt=attempt,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        duration_seconds=round(time.time() - started, 3),
        software=software_versions(),
    )
    with _ENDING:
        if attempt in _REMOVED:
            raise StageError("The attempt that was to be committed has ended.", "Run the same command again.")
        return storage.write_new(storage.join(folder, manifests.FILE_NAME), manifests.to_bytes(manifest.to_json()))


def software_versions() -> dict[str, str]:
    """Versions of the packages that this process has loaded, for the record."""
    loaded = [name for name in ("numpy", "pyarrow", "apache_beam", "torch", "ray") if name in sys.modules]
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        **{name: metadata.version(name.replace("_", "-")) for name in loaded},
    }


# Claims: one process at a time makes an output. A stage holds a claim on STORE/STAGE/DIGEST while it works; publishing
# holds one on RELEASE/encoding/DIGEST while it makes a release, and one on RELEASE itself while it changes the pointer
# or the releases.
#
#     with claimed(folder, progress):
#         ...                        # another process with the same request waits, and then finds the output
#
# The claim is a lock of the operating system on a small file in the folder. The kernel releases it when its holder
# ends, even by kill -9, so nothing has to expire and no clock has to be right. Child processes do not inherit it: what
# they write after the holder's end is in an attempt that nobody commits, so the next process need not wait for them.
# The file names the holder, for people, and the outputs that it reads, which nobody removes meanwhile
# (schemas.removal).
#
# An object store has no such lock: there a claim is an object that its holder rewrites (object_store). On a network
# file system without locks two processes may make the same, without harm: the first to write the manifest wins.
#
# A stage waits only for others with the same digest. A digest covers everything that a stage reads, so processes cannot
# wait for each other in a circle: a stage's own children (the trainings of a sweep) never have its digest.


CLAIM_FILE = "claim.json"
WAIT_SECONDS = 0.5
NO_LOCKS_HERE = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}


@contextmanager
def claimed(folder: str, progress: Progress, reads: Collection[str] = ()) -> Iterator[None]:
    """Hold the claim on a folder, exclusively on this file system. Waits for it and reports who holds it.

    `reads`: the digests of the outputs that are read meanwhile.
    """
    if not storage.is_local(folder):
        with resolve_name("clicktower.schemas.object_store:object_claim")(folder, progress, reads):
            yield
        return
    path = storage.filesystem(storage.join(folder, CLAIM_FILE))[1]
    lock = FileLock(path, mode=0o600, thread_local=False, fallback_to_soft=False)
    _wait_for(lock, path, progress)
    try:
        with suppress(OSError):  # it informs people: a full disk is reported by the stage itself
            if lock.is_locked:
                Path(path).write_bytes(signature(reads))
        yield
    finally:
        if lock.is_locked:
            # Removed while locked: a waiting process sees that it is gone, and makes a new one.
            with suppress(FileNotFoundError):
                os.unlink(path)
            with suppress(OSError):  # the folder is not empty
                os.rmdir(os.path.dirname(path))
            lock.release()


def _wait_for(lock: BaseFileLock, path: str, progress: Progress) -> None:
    """Acquire the lock, or proceed without it if the file system has no locks."""
    while True:
        storage.make_folder(os.path.dirname(path))
        try:
            lock.acquire(timeout=WAIT_SECONDS)
            return
        except Timeout:
            with suppress(FileNotFoundError):
                holder = holder_of(storage.read_bytes(path))
                progress(f"another process is making this: waiting ({holder})", 0, None)
        except FileNotFoundError:
            continue  # the last holder has just removed the folder
        except OSError as error:
            if error.errno not in NO_LOCKS_HERE:
                raise
            return


def signature(reads: Collection[str]) -> bytes:
    """The holder, for people, what it reads, and a number that no other claim and no other beat has."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    holder = {"process": os.getpid(), "machine": socket.gethostname(), "at": now, "nonce": uuid.uuid4().hex}
    return json.dumps(holder | {"reads": sorted(reads)}).encode()


def holder_of(signature: bytes) -> str:
    try:
        holder = from_bytes(signature)
        return f"process {holder['process']} on {holder['machine']}, {holder['at']}"
    except (ValueError, KeyError, TypeError):  # it is being written or released
        return "it has only begun"
