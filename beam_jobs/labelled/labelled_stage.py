"""The stage build-labelled: labelled files -> labelled shards. What Beam does for it is in labelled_job.

build_labelled(["pairs.tsv"], store="store", config=LabelledConfig(mapping=...))
"""

from collections.abc import Sequence
from dataclasses import dataclass

from beam_jobs.engine.beam_stage import run_beam_stage
from beam_jobs.labelled.labelled_rows import LabelledConfig, labelled_request, labelled_source
from beam_jobs.sources.read_lines import Unit
from schemas.stage import Progress, StageResult, silent

__all__ = ["LabelledConfig", "build_labelled"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """What one worker reads in one go; `dev`: of the dev file."""

    unit: Unit
    dev: bool


def build_labelled(
    files: Sequence[str],
    *,
    store: str,
    config: LabelledConfig,
    dev: Sequence[str] = (),
    beam_options: Sequence[str] = (),
    progress: Progress = silent,
) -> StageResult:
    """The labelled shards of some files, in STORE/build-labelled/DIGEST.

    files, dev: paths, patterns or folders. With `dev` its lines are what is held out, and a line of `files` that has a
    sentence of it is left out; without, whole components of sentences are held out by a keyed hash. Raises UsageError
    and StageError: nothing to read, columns that are not there, too many unreadable lines, nothing left to train on or
    to hold out, one class only.
    """
    source = labelled_source(config)
    train_plan = source.plan(files)
    dev_plan = source.plan(dev) if dev else None
    dev_files = list(dev_plan.files) if dev_plan else []
    request = labelled_request(train_plan.files, dev_files, config)

    plans = [(train_plan, False), *([(dev_plan, True)] if dev_plan else [])]

    fields = {
        "config": config,
        "parts": tuple(Part(unit=unit, dev=is_dev) for each, is_dev in plans for unit in each.units),
        "stored_bytes": sum(each.stored_bytes for each, _ in plans),
        "has_dev_file": dev_plan is not None,
        "asked": f"labelled shards were to be built from {len(train_plan.files) + len(dev_files)} files",
    }
    return run_beam_stage(
        store,
        request,
        "beam_jobs.labelled.labelled_job.LabelledJob",
        fields,
        input_bytes=sum(each.estimated_bytes for each, _ in plans),
        beam_options=beam_options,
        progress=progress,
    )
