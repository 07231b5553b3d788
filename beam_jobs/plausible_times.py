"""Clocks that are wrong: lines whose time cannot be of the day that the log is of, and lines from the future."""

from datetime import UTC, datetime, time, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from beam_jobs.windows import parse_date

# A day of a shop's own time zone, with its sessions over midnight and its late flushes, lies within these.
BEFORE, AFTER = timedelta(days=1), timedelta(days=2)


def plausible_rows(rows: pa.RecordBatch, date: str | None) -> pa.RecordBatch:
    """The LOG_ROW rows whose time may be of a date: within [date - 1 day, date + 2 days) in UTC, or unknown.

    Without a date all of them: what is implausible would depend on the hour at which the log is read.
    """
    if date is None:
        return rows
    begin = datetime.combine(parse_date(date), time(), UTC)
    moment = rows["time"].cast(pa.int64())
    first, last = (round((begin + shift).timestamp() * 1000) for shift in (-BEFORE, AFTER))
    fits = pc.and_(pc.greater_equal(moment, first), pc.less(moment, last))
    return rows.filter(fits.fill_null(True))


def count_later(rows: pa.RecordBatch, started: float) -> int:
    """How many rows are of a time after `started` (seconds since the epoch)."""
    return pc.sum(pc.greater(rows["time"].cast(pa.int64()), round(started * 1000))).as_py() or 0
