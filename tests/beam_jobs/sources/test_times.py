"""Times and ranks: what is done to whole columns is what is said of one value."""

from datetime import UTC, date, datetime
from typing import get_args

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clicktower.beam_jobs.sources.log_rows import ImplausibleTime, position_of, positions, times
from clicktower.beam_jobs.sources.log_times import time_of
from clicktower.beam_jobs.sources.mapping import TimeFormat
from clicktower.schemas.text_contract import MARKS_OF_NOTHING

PLAIN = ["2026-09-01T10:00:00.123Z", "2026-09-01 10:00:00Z", "2026-09-01T10:00Z", "2026-09-01T10:00:00+02:00"]
ODD = ["2026-09-01T10Z", "2026-09-01T100000Z", "0000-01-01T00:00:00Z", "2026-02-29T00:00:00Z", "2026-09-01T24:00:00Z",
       "2026-09-01T23:59:60Z", "2026-09-01T10:00:00.123456Z", "2026-09-01T10:00:00", "2026-09-01 10:00", "2026-09-01",
       "20260901", "202609011000", "20260901100000", "2026090110", "2026-W36-2", "2026/09/01",
       "01/Sep/2026:10:00:00 +0000", "Sep 1, 2026 @ 10:00:00.000", "2026-09-01 10:00:00 UTC", "1725541171702", "9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+05:00", "x", ""]  # fmt: skip  # noqa: E501


@st.composite
def _mutated(draw):
    text = list(draw(st.sampled_from(PLAIN + ODD)) or "x")
    for _ in range(draw(st.integers(0, 2))):
        text[draw(st.integers(0, len(text) - 1))] = draw(st.sampled_from("0123456789-:+.TZ tz٣"))
    return "".join(text)


VALUES = st.none() | st.sampled_from(PLAIN) | st.sampled_from(ODD) | _mutated()
NUMBERS = st.integers(-(2**70), 2**70) | st.integers(0, 2 * 10**12) | st.floats() | st.floats(0, 2e12)
NUMBERS |= st.builds(
    lambda seconds, unit: seconds * unit, st.integers(0, 5 * 10**9), st.sampled_from([1, 1000, 10**6, 10**9])
)
TEXTS_OF_NUMBERS = st.from_regex(r"-?[0-9]{1,20}(\.[0-9]{1,3})?", fullmatch=True)


def _one(value, time_format):
    bare = value.strip() if isinstance(value, str) else value
    if value is None or bare in MARKS_OF_NOTHING or bare != bare:
        return None
    try:
        return time_of(bare, time_format)
    except ImplausibleTime:
        return "implausible"
    except (ValueError, TypeError, OverflowError):
        return "bad"


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(PLAIN), max_size=5) | st.lists(VALUES, max_size=8) | st.lists(VALUES | NUMBERS, max_size=5)
    | st.lists(TEXTS_OF_NUMBERS | st.none(), max_size=5)
    | st.integers(0, 9).flatmap(lambda zeros: st.lists(
        st.integers(10**9, 2 * 10**9).map(lambda seconds: seconds * 10**zeros) | st.none(), max_size=5)),
    st.sampled_from(get_args(TimeFormat)),
)  # fmt: skip
@example(["0000-01-01T00:00:00Z"], "iso")
@example(["2026-09-01T10:00:00Z", "2026-09-01T10:00:00"], "iso")
@example([2**63, None], "epoch_s")
@example([253_402_300_800], "epoch_s")
def test_a_column_of_times_is_its_values_one_by_one(values, time_format):
    found, is_bad, is_implausible = times(values, time_format)
    assert found.type == pa.timestamp("ms", tz="UTC")
    one_by_one = [
        "bad" if bad else "implausible" if implausible else ms
        for ms, bad, implausible in zip(found.cast(pa.int64()).to_pylist(), is_bad, is_implausible, strict=True)
    ]
    assert one_by_one == [_one(value, time_format) for value in values]


TEN = int(datetime(2026, 9, 1, 10, tzinfo=UTC).timestamp()) * 1000
MIDNIGHT = TEN - 10 * 3_600_000


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        ("2026-09-01T10:00:00.5Z", TEN + 500),
        ("2026-09-01 10:00:00", TEN),  # no zone is UTC
        ("2026-09-01t10:00:00z", TEN),
        ("2026-09-01 10:00:00 UTC", TEN),  # BigQuery
        ("2026-09-01 10:00:00.000 +0000", TEN),  # Snowflake
        ("2026-09-01 12:00:00.000 +0200", TEN),
        ("2026-09-01T12:00:00+02:00[Europe/Berlin]", TEN),  # Java
        ("2026-09-01 10:00:00,123", TEN + 123),
        ("2026-09-01T10:00:00.123456789Z", TEN + 123),
        ("2026/09/01 10:00:00", TEN),
        ("2026/9/1", MIDNIGHT),
        ("2026-09-01 8:05:00", TEN - 2 * 3_600_000 + 5 * 60_000),
        ("[01/Sep/2026:10:00:00 +0000]", TEN),  # web servers
        ("01/Sep/2026:12:00:00 +0200", TEN),
        ("Sep 1, 2026 @ 10:00:00.000", TEN),  # Kibana
        ("Tue, 01 Sep 2026 10:00:00 GMT", TEN),
        ("20260901", MIDNIGHT),
        (20260901, MIDNIGHT),
        (20260901.0, MIDNIGHT),
        ("202609011000", TEN),
        (20260901100000, TEN),
        ("20260901T100000Z", TEN),
        (TEN, TEN),
        (str(TEN), TEN),
        (TEN // 1000, TEN),
        (TEN / 1000 + 0.25, TEN + 250),
        (str(TEN // 1000) + ".25", TEN + 250),
        (TEN * 1000 + 999, TEN),
        (TEN * 1_000_000, TEN),
        (str(TEN * 1_000_000), TEN),
        # A leap second is the first of the next day, as POSIX counts.
        ("2016-12-31T23:59:60Z", int(datetime(2017, 1, 1, tzinfo=UTC).timestamp()) * 1000),
        ("2017-01-01T00:59:60.5+01:00", int(datetime(2017, 1, 1, tzinfo=UTC).timestamp()) * 1000 + 500),
        ("1990-01-01", 631_152_000_000),
        ("2099-12-31T23:59:59.999Z", 4_102_444_799_999),
    ],
)
def test_times_as_logs_write_them(value, milliseconds):
    assert time_of(value, "iso") == milliseconds


@pytest.mark.parametrize(
    ("value", "time_format", "milliseconds"),
    [
        (1725541171.001, "epoch_s", 1725541171001),  # a little less than that in binary
        ("1725541171.5", "epoch_s", 1725541171500),
        (1725541171, "epoch_s", 1725541171000),
        (2026090110, "epoch_s", 2026090110000),
        ("1725541171702", "epoch_ms", 1725541171702),
        (1725541171702.7, "epoch_ms", 1725541171702),
        (1725541171702999, "epoch_us", 1725541171702),
        ("1725541171702999999", "epoch_ns", 1725541171702),
    ],
)
def test_numbers_in_a_stated_unit(value, time_format, milliseconds):
    assert time_of(value, time_format) == milliseconds


@pytest.mark.parametrize("value", [
    1500, "1989-12-31T23:59:59.999Z", "2100-01-01", "0001-01-01", 20261301, "20260901250000", 2026090110, -1, 10**30,
    1.5,
])  # fmt: skip
def test_a_time_that_no_log_of_searches_has_is_told_from_one_that_is_not_read(value):
    with pytest.raises(ImplausibleTime):
        time_of(value, "iso")


@pytest.mark.parametrize("value", [
    "yesterday", "09/01/2026 10:00", "2026-02-30", "2026-09-01 10:00:00 PST", "2026-09-01 10:00 PM", "10:00:00",
    "2026-09-01T10:00:60Z", "01/Foo/2026:10:00:00 +0000", "2026-09-01T24:00:00Z", "٢٠٢٦-09-01",
])  # fmt: skip
def test_what_may_mean_two_things_is_no_time(value):
    found, is_bad, is_implausible = times([value], "iso")
    assert (found.to_pylist(), is_bad.tolist(), is_implausible.tolist()) == ([None], [True], [False])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_arrow_timestamps_keep_their_moment_and_dates_begin_at_midnight(unit):
    moment = datetime(2026, 9, 1, 10, tzinfo=UTC)
    for zone in (None, "UTC", "Europe/Berlin"):
        column = pa.array([moment, None], pa.timestamp(unit, tz="UTC")).cast(pa.timestamp(unit, tz=zone))
        found, is_bad, is_implausible = times(column, "iso")
        assert found.to_pylist() == [moment, None]
        assert not (is_bad | is_implausible).any()
    days, _, _ = times(pa.array([date(2026, 9, 1)]), "iso")
    assert days.to_pylist() == [datetime(2026, 9, 1, tzinfo=UTC)]


def test_arrow_timestamps_of_other_years_are_implausible():
    found, is_bad, is_implausible = times(pa.array([2**62, -(2**62), 0, 10**9, None], pa.timestamp("s")), "iso")
    assert is_implausible.tolist() == [True, True, True, False, False]
    assert found.null_count == 4
    assert not is_bad.any()


@settings(deadline=None)
@given(
    st.lists(
        st.none() | NUMBERS | TEXTS_OF_NUMBERS | st.sampled_from(["", "3", "3.0", "x", "٣", "1e1", "+4"]), max_size=6
    )
)
def test_a_column_of_ranks_is_its_values_one_by_one(values):
    found, is_bad = positions(values)
    for value, rank, bad in zip(values, found.to_pylist(), is_bad, strict=True):
        try:
            expected = -1 if value in (None, "") or value != value else position_of(value)
        except (ValueError, OverflowError):
            assert bad
        else:
            assert (rank, bad) == (expected, False)
