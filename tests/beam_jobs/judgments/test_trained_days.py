import pytest

from clicktower.beam_jobs.judgments.judgments_stage import refuse_trained_days, span
from clicktower.schemas.errors import StageError
from clicktower.schemas.manifest import Outcome, Request
from clicktower.schemas.stage import StageResult, run_stage


def ingest(store, log: str, date: str | None, first: str | None, last: str | None) -> StageResult:
    request = Request(stage="ingest", stage_version=1, config={"date": date}, inputs={"logs": [log]})
    metrics = {"first_time": first, "last_time": last}
    return run_stage(str(store), request, lambda _: Outcome(metrics=metrics))


def built_from(store, *days: StageResult) -> str:
    inputs = {"days": sorted(day.manifest.digest for day in days)}
    request = Request(stage="build", stage_version=1, config={}, inputs=inputs)
    return run_stage(str(store), request, lambda _: Outcome()).folder


@pytest.fixture
def build_of_two_days(tmp_path):
    one = ingest(tmp_path, "a", "2026-09-01", "2026-09-01T00:00:05.000+00:00", "2026-09-01T23:00:00.000+00:00")
    two = ingest(tmp_path, "b", "2026-09-02", "2026-09-02T00:10:00.000+00:00", "2026-09-02T22:00:00.000+00:00")
    assert span([two, one]) == {
        "first_time": "2026-09-01T00:00:05.000+00:00",
        "last_time": "2026-09-02T22:00:00.000+00:00",
    }
    return built_from(tmp_path, one, two)


@pytest.mark.parametrize(
    ("log", "date", "first", "found"),
    [
        ("b", None, None, "was made from a log file of"),
        ("c", "2026-09-02", None, "was made from 2026-09-02, the date of"),
        (
            "c",
            None,
            "2026-09-02T21:00:00.000+00:00",
            "until 2026-09-02T22:00:00.000.00:00, and the judgments would begin",
        ),
        ("c", "2026-08-01", "2026-08-01T10:00:00.000+00:00", "would begin at 2026-08-01"),
    ],
)
def test_days_that_overlap_or_are_no_later_are_refused(tmp_path, build_of_two_days, log, date, first, found):
    with pytest.raises(StageError, match=found):
        refuse_trained_days(build_of_two_days, [ingest(tmp_path / "other", log, date, first, first)])


def test_later_days_pass_and_so_do_days_whose_ingests_are_gone(tmp_path, build_of_two_days):
    later = ingest(tmp_path, "c", "2026-09-03", "2026-09-03T00:00:00.000+00:00", "2026-09-03T20:00:00.000+00:00")
    refuse_trained_days(build_of_two_days, [later])
    alone = built_from(tmp_path / "elsewhere", later)
    same_date = ingest(tmp_path / "third", "d", "2026-09-03", None, None)
    refuse_trained_days(alone, [same_date])  # nothing tells the build's dates any more
    with pytest.raises(StageError, match="as well"):
        refuse_trained_days(alone, [later])  # but its digests it knows
