"""Clocks that are wrong: far from the day of the log, or in the future."""

import time
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from clicktower.beam_jobs.ingest.ingest_job import count_later, plausible_rows
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.flows.show.present import notes
from clicktower.schemas.errors import StageError, UsageError
from tests.beam_jobs.ingest.dated_logs import write_lines
from tests.beam_jobs.sources.ubi_lines import event, search


def _rows(*times):
    return pa.record_batch([pa.array(times, pa.timestamp("ms", tz="UTC"))], ["time"])


def test_a_day_reaches_from_the_day_before_it_to_the_end_of_the_day_after_it():
    kept = [
        datetime(2026, 8, 31, tzinfo=UTC),
        datetime(2026, 9, 1, 12, tzinfo=UTC),
        datetime(2026, 9, 2, 23, 59, 59, 999_000, tzinfo=UTC),
        None,  # nothing speaks against it
    ]
    gone = [
        datetime(2026, 8, 30, 23, 59, 59, 999_000, tzinfo=UTC),
        datetime(2026, 9, 3, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2036, 9, 1, tzinfo=UTC),
    ]
    rows = _rows(*kept, *gone)
    assert plausible_rows(rows, "2026-09-01")["time"].to_pylist() == kept
    assert plausible_rows(rows, None).equals(rows)


def test_later_rows_are_counted_and_those_without_a_time_are_not():
    now = time.time()
    moment = datetime.fromtimestamp(now, UTC)
    assert count_later(_rows(moment + timedelta(seconds=1), moment - timedelta(seconds=1), None), now) == 1
    assert count_later(_rows(), now) == 0


LINES = [
    search("a", "hose", "ann"),
    event("a", "click", "d1", 1, "ann", time="2026-09-02T00:10:00.000Z"),  # the session went on over midnight
    event("a", "click", "d2", 2, "ann", time="2099-01-01T00:00:00.000Z"),  # far in the future
    search("b", "hose", "ben", time="2001-01-01T00:00:00.000Z"),  # a clock that was never set
    event("b", "click", "d1", 1, "ben"),  # so its search is gone
    search("c", "hose", "cat", time=None),
]


def test_implausible_lines_of_a_dated_log_have_a_fate_of_their_own(tmp_path):
    log = write_lines(tmp_path / "log.ndjson", LINES)
    result = ingest_log([log], store=str(tmp_path / "store"), config=IngestConfig(date="2026-09-01"))
    ledger = result.manifest.outcome.ledger
    assert ledger.total == 6
    assert ledger.lines == {"day_search": 2, "day_click": 1, "time_implausible": 2, "search_unknown": 1}
    metrics = result.manifest.outcome.metrics
    assert metrics["last_time"] == "2026-09-02T00:10:00.000+00:00"
    assert metrics["later_than_ingest_share"] == 0
    assert notes(result.to_json()) == []


@pytest.mark.slow
def test_lines_of_the_future_in_an_undated_log_are_kept_and_told(tmp_path):
    log = write_lines(tmp_path / "log.ndjson", LINES)
    result = ingest_log([log], store=str(tmp_path / "store"), config=IngestConfig())
    assert "time_implausible" not in result.manifest.outcome.ledger.lines
    assert result.manifest.outcome.metrics["later_than_ingest_share"] == pytest.approx(1 / 6)
    assert notes(result.to_json()) == [
        "16.67% of the lines are of a time after this ingest began: a clock is wrong somewhere"
    ]


@pytest.mark.parametrize("wrong", ["2026-13-01", "01.09.2026", "20260901", "today", ""])
def test_a_date_of_another_form_is_wrong_usage(wrong):
    with pytest.raises(UsageError, match=r"Write year, month and day with hyphens."):
        IngestConfig(date=wrong)


def test_a_log_of_another_day_than_was_said_is_refused_and_nothing_is_kept(tmp_path):
    log = write_lines(tmp_path / "log.ndjson", LINES)
    with pytest.raises(StageError) as raised:
        ingest_log([log], store=str(tmp_path / "store"), config=IngestConfig(date="2025-09-01"))
    assert "The times of 5 of the log's 6 lines are far from" in str(raised.value)
    assert not list((tmp_path / "store").rglob("manifest.json"))
    assert not list((tmp_path / "store" / "days").rglob("*.json"))
