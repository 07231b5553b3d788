"""Times as logs write them -> milliseconds since 1970, UTC.

`time_of` defines the meaning of a value. A log whose times Arrow's parser reads by whole columns (log_rows.times) needs
none of this.

A bare number may be seconds, milliseconds, microseconds or nanoseconds since 1970, or a date and a time of day
without marks. No log of searches is older than 1990 or from after 2099, and within these years no number has two
readings, but for ten digits such as 2026090110, which would be an hour, and a second of 2034. Neither is assumed.
"""

import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import numpy as np
import pyarrow as pa

from clicktower.beam_jobs.sources.log_rows import (
    END_MS,
    FIRST_MS,
    HOURS,
    NUMBER,
    PER_SECOND,
    TIME,
    ImplausibleTime,
    number_in,
)

_COMPACT = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}  # by number of digits
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_FIRST = re.compile(r"\[?(\d\d?)/([A-Z][a-z]{2})/(\d{4}):(\d\d:\d\d:\d\d[^\s\]]*)\]?", re.ASCII)
_MONTH_FIRST = re.compile(r"([A-Z][a-z]{2})[a-z]* (\d\d?)(?:st|nd|rd|th)?, (\d{4}) @ (\d\d:\d\d\S*)", re.ASCII)
_YEAR_FIRST = re.compile(r"(\d{4})([-/])(\d\d?)\2(\d\d?)(?:[Tt ] *(\d\d?):(\S+))?", re.ASCII)
_OF_MAIL = re.compile(r"[A-Z][a-z]{2}, \d\d? [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d (?:[+-]\d{4}|GMT|UTC)", re.ASCII)
_REGION = re.compile(r"(?<=[0-9Zz])\[[A-Za-z_/]+\]$")  # beside an offset
_ZONE = re.compile(r" *(?:UTC|GMT|[zZ])$| +(?=[+-]\d\d)", re.ASCII)
_LEAP_SECOND = re.compile(r"(?<=[T ]\d\d:\d\d:)60(?=[.,Z+-]|$)", re.ASCII)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def time_of(value: str | int | float, time_format: str) -> int:
    """Milliseconds since 1970. Raises ImplausibleTime for a time outside the years 1990 to 2099, and ValueError,
    TypeError or OverflowError for anything but a time.

    iso: ISO 8601, UTC by default, also with slashes, and the forms of web servers (`01/Sep/2026:10:00:00 +0000`),
    Kibana (`Sep 1, 2026 @ 10:00:00.000`) and mail; a number, also as text, means what is plausible. The other formats:
    a number, also as text, in their unit. Fractions of a millisecond are cut off.
    """
    if time_format == "iso" and isinstance(value, str) and not NUMBER.fullmatch(value):
        moment, leap_seconds = _moment(value)
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
        milliseconds = (since.days * 86_400 + since.seconds + leap_seconds) * 1000 + since.microseconds // 1000
        if leap_seconds and milliseconds // 1000 % 86_400:
            raise ValueError("a leap second ends a day")
        return _plausible(milliseconds)
    number = number_in(value)
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    if time_format != "iso":
        return _plausible(_milliseconds(number, PER_SECOND[time_format]))
    for per_second in PER_SECOND.values():
        if FIRST_MS * per_second <= number * 1000 < END_MS * per_second:
            if per_second == 1 and int(number) in HOURS and _compact(int(number), "%Y%m%d%H") is not None:
                break
            return _milliseconds(number, per_second)
    form = _COMPACT.get(len(str(number)))
    day = _compact(number, form) if form and isinstance(number, int) else None
    if day is None:
        raise ImplausibleTime
    return _plausible(round((day - _EPOCH) / timedelta(milliseconds=1)))


def _plausible(milliseconds: int) -> int:
    if not FIRST_MS <= milliseconds < END_MS:
        raise ImplausibleTime
    return milliseconds


def _milliseconds(number: int | float, per_second: int) -> int:
    if isinstance(number, int):
        return number * 1000 // per_second
    # A float is cut at its shortest decimal form, not its binary one: 1.001 s is 1001 ms.
    return int(np.floor(round(number * 1000 / per_second, 3)))


def _compact(number: int, form: str) -> datetime | None:
    try:
        return datetime.strptime(str(number), form).replace(tzinfo=UTC)
    except ValueError:
        return None


def _moment(text: str) -> tuple[datetime, int]:
    """(a time in one of the forms; 1 if its leap second is still to be added, else 0). Raises ValueError."""
    if _OF_MAIL.fullmatch(text):
        return parsedate_to_datetime(text), 0
    text = _ZONE.sub(lambda zone: "" if zone[0].isspace() else "Z", _REGION.sub("", text))
    if match := _DAY_FIRST.fullmatch(text):
        day, month, year, clock = match.groups()
        text = f"{year}-{_MONTHS.index(month) + 1:02d}-{int(day):02d}T{clock}"
    elif match := _MONTH_FIRST.fullmatch(text):
        month, day, year, clock = match.groups()
        text = f"{year}-{_MONTHS.index(month) + 1:02d}-{int(day):02d}T{clock}"
    elif match := _YEAR_FIRST.fullmatch(text):
        year, _, month, day, hour, clock = match.groups()
        text = f"{year}-{int(month):02d}-{int(day):02d}" + (f"T{int(hour):02d}:{clock}" if hour else "")
    text, leap_seconds = _LEAP_SECOND.subn("59", text)
    return datetime.fromisoformat(text), leap_seconds


def arrow_times(column: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """The times of Arrow's own timestamps and dates, UTC if they have no zone, and whether each is implausible."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.date32()).cast(pa.timestamp("s"))
    is_valid = column.is_valid().to_numpy(zero_copy_only=False)
    count = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    if column.type.unit == "s":
        milliseconds = np.clip(count, -(2**52), 2**52) * 1000
    else:
        milliseconds = count // {"ms": 1, "us": 1000, "ns": 1_000_000}[column.type.unit]
    is_implausible = is_valid & ((milliseconds < FIRST_MS) | (milliseconds >= END_MS))
    return pa.array(milliseconds, pa.int64(), mask=~is_valid | is_implausible).cast(TIME), is_implausible
