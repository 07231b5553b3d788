"""The path of every Beam stage: request -> reused, or an attempt -> engine -> pipeline, whose last step commits."""

import hashlib
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Protocol

from clicktower.beam_jobs.engine.arrow_files import writing_errors
from clicktower.beam_jobs.engine.engine_options import (
    WORTH_PROCESSES_BYTES,
    asks_for_processes,
    exchange_scratch,
    with_local_workers,
)
from clicktower.schemas import manifest, stage, storage
from clicktower.schemas.manifest import Outcome, Request, from_bytes
from clicktower.schemas.shard import LogicalDigest
from clicktower.schemas.stage import Progress, StageResult, require_present, run_stage, scratch_folder

if TYPE_CHECKING:
    import apache_beam as beam

NOTE_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """Sums over a part of the work; `first_ms` and `last_ms` are its first and last times, in milliseconds since 1970.

    `sampled`: the sampled lines (day_rows).
    """

    lines: int = 0  # counted where blocks are cut, before anything is parsed
    fates: Mapping[str, int] = field(default_factory=dict)  # lines by fate (schemas.ledger)
    counts: Mapping[str, int] = field(default_factory=dict)
    first_ms: int | None = None
    last_ms: int | None = None
    sampled: bytes = b""


def add_up(tallies: Iterable[Tally]) -> Tally:
    """The tally of all parts together."""
    parts = list(tallies)
    fates, counts = Counter[str](), Counter[str]()
    for part in parts:
        fates.update(part.fates)
        counts.update(part.counts)
    return Tally(
        lines=sum(part.lines for part in parts),
        fates=dict(fates),
        counts=dict(counts),
        first_ms=min((part.first_ms for part in parts if part.first_ms is not None), default=None),
        last_ms=max((part.last_ms for part in parts if part.last_ms is not None), default=None),
        sampled=b"".join(part.sampled for part in parts),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One attempt at a request, as its workers and its last step see it.

    `folder`: STORE/STAGE/DIGEST/ATTEMPT, where files have their final names. `scratch`: where rows wait between two
    steps, or None if they travel through the runner's own shuffle (arrow_files).
    """

    request: Request
    folder: str
    scratch: str | None
    num_buckets: int
    started: float  # seconds since the epoch

    @property
    def work_folder(self) -> str:
        """The folder where workers write, under unique names, until the last step selects files."""
        return scratch_folder(self.folder)

    @property
    def notes(self) -> str:
        """The folder where workers note their progress."""
        return storage.join(self.scratch or self.work_folder, "progress")

    @property
    def job_name(self) -> str:
        """The job's name on an engine, which may outlive the process that submitted it: unique for a request and a
        store.
        """
        where = hashlib.sha256(storage.absolute(self.folder.rpartition("/")[0]).encode()).hexdigest()[:8]
        return f"clicktower-{self.request.stage}-{self.request.digest}-{where}"

    def has_committed(self) -> bool:
        """Whether this or another attempt at the request has committed."""
        return manifest.is_finished(self.folder.rpartition("/")[0])

    def commit(self, outcome: Outcome) -> None:
        """Write the manifest. Raises StageError if the ledger does not add up."""
        folder, _, name = self.folder.rpartition("/")
        stage.commit(folder, self.request, name, outcome, self.started)


@dataclass(frozen=True, kw_only=True, slots=True)
class FolderMade:
    """A folder that one try of a bundle wrote, its files, and the digest of its rows.

    Folders with the same name have the same content, so the last step may select any of them.
    """

    folder: str  # where it was written, under a name of this try
    name: str  # as `train-00000`
    files: tuple[str, ...]
    counts: Mapping[str, int]
    logical_digest: str

    @property
    def split(self) -> str:
        return self.name.partition("-")[0]


def move_to_final_names(folders: Iterable[FolderMade], attempt: str, *, flat: bool = False) -> LogicalDigest:
    """Move files to their final names: ATTEMPT/NAME/FILE, or ATTEMPT/FILE if `flat`. Returns the digest of all their
    rows.

    It can run again after a failure: files that were moved stay. Raises OSError if a file is lost.
    """
    digest = LogicalDigest()
    for written in folders:
        place = attempt if flat else storage.join(attempt, written.name)
        for file in written.files:
            begun, named = storage.join(written.folder, file), storage.join(place, file)
            if storage.exists(begun) or not storage.exists(named):
                storage.move(begun, named)
        digest.merge(written.logical_digest)
    return digest


class BeamJob(Protocol):
    """What an attempt does on Beam."""

    @property
    def steps(self) -> Mapping[str, int]:
        """The total of each step that its functions `advance` (progress)."""

    def build(self, pipeline: "beam.Pipeline") -> None:
        """The whole graph; its last step commits the attempt."""


def run_beam_stage(
    store: str,
    request: Request,
    job_code: str,
    fields: Mapping[str, Any],
    *,
    input_bytes: int,
    worth_bytes: int = WORTH_PROCESSES_BYTES,
    beam_options: Sequence[str],
    progress: Progress,
    reads: Sequence[StageResult] = (),
) -> StageResult:
    """The output of a request: reused if it exists, otherwise made on Beam.

    `job_code`: "module:name" of the class of the job (BeamJob), imported when Beam is needed, since that takes seconds;
    worker processes of this machine import it at the same time. The job is made of the attempt and of `fields`.
    `input_bytes`: uncompressed; from `worth_bytes` on a job without runner options gets a process per core. `reads`:
    outputs that it reads; TransientError if they were removed before it began. Raises what the job raises
    (beam_engine), and StageError if the store is not writable.
    """

    def produce(folder: str) -> None:
        require_present(reads)
        options = with_local_workers(beam_options, input_bytes, worth_bytes)
        workers_of_job: AbstractContextManager[Any] = nullcontext()
        if asks_for_processes(options):
            from clicktower.beam_jobs.engine.forked_workers import forked_workers

            workers_of_job = forked_workers(job_code)
        with workers_of_job as workers, exchange_scratch(options, scratch_folder(folder)) as scratch:
            from clicktower.beam_jobs.engine.beam_engine import run_pipeline
            from clicktower.beam_jobs.engine.exchange import num_buckets_for

            attempt = Attempt(
                request=request,
                folder=folder,
                scratch=scratch,
                num_buckets=num_buckets_for(input_bytes),
                started=time.time(),
            )
            job: BeamJob = resolve_name(job_code)(attempt=attempt, **fields)
            with listening(progress, job.steps, attempt.notes):
                run_pipeline(
                    job.build,
                    options,
                    job_name=attempt.job_name,
                    has_committed=attempt.has_committed,
                    progress=progress,
                    workers=workers,
                )

    with writing_errors(store):
        return run_stage(store, request, produce, progress)


# The progress of a running job, on any runner: workers leave notes, the client adds them up.
#
#     with listening(progress, {"reading (bytes)": 1000, "writing (buckets)": 4}, folder):
#         ...                                    # the job, whose functions call advance(folder, "reading (bytes)", 10)
#
# A note is one small file per worker process in a folder that all of them see, written at most once a second. A bundle
# that ran twice counts twice, so a step never shows more than its total; the ledger counts separately.


@contextmanager
def listening(progress: Progress, steps: Mapping[str, int], folder: str) -> Iterator[str]:
    """What to pass to `advance` while the block runs. `steps`: the total of each, in their order.

    It reports the last step that has any progress. A folder that cannot be created or read only turns reports off.
    """
    progress(next(iter(steps)), 0, next(iter(steps.values())))
    with suppress(OSError):
        storage.make_folder(folder)
    ended = threading.Event()

    def report() -> None:
        counts = _add_up(folder)
        if begun := [step for step in steps if counts[step]]:
            progress(begun[-1], min(counts[begun[-1]], steps[begun[-1]]), steps[begun[-1]])

    def listen() -> None:
        while not ended.wait(NOTE_SECONDS):
            report()

    listener = threading.Thread(target=listen, name="clicktower-progress", daemon=True)
    listener.start()
    try:
        yield folder
    finally:
        ended.set()
        listener.join()
        _note(folder).write()  # the unwritten progress of a worker in this process
        report()


def advance(notes: str, step: str, by: int) -> None:
    """Note that `by` more of a step is done. Without a folder nothing is noted."""
    if notes:
        _note(notes).add(step, by)


class _Note:
    """What this process has done for one job."""

    def __init__(self, folder: str) -> None:
        self._uri = storage.join(folder, f"{uuid.uuid4().hex}.json")
        self._done: Counter[str] = Counter()
        self._written, self._lock = 0.0, threading.Lock()

    def add(self, step: str, by: int) -> None:
        with self._lock:
            self._done[step] += by
            is_due = time.monotonic() - self._written >= NOTE_SECONDS
        if is_due:
            self.write()

    def write(self) -> None:
        with self._lock, suppress(OSError):  # missing progress is no reason to stop
            self._written = time.monotonic()
            folder = self._uri.rpartition("/")[0]
            if not storage.is_local(folder) or storage.exists(folder):  # otherwise the job is over
                with storage.open_new(self._uri) as note:
                    note.write(json.dumps(self._done).encode())


@lru_cache(maxsize=8)
def _note(folder: str) -> _Note:
    return _Note(folder)


def _add_up(folder: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    with suppress(OSError):
        for name in storage.list_files(folder):
            with suppress(ValueError):  # read in the middle of a write
                counts.update(from_bytes(storage.read_bytes(storage.join(folder, name))))
    return counts
