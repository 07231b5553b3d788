"""Which dates a backfill runs, how far each, and what it does about one that fails."""

import pytest

from clicktower.flows.commands.pipelines import dates, require_date_in_log, run_dates
from clicktower.schemas.errors import StageError, UsageError

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
    assert "logs/2026-09-02" in done[1].found
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
