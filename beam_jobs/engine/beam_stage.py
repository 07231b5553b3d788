"""The way of every Beam stage: request -> reused, or an attempt -> engine -> pipeline, whose last step commits."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from beam_jobs.engine.arrow_files import explained
from beam_jobs.engine.engine_options import WORTH_PROCESSES_BYTES, exchange_scratch, with_local_workers
from beam_jobs.engine.forked_workers import forked_workers_if_asked
from beam_jobs.engine.progress import listening
from schemas import manifest, stage, storage
from schemas.manifest import Outcome, Request
from schemas.stage import EngineJob, Progress, StageResult, run_stage, scratch_folder

if TYPE_CHECKING:
    import apache_beam as beam


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """Sums over a part of the work; `first_ms` and `last_ms` are the span of its times, in milliseconds since 1970.

    `sampled`: of its lines (day_versions).
    """

    lines: int = 0  # counted where blocks are cut, before anything is parsed
    fates: Mapping[str, int] = field(default_factory=dict)  # lines by schemas.search_log fate
    counts: Mapping[str, int] = field(default_factory=dict)
    first_ms: int | None = None
    last_ms: int | None = None
    sampled: bytes = b""


def add_up(tallies: Iterable[Tally]) -> Tally:
    """The tally of all parts together."""
    lines, fates, counts = 0, Counter[str](), Counter[str]()
    firsts, lasts, sampled = list[int](), list[int](), list[bytes]()
    for tally in tallies:
        lines += tally.lines
        fates.update(tally.fates)
        counts.update(tally.counts)
        firsts += [] if tally.first_ms is None else [tally.first_ms]
        lasts += [] if tally.last_ms is None else [tally.last_ms]
        sampled.append(tally.sampled)
    return Tally(
        lines=lines,
        fates=dict(fates),
        counts=dict(counts),
        first_ms=min(firsts, default=None),
        last_ms=max(lasts, default=None),
        sampled=b"".join(sampled),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """One try at a request, as its workers and its last step know it.

    `folder`: STORE/STAGE/DIGEST/ATTEMPT, where files have their final names. `scratch`: where rows wait between two
    steps, or None for the runner's own shuffle (arrow_files).
    """

    request: Request
    folder: str
    scratch: str | None
    num_buckets: int
    started: float  # seconds since the epoch

    @property
    def made(self) -> str:
        """Where workers write, under names of their own, until the last step chooses."""
        return scratch_folder(self.folder)

    @property
    def told(self) -> str:
        """Where workers note their progress."""
        return storage.join(self.scratch or self.made, "progress")

    def has_committed(self) -> bool:
        """Whether this or another attempt at the request has ended."""
        return storage.exists(storage.join(self.folder.rpartition("/")[0], manifest.FILE_NAME))

    def commit(self, outcome: Outcome) -> None:
        """Write the manifest. Raises StageError where the ledger does not add up."""
        folder, _, name = self.folder.rpartition("/")
        stage.commit(folder, self.request, name, outcome, self.started)


class BeamJob(Protocol):
    """What an attempt does on Beam."""

    @property
    def steps(self) -> Mapping[str, int]:
        """The total of each step that its functions `advance` (progress)."""
        ...

    def build(self, pipeline: "beam.Pipeline") -> None:
        """The whole graph; its last step commits the attempt."""
        ...


def run_beam_stage(
    store: str,
    request: Request,
    job_of: Callable[[Attempt], BeamJob],
    *,
    module: str,
    input_bytes: int,
    worth_bytes: int = WORTH_PROCESSES_BYTES,
    beam_options: Sequence[str],
    progress: Progress,
) -> StageResult:
    """The output of a request, reused if it is there, made on Beam if not.

    `job_of` is called once Beam is wanted, and may import it: that takes seconds. `module`: what it imports, for worker
    processes of this machine to import meanwhile. `input_bytes`: uncompressed; from `worth_bytes` on a job without
    options about its runner takes a process for each core. Raises what the job raises (beam_engine), and StageError
    where the store cannot be written.
    """

    def produce(folder: str) -> None:
        options = with_local_workers(beam_options, input_bytes, worth_bytes)
        with (
            forked_workers_if_asked(options, module) as workers,
            exchange_scratch(options, scratch_folder(folder)) as scratch,
        ):
            from beam_jobs.engine.beam_engine import run_pipeline
            from beam_jobs.engine.exchange import num_buckets_for

            attempt = Attempt(
                request=request,
                folder=folder,
                scratch=scratch,
                num_buckets=num_buckets_for(input_bytes),
                started=time.time(),
            )
            job = job_of(attempt)
            with listening(progress, job.steps, attempt.told):
                run_pipeline(
                    job.build,
                    options,
                    job=EngineJob(store=store, request=request),
                    progress=progress,
                    workers=workers,
                )

    with explained(store):
        return run_stage(store, request, produce, progress)
