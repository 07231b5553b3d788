"""Times and ranks: what is done to whole columns is what is said of one value."""

from datetime import UTC, date, datetime
from typing import get_args

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clicktower.beam_jobs.sources.log_rows import position_of, positions, time_of, times
from clicktower.beam_jobs.sources.mapping import TimeFormat

PLAIN = ["2026-09-01T10:00:00.123Z", "2026-09-01 10:00:00Z", "2026-09-01T10:00Z", "2026-09-01T10:00:00+02:00"]
ODD = ["2026-09-01T10Z", "2026-09-01T100000Z", "0000-01-01T00:00:00Z", "2026-02-29T00:00:00Z", "2026-09-01T24:00:00Z",
       "2026-09-01T23:59:60Z", "2026-09-01T10:00:00.123456Z", "2026-09-01T10:00:00", "2026-09-01 10:00", "2026-09-01",
       "20260901", "2026-W36-2", "1725541171702", "9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+05:00", "x", ""]  # fmt: skip  # noqa: E501


@st.composite
def _mutated(draw):
    text = list(draw(st.sampled_from(PLAIN + ODD)) or "x")
    for _ in range(draw(st.integers(0, 2))):
        text[draw(st.integers(0, len(text) - 1))] = draw(st.sampled_from("0123456789-:+.TZ tz٣"))
    return "".join(text)


VALUES = st.none() | st.sampled_from(PLAIN) | st.sampled_from(ODD) | _mutated()
NUMBERS = st.integers(-(2**70), 2**70) | st.integers(0, 2 * 10**12) | st.floats() | st.floats(0, 2e12)
TEXTS_OF_NUMBERS = st.from_regex(r"-?[0-9]{1,20}(\.[0-9]{1,3})?", fullmatch=True)


def _one(value, time_format):
    if value is None or value == "":
        return None
    try:
        return time_of(value, time_format)
    except (ValueError, TypeError, OverflowError):
        return "bad"


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(PLAIN), max_size=5) | st.lists(VALUES, max_size=8) | st.lists(VALUES | NUMBERS, max_size=5)
    | st.lists(TEXTS_OF_NUMBERS | st.none(), max_size=5) | st.lists(st.integers(0, 2 * 10**12) | st.none(), max_size=5),
    st.sampled_from(get_args(TimeFormat)),
)  # fmt: skip
@example(["0000-01-01T00:00:00Z"], "iso")
@example(["2026-09-01T10:00:00Z", "2026-09-01T10:00:00"], "iso")
@example([2**63, None], "epoch_s")
@example([253_402_300_800], "epoch_s")
def test_a_column_of_times_is_its_values_one_by_one(values, time_format):
    found, is_bad = times(values, time_format)
    assert found.type == pa.timestamp("ms", tz="UTC")
    one_by_one = ["bad" if bad else ms for ms, bad in zip(found.cast(pa.int64()).to_pylist(), is_bad, strict=True)]
    assert one_by_one == [_one(value, time_format) for value in values]


@pytest.mark.parametrize(
    ("value", "time_format", "milliseconds"),
    [
        ("1970-01-01T00:00:01.5Z", "iso", 1500),
        ("1970-01-01 00:00:01", "iso", 1000),  # no zone is UTC
        (1500, "iso", 1500),
        ("1725541171702", "iso", 1725541171702),
        (1.001, "epoch_s", 1001),  # 1.001 is a little less than that in binary
        ("-1.5", "epoch_s", -1500),
        (1725541171, "epoch_s", 1725541171000),
        ("12", "epoch_ms", 12),
        (12.7, "epoch_ms", 12),
    ],
)
def test_times_by_hand(value, time_format, milliseconds):
    assert time_of(value, time_format) == milliseconds


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_arrow_timestamps_keep_their_moment_and_dates_begin_at_midnight(unit):
    moment = datetime(2026, 9, 1, 10, tzinfo=UTC)
    for zone in (None, "UTC", "Europe/Berlin"):
        column = pa.array([moment, None], pa.timestamp(unit, tz="UTC")).cast(pa.timestamp(unit, tz=zone))
        found, is_bad = times(column, "iso")
        assert found.to_pylist() == [moment, None]
        assert not is_bad.any()
    days, _ = times(pa.array([date(2026, 9, 1)]), "iso")
    assert days.to_pylist() == [datetime(2026, 9, 1, tzinfo=UTC)]


def test_arrow_timestamps_beyond_the_year_9999_are_no_times():
    found, is_bad = times(pa.array([2**62, -(2**62), 0], pa.timestamp("s")), "iso")
    assert is_bad.tolist() == [True, True, False]
    assert found.null_count == 2


@settings(deadline=None)
@given(st.lists(st.none() | NUMBERS | TEXTS_OF_NUMBERS | st.sampled_from(["", "3", "3.0", "x", "٣"]), max_size=6))
def test_a_column_of_ranks_is_its_values_one_by_one(values):
    found, is_bad = positions(values)
    for value, rank, bad in zip(values, found.to_pylist(), is_bad, strict=True):
        try:
            expected = -1 if value in (None, "") else position_of(value)
        except (ValueError, OverflowError):
            assert bad
        else:
            assert (rank, bad) == (expected, False)
