"""The figures of a run for Prometheus: a file that node_exporter's textfile collector reads (`[metrics] textfile`).

Each run replaces the file in one step, a failed run too. Every figure is a gauge with the label `pipeline`, the title
of the run, so that the files of several pipelines can be collected together.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from clicktower.flows.config.pipeline_config import PipelineConfig, is_dated
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.ledger import Ledger
from clicktower.schemas.release import read_pointer, read_release

_ABOUT = {
    "run_success": "1 if the run ended well, 0 if it failed",
    "run_end_timestamp_seconds": "when the run ended",
    "run_duration_seconds": "how long the run took",
    "data_timestamp_seconds": "the beginning of the day whose log the run read, if it has a date",
    "stage_duration_seconds": "how long the output of a stage took to make, whenever that was",
    "stage_reused": "1 if the output of a stage was there already",
    "log_lines": "lines of the log",
    "log_rejected_lines": "lines of the log that were dropped by a rule, or could not be read",
    "ndcg": "mean over the judged queries, by measure, of the model and the baselines",
    "drift_alarms": "figures of the run that are out of the usual",
    "release_promoted": "1 if the release of the run is live, 0 if it was kept as a candidate",
    "live_release_timestamp_seconds": "when the live release was made",
    "live_since_timestamp_seconds": "when the live release went live",
    "store_bytes": "bytes of the store, by the stage that wrote them",
}


@contextmanager
def measured(config: PipelineConfig, date: str, results: Mapping[str, Any]) -> Iterator[None]:
    """Within, a run fills `results`; its figures are written when it ends, in whatever way."""
    started, is_good = time.time(), False
    try:
        yield
        is_good = True
    finally:
        write(config, date, results, started=started, is_good=is_good)


def write(config: PipelineConfig, date: str, results: Mapping[str, Any], *, started: float, is_good: bool) -> None:
    """Write the figures of a run that began at `started` (seconds since the epoch). Raises OSError."""
    assert config.metrics
    registry, gauges = CollectorRegistry(), dict[str, Gauge]()

    def put(name: str, value: float, **labels: str) -> None:
        if name not in gauges:
            gauges[name] = Gauge(f"clicktower_{name}", _ABOUT[name], ["pipeline", *labels], registry=registry)
        gauges[name].labels(pipeline=config.title, **labels).set(value)

    now = time.time()
    put("run_success", is_good)
    put("run_end_timestamp_seconds", now)
    put("run_duration_seconds", now - started)
    if is_dated(config):
        put("data_timestamp_seconds", datetime.fromisoformat(date).replace(tzinfo=UTC).timestamp())
    for stage, result in results.items():
        if isinstance(result, Mapping) and "reused" in result:
            put("stage_reused", result["reused"], stage=stage)
            if result.get("duration_seconds") is not None:
                put("stage_duration_seconds", result["duration_seconds"], stage=stage)
    _put_results(put, results)
    with suppress(StageError):  # nothing is live, or it cannot be read
        pointer, release = read_pointer(config.publish.to), read_release(config.publish.to)[1]
        if pointer:
            put("live_since_timestamp_seconds", datetime.fromisoformat(pointer.swapped).timestamp())
            put("live_release_timestamp_seconds", datetime.fromisoformat(release.created).timestamp())
    num_bytes = dict[str, int]()
    for path, size in storage.list_sizes(config.store).items():
        stage = path.partition("/")[0]
        num_bytes[stage] = num_bytes.get(stage, 0) + size
    for stage, size in num_bytes.items():
        put("store_bytes", size, stage=stage)
    Path(config.metrics.textfile).parent.mkdir(parents=True, exist_ok=True)
    write_to_textfile(config.metrics.textfile, registry)


def _put_results(put: Any, results: Mapping[str, Any]) -> None:
    if "ingest" in results:
        ledger = Ledger(**results["ingest"]["ledger"])
        put("log_lines", ledger.total)
        for kind in ("dropped", "unreadable"):
            put("log_rejected_lines", ledger.of_kind(kind), kind=kind)
    if "evaluate" in results:
        for system, measures in results["evaluate"]["metrics"]["systems"].items():
            for measure, value in measures.items():
                if isinstance(value, Mapping) and value.get("mean") is not None:
                    put("ndcg", value["mean"], system=system, measure=measure)
    if "drift" in results:
        put("drift_alarms", sum(bool(row["alarm"]) for row in results["drift"]))
    if "publish" in results:
        put("release_promoted", results["publish"]["metrics"]["live"])
