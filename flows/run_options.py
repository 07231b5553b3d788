"""What a pipeline may ask of a run besides its stages: to wait for a late log, to start a training from the live model,
and after it MLflow and the removal of what the store need not keep.
"""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

from clicktower.beam_jobs.ingest.days import parse_date
from clicktower.flows import retention, tracking
from clicktower.flows.config.pipeline_config import LateLog, PipelineConfig, is_dated, require_log
from clicktower.flows.show import present
from clicktower.flows.show.console import progress_bar
from clicktower.flows.show.store_results import pruned_headline
from clicktower.schemas import manifest, storage
from clicktower.schemas.release import read_pointer, read_release
from clicktower.schemas.stage import Progress, is_planning, open_result

LOOK_SECONDS = 20.0  # between two looks for a log


def wait_for_log(config: PipelineConfig, date: str, minutes: float) -> None:
    """Wait until the log of a date is there. Raises LateLog after so many minutes."""
    begun = time.monotonic()
    with ExitStack() as bar:
        progress: Progress | None = None
        while True:
            try:
                return require_log(config, date)
            except LateLog as late:
                waited = (time.monotonic() - begun) / 60
                if waited >= minutes:
                    raise
                progress = progress or bar.enter_context(progress_bar("log"))
                progress(f"waiting, in minutes. {late.problem}", int(waited), round(minutes))
                time.sleep(min(LOOK_SECONDS, 60 * (minutes - waited)))


def track(config: PipelineConfig, results: dict) -> None:
    """The model in MLflow, with its NDCG and the report."""
    assert config.mlflow
    measures = results["evaluate"]["metrics"]["systems"]["model"]
    figures = {name: value["mean"] for name, value in measures.items() if value["mean"] is not None}
    tracking.track(config.mlflow, [results["train"]["path"]], figures=figures, page=config.report)
    present.stage_line("mlflow", config.mlflow)


def prune(config: PipelineConfig, results: Mapping[str, Any], date: str) -> dict:
    """What went from the store by [keep]. What this run made and read stays, as does the window up to its date."""
    assert config.keep
    outputs = {result["digest"] for result in results.values() if isinstance(result, Mapping)}
    named = [config.train.start, config.train.teacher, config.train.word_vectors]
    needed = outputs | {name.rstrip("/").rsplit("/", 1)[-1] for name in named if name}
    window = {date}
    if is_dated(config) and config.window.last:
        until = parse_date(date)
        window = {(until - timedelta(days=number)).isoformat() for number in range(config.window.last)}
    releases = [config.publish.to]
    pruned = retention.prune(config.store, config.keep, releases=releases, needed=needed, dates=window).to_json()
    present.stage_line("prune", pruned_headline(pruned))
    return pruned


def live_start(config: PipelineConfig, shards: dict) -> str | None:
    """The training whose model is live, to start from; None for random numbers, and a note says why.

    If the live model was itself trained on these shards, it is the training that that one started from: a run that is
    repeated after its release went live requests the same model again.
    """
    folder, missing = _live_training(config, shards)
    if folder is None and not is_planning():
        present.note("train", f'start = "live": {missing}, so this training starts from random numbers')
    return folder


def _live_training(config: PipelineConfig, shards: dict) -> tuple[str | None, str]:
    """(its folder if it exists; otherwise why there is none)."""
    if read_pointer(config.publish.to) is None:
        return None, "nothing is live yet"
    folder = _training(config, read_release(config.publish.to)[1].inputs["model"])
    if folder is None:
        return None, "the training of the live model is not in the store"
    inputs = open_result(folder).manifest.request.inputs
    if inputs.get("shards") != shards["digest"]:
        return folder, ""
    if not inputs.get("start"):
        return None, "the live model was trained on these very shards, from random numbers too"
    missing = "the live model was trained on these very shards, and what it started from is not in the store"
    return _training(config, inputs["start"]), missing


def _training(config: PipelineConfig, digest: str | None) -> str | None:
    """The folder of a training in the store, if it exists. A stranger's record may hold any text for a digest."""
    if not digest or not digest.isalnum():
        return None
    folder = storage.join(config.store, "train", digest)
    return folder if storage.exists(storage.join(folder, manifest.FILE_NAME)) else None
