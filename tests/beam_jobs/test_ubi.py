"""UBI lines: every readable line gives its row, every other one its reason; the standard library's parser agrees."""

import json
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beam_jobs.sources.ubi import UnreadableLineError, parse_block, parse_line
from schemas.log_row import LOG_ROW
from tests.beam_jobs.reference_ingest import reference_line
from tests.beam_jobs.ubi_lines import event, random_log, search

SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5)
TIMES = st.sampled_from(
    ["2026-09-01T10:00:00Z", "2026-09-01", "2026-09-01T10:00:00+02:00", "yesterday", "", 0, -1, 10**40, 1.5]
)
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "query_id": st.just("q") | SCALARS,
        "client_id": st.just("c") | SCALARS,
        "user_query": st.text(max_size=5) | SCALARS,
        "action_name": st.sampled_from(["click", "impression", "hover", ""]) | SCALARS,
        "timestamp": TIMES | SCALARS,
        "application": SCALARS,
        "query_attributes": SCALARS | st.fixed_dictionaries({}, optional={"user_agent": SCALARS}),
        "event_attributes": SCALARS
        | st.fixed_dictionaries(
            {},
            optional={
                "object": SCALARS | st.fixed_dictionaries({}, optional={"object_id": SCALARS}),
                "position": SCALARS | st.fixed_dictionaries({}, optional={"ordinal": SCALARS}),
            },
        ),
        "index": st.just({}) | SCALARS,
    },
)
LINES = st.binary(max_size=20) | st.builds(
    lambda value, prefix, suffix, ascii_: (
        prefix + json.dumps(value, ensure_ascii=ascii_).encode(errors="surrogatepass") + suffix
    ),
    VALUES,
    st.sampled_from([b"", b"", b"", b" ", b"\xef\xbb\xbf"]),
    st.sampled_from([b"", b"", b"", b"\r", b"{}", b"\x00", b"}", b'{"query_id": "q"}']),
    st.booleans(),
)


def _row(line):
    try:
        row = parse_line(line)
    except UnreadableLineError as error:
        return error.fate
    if row is None:
        return "action_line"
    names = ("kind", "query_id", "client", "query", "document", "position", "time", "agent")
    return dict(zip(names, row[:8], strict=True))


@settings(max_examples=400)
@given(LINES)
@example(b'{"query_id": "a", "query_id": "b", "user_query": "x"}')  # a repeated key: the last one counts
@example(b'{"query_id": "\\ud800", "user_query": "x"}')  # a lone surrogate
@example(b'{"query_id": "\\u0000", "user_query": "x"}')  # NUL, escaped
@example(b'{"query_id": "a\x00", "user_query": "x"}')  # NUL, bare
@example(b'{"query_id": "a", "user_query": NaN}')
@example(b'{"query_id": "a", "action_name": "click", "event_attributes": {"position": {"ordinal": 1e2}}}')
@example(
    b'{"query_id": "a", "action_name": "click", "event_attributes": {"position": {"ordinal": 99999999999999999999999}}}'
)
@example(b'{"query_id": "a", "user_query": "x"}{"query_id": "a"}')
@example(b'{"query_id": "a", "action_name": "click", "event_attributes": {"position": {"ordinal": true}}}')
@example(b"[" * 5000)
@example(b'{"query_id": 0, "user_query": "x"}')
@example(b'{"query_id": "\xc3\x28"}')
def test_the_standard_library_reads_the_same_row_or_refuses_for_the_same_reason(line):
    expected = reference_line(line)
    found = _row(line)
    if isinstance(expected, dict):
        time = expected["time"]
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        milliseconds = None if time is None else (time - epoch).days * 86_400_000 + (time - epoch).seconds * 1000
        expected["time"] = None if time is None else milliseconds + (time - epoch).microseconds // 1000
        if expected["kind"] != "search":
            expected |= {"query": None}
    assert found == expected


@pytest.mark.parametrize(
    ("timestamp", "milliseconds"),
    [
        ("1970-01-01T00:00:01.500Z", 1500),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1970-01-02", 86_400_000),  # no zone is UTC
        ("1969-12-31T23:59:59.999Z", -1),
        (1500, 1500),
        (None, None),
    ],
)
def test_times_are_milliseconds_since_1970(timestamp, milliseconds):
    assert parse_line(search("a", "x", time=timestamp))[6] == milliseconds


def test_a_block_gives_rows_in_order_and_the_byte_of_each_reject():
    lines = [search("a", "x"), b"nonsense", event("a", "click", "D1", 3), b'{"index": {}}', b"\xff"]
    block = b"\n".join(lines)
    parsed = parse_block(block)
    assert parsed.rows.schema.equals(LOG_ROW)
    assert parsed.rows["kind"].to_pylist() == ["search", "click"]
    assert parsed.rows["position"].to_pylist() == [-1, 3]
    assert parsed.num_action_lines == 1
    assert parsed.reject_reasons == ["unreadable_not_json", "unreadable_not_utf8"]
    assert parsed.reject_offsets.tolist() == [block.index(b"nonsense"), block.index(b"\xff")]


def test_the_line_end_is_no_part_of_a_line():
    line = search("a", "x")
    hashes = [parse_block(line + end).rows["line_hash"][0] for end in (b"", b"\n", b"\r\n")]
    assert hashes[0] == hashes[1] == hashes[2]
    assert parse_block(line + b" \n").rows["line_hash"][0] != hashes[0]


def test_every_line_of_a_block_is_a_row_a_reject_or_an_action():
    lines = random_log(1)
    parsed = parse_block(b"\n".join(lines) + b"\n")
    assert parsed.rows.num_rows + len(parsed.reject_reasons) + parsed.num_action_lines == len(lines)
    assert pa.Table.from_batches([parsed.rows]).num_rows == sum(
        isinstance(reference_line(line), dict) for line in lines
    )
