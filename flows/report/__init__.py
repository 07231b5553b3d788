"""report.html of a run: one file that explains itself, without anything to load from elsewhere."""

from flows.report.run_page import write_report
from flows.report.summary import Example, RankedTitle, RunSummary, StageSummary, TrainingSummary

__all__ = ["Example", "RankedTitle", "RunSummary", "StageSummary", "TrainingSummary", "write_report"]
