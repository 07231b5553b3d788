"""The figures of a run as Prometheus reads them, by its own parser."""

import time
from datetime import UTC, datetime

import pytest
from prometheus_client.parser import text_string_to_metric_families

from clicktower.flows import chain, metrics
from clicktower.flows.config.pipeline_config import read_pipeline
from clicktower.flows.releases.publish import publish
from clicktower.schemas.errors import StageError, UsageError
from tests.flows.releases.catalogue import CONFIG, write_documents
from tests.flows.test_chain import PIPELINE
from tests.trained_model import trained_stage

RESULTS = {
    "ingest": {
        "ledger": {"total": 10, "lines": {"repeat": 2, "unreadable_not_json": 1, "day_search": 7}},
        "reused": True,
        "duration_seconds": 1.5,
    },
    "evaluate": {"metrics": {"systems": {"model": {"ndcg@10": {"mean": 0.5}}, "bm25": {"ndcg@10": {"mean": 0.25}}}},
                 "reused": False, "duration_seconds": 2.0},
    "publish": {"metrics": {"live": False}, "reused": False, "duration_seconds": None},
    "drift": [{"alarm": "lines of the log: far fewer"}, {"alarm": ""}],
}  # fmt: skip


@pytest.fixture
def config(tmp_path):
    text = (
        'title = "my shop"\n'
        + PIPELINE.format(train="").replace("log.nd", "{date}.nd")
        + '[metrics]\ntextfile = "metrics/clicktower.prom"\n'
    )
    (tmp_path / "pipeline.toml").write_text(text)
    return read_pipeline(str(tmp_path / "pipeline.toml"))


def read(tmp_path) -> dict[tuple[str, ...], float]:
    """Every figure by its name and the values of its labels, but for `pipeline`."""
    families = list(text_string_to_metric_families((tmp_path / "metrics/clicktower.prom").read_text()))
    assert {family.type for family in families} == {"gauge"}
    samples = [sample for family in families for sample in family.samples]
    assert {sample.labels.pop("pipeline") for sample in samples} == {"my shop"}
    return {(s.name.removeprefix("clicktower_"), *s.labels.values()): s.value for s in samples}


def test_a_file_holds_the_figures_of_a_run_and_how_fresh_what_is_live_is(tmp_path, config):
    (tmp_path / "store/observed").mkdir(parents=True)
    (tmp_path / "store/observed/a.json").write_bytes(b"12345")
    documents = write_documents(tmp_path / "documents.tsv")
    live = publish(trained_stage(str(tmp_path / "other")), documents=documents, to=config.publish.to, config=CONFIG)
    before = time.time()
    with metrics.measured(config, "2026-09-01", RESULTS):
        pass
    seen = read(tmp_path)
    assert seen["log_lines",] == 10
    assert (seen["log_rejected_lines", "dropped"], seen["log_rejected_lines", "unreadable"]) == (2, 1)
    assert (seen["ndcg", "ndcg@10", "model"], seen["ndcg", "ndcg@10", "bm25"]) == (0.5, 0.25)
    assert seen["stage_duration_seconds", "ingest"] == 1.5
    assert (seen["stage_reused", "ingest"], seen["stage_reused", "evaluate"]) == (1, 0)
    assert ("stage_duration_seconds", "publish") not in seen
    assert (seen["drift_alarms",], seen["release_promoted",], seen["run_success",]) == (1, 0, 1)
    assert seen["data_timestamp_seconds",] == datetime(2026, 9, 1, tzinfo=UTC).timestamp()
    assert seen["live_since_timestamp_seconds",] == datetime.fromisoformat(live.pointer.swapped).timestamp()
    assert seen["live_release_timestamp_seconds",] == datetime.fromisoformat(live.release.created).timestamp()
    assert before <= seen["run_end_timestamp_seconds",] <= time.time()
    assert seen["store_bytes", "observed"] == 5
    assert [path.name for path in (tmp_path / "metrics").iterdir()] == ["clicktower.prom"], "no half-written file"


def test_a_run_that_fails_says_so_with_what_is_known(tmp_path, config):
    with pytest.raises(StageError), metrics.measured(config, "2026-09-01", {"ingest": RESULTS["ingest"]}):
        raise StageError("The log is damaged.", "Bring it back.")
    seen = read(tmp_path)
    assert (seen["run_success",], seen["log_lines",]) == (0, 10)
    assert ("ndcg", "ndcg@10", "model") not in seen
    assert ("live_since_timestamp_seconds",) not in seen


def test_a_run_writes_it_even_if_no_stage_began_and_a_backfill_s_ingest_does_not(tmp_path, config):
    with pytest.raises(UsageError, match="Nothing is at"):
        chain.run(config, "2026-09-01", "ingest")
    assert not (tmp_path / "metrics").exists()
    with pytest.raises(UsageError, match="Nothing is at"):
        chain.run(config, "2026-09-01")
    assert read(tmp_path)["run_success",] == 0


def test_the_settings_of_retention_are_refused_where_they_would_cut_a_window(tmp_path):
    text = PIPELINE.format(train="").replace("log.ndjson", "{date}.ndjson") + "[window]\nlast = 30\n[keep]\ndays = 29\n"
    (tmp_path / "pipeline.toml").write_text(text)
    with pytest.raises(UsageError, match="days = 29 removes days that the window of the last 30 takes"):
        read_pipeline(str(tmp_path / "pipeline.toml"))
    (tmp_path / "pipeline.toml").write_text(text.replace("29", "30"))
    assert read_pipeline(str(tmp_path / "pipeline.toml")).keep.models == 5
