"""Which dates a backfill runs, how far each, and what it does about one that fails."""

from datetime import date

import pytest

from clicktower.flows.cli import run
from clicktower.flows.commands.backfill import dates, missing_dates, require_date_in_log, run_dates
from clicktower.flows.config.pipeline_config import read_pipeline
from clicktower.schemas.day_version import FIRST, DayPart, DayVersion, write_version
from clicktower.schemas.errors import StageError, UsageError

TODAY = date(2026, 9, 8)
DAYS = ["2026-09-01", "2026-09-02", "2026-09-03"]


class Flow:
    """Takes note of what it is asked to run; the log of some dates is missing."""

    def __init__(self, *missing: str) -> None:
        self.missing, self.asked, self.store = missing, [], set()

    def __call__(self, date: str, until: str) -> dict:
        self.asked.append((date, until))
        if date in self.missing:
            raise UsageError(f"Nothing is at logs/{date}.", "Check the paths.")
        reused, _ = date in self.store, self.store.add(date)
        later = {"build": {"reused": False}} if until == "report" else {}
        return {"ingest": {"reused": reused}, **later, **({"report": "report.html"} if later else {})}


def test_dates_go_over_the_end_of_a_month_and_a_leap_day():
    assert dates("2028-02-28", "2028-03-01") == ["2028-02-28", "2028-02-29", "2028-03-01"]
    assert dates("2026-09-01", "2026-09-01") == ["2026-09-01"]


@pytest.mark.parametrize(("first", "until"), [("2026-09-02", "2026-09-01"), ("yesterday", "2026-09-01")])
def test_dates_that_are_none_or_go_backwards_are_refused(first, until):
    with pytest.raises(UsageError):
        dates(first, until)


def test_every_date_is_ingested_in_order_and_only_the_last_goes_on():
    flow = Flow()
    assert [one.state for one in run_dates(DAYS, flow)] == ["done", "done", "done"]
    assert flow.asked == [(DAYS[0], "ingest"), (DAYS[1], "ingest"), (DAYS[2], "report")]


def test_every_does_the_whole_of_each_and_ingest_only_of_none():
    flow = Flow()
    run_dates(DAYS, flow, every=True)
    assert [until for _, until in flow.asked] == ["report"] * 3
    flow = Flow()
    run_dates(DAYS, flow, ingest_only=True)
    assert [until for _, until in flow.asked] == ["ingest"] * 3


def test_a_date_that_fails_is_told_the_later_are_ingested_and_nothing_is_made_until_it_is_mended():
    flow, output = Flow(DAYS[1]), []
    done = run_dates(DAYS, flow, ended=output.append)
    assert [one.state for one in done] == ["done", "failed", "waiting"]
    assert "logs/2026-09-02" in done[1].error
    assert output == done
    assert flow.asked[-1] == (DAYS[2], "ingest")

    flow.missing = ()
    assert [one.state for one in run_dates(DAYS, flow)] == ["reused", "done", "done"]
    assert flow.asked[-1] == (DAYS[2], "report")


def test_what_is_no_error_of_a_stage_ends_the_run_dates():
    def broken(date: str, until: str) -> dict:
        raise RuntimeError("a defect")

    with pytest.raises(RuntimeError):
        run_dates(DAYS, broken)
    with pytest.raises(StageError, match=r"every date would be the same log."):
        require_date_in_log(("logs/*.gz",), "pipeline.toml")


PIPELINE = """
store = "store"
[log]
files = ["logs/{date}/*.gz"]
[documents]
file = "documents.tsv"
[judgments]
queries = "queries.tsv"
qrels = "qrels.txt"
"""


def test_missing_are_the_holes_of_a_store_whose_logs_came_late_and_then_its_newest_date(tmp_path, capsys):
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    config = read_pipeline(str(tmp_path / "pipeline.toml"))
    assert missing_dates(config, ingest_only=False, today=TODAY) == []
    for day in (1, 4, 6):
        part = DayPart(ingest="a", logs=("log",), person_key="key", settings="b")
        write_version(
            config.store,
            DayVersion(date=f"2026-09-0{day}", version=1, parts=(part,), because=FIRST, created="2026-09-09T00:00:00"),
        )
    assert missing_dates(config, ingest_only=False, today=TODAY) == []
    assert "4 dates no log yet: 2026-09-02, 2026-09-03, 2026-09-05, 2026-09-07" in " ".join(
        capsys.readouterr().err.split()
    )
    for day in (2, 5, 7):
        (tmp_path / f"logs/2026-09-0{day}").mkdir(parents=True)
        (tmp_path / f"logs/2026-09-0{day}/a.gz").touch()
    assert missing_dates(config, ingest_only=False, today=TODAY) == [
        "2026-09-02", "2026-09-05", "2026-09-06", "2026-09-07",
    ]  # fmt: skip
    assert missing_dates(config, ingest_only=True, today=TODAY) == ["2026-09-02", "2026-09-05", "2026-09-07"]


@pytest.mark.parametrize(
    "which", [(), ("--from", "2026-09-01"), ("--missing", "--from", "2026-09-01"), ("--missing", "--every")]
)
def test_a_backfill_needs_dates_or_the_missing(tmp_path, which, capsys):
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    assert run(["backfill", str(tmp_path / "pipeline.toml"), *which]) == 2
    assert "--missing" in capsys.readouterr().err
