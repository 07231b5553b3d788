"""UBI lines: every readable line gives its row, every other one its reason; the standard library's parser agrees."""

import codecs
import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from clicktower.beam_jobs.sources import ubi
from clicktower.beam_jobs.sources.mapping import Events
from clicktower.schemas.search_log import LOG_ROW
from tests.beam_jobs.ingest.reference_ingest import reference_line
from tests.beam_jobs.sources.ubi_lines import event, random_log, search

SCALARS = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5)
TIMES = st.sampled_from(
    ["2026-09-01T10:00:00Z", "2026-09-01", "2026-09-01T10:00:00+02:00", "yesterday", "", 0, -1, 10**40, 1.5,
     1_788_249_611, "1788249611.25", 1_788_249_611_123, 20260901, "202609011000", "20260901100000", 2026090110,
     "1969-12-31", 10**15, " 2026-09-01 ", "null"]
)  # fmt: skip
IDS = st.sampled_from(
    ["q", "10", "10.0", " 10", "1e1", "1.2345678E7", "1e+16", "10.5", "null", "\\N", "nan", "NA", "0", "-0.0",
     "a\u3000", "\xa0a", "é", "\x1ca", "1.", ".5", 10.0, 10.5, 2.0**54, 10, "", "  ",
     "550e8400-e29b-41d4-a716-446655440000"]
)  # fmt: skip
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "query_id": IDS | SCALARS,
        "client_id": IDS | SCALARS,
        "user_query": st.just("\\N") | st.text(max_size=5) | SCALARS,
        "action_name": st.sampled_from(["click", "click_through", "impression", "search", "hover", ""]) | SCALARS,
        "timestamp": TIMES | SCALARS,
        "application": SCALARS,
        "query_attributes": SCALARS | st.fixed_dictionaries({}, optional={"user_agent": SCALARS}),
        "event_attributes": SCALARS
        | st.fixed_dictionaries(
            {},
            optional={
                "object": SCALARS
                | st.fixed_dictionaries({}, optional={"object_id": IDS | SCALARS, "internal_id": IDS | SCALARS}),
                "position": SCALARS
                | st.fixed_dictionaries(
                    {},
                    optional={
                        "ordinal": st.sampled_from(["1", " 3 ", "01", "1.0", "x"])
                        | SCALARS
                        | st.fixed_dictionaries({}, optional={"index": SCALARS})
                    },
                ),
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


KINDS_OF_ACTIONS = ubi.kinds_of_actions(Events())


def parse_block(block):
    return ubi.parse_block(block, KINDS_OF_ACTIONS)


def _row(line):
    """What the line alone gives: its fate, or its row."""
    parsed = parse_block(line + b"\n")
    assert parsed.rows.num_rows + len(parsed.reject_reasons) + parsed.num_action_lines + parsed.num_blank_lines == 1
    if parsed.reject_reasons:
        return parsed.reject_reasons[0]
    if parsed.num_blank_lines:
        return "blank_line"
    if parsed.num_action_lines:
        return "action_line"
    parsed.rows.validate(full=True)
    (row,) = parsed.rows.to_pylist()
    names = {"client_id": "client", "document_id": "document", "user_agent": "agent"}
    return {
        names.get(name, name): value
        for name, value in row.items()
        if name not in ("application", "weight", "line_hash")
    }


@pytest.mark.slow
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
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
@example(b'{"x": ' + b"[" * 199 + b"]" * 199 + b', "query_id": "a", "user_query": "x"}')
@example(b'{"x": ' + b"[" * 200 + b"]" * 200 + b', "query_id": "a", "user_query": "x"}')
@example(b'{"x": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b', "query_id": "a", "user_query": "x"}')
@example(b'{"x": "' + b"[" * 1000 + b'", "query_id": "a", "user_query": "x"}')  # brackets in a text nest nothing
@example(b'{"x": "\xff", "query_id": "a", "user_query": "x"}')  # where nobody looks
@example(b'{"x": "\\udc00", "query_id": "a", "user_query": "x"}')
@example(b'{"x": "\\ud83d\\ude00", "query_id": "\\ud83d\\ude00", "user_query": "x"}')
@example(b'{"_id": "1", "_source": {"query_id": "a", "user_query": "x"}}')
@example(b'{"_id": "1", "_source": {"query_id": [1], "user_query": "x"}}')
@example(b'{"query_id": 12345678901234567890123, "client_id": -5, "user_query": "x", "timestamp": "1725541171702"}')
@example(b'{"action_name": "click", "user_query": "x", "event_attributes": {"object": {"object_id": 7}}}')
@example(b'{"query_id": "a", "user_query": "x", "timestamp": "0000-01-01T00:00:00Z"}')
@example(b'{"query_id": "a", "user_query": "x", "query_id": 1.5}')
def test_the_standard_library_reads_the_same_row_or_refuses_for_the_same_reason(line):
    line = line.replace(b"\n", b" ")
    expected = reference_line(line.rstrip(b"\r"))
    found = _row(line)
    if isinstance(expected, dict) and expected["query_id"] is None:
        assert found["query_id"].startswith("line ")
        expected["query_id"] = found["query_id"]
    assert found == expected


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(LINES, max_size=12))
def test_a_line_gives_the_same_whatever_lines_are_beside_it(lines):
    lines = [line.replace(b"\n", b" ") for line in lines]
    together = parse_block(b"".join(line + b"\n" for line in lines))
    alone = [parse_block(line + b"\n") for line in lines]
    rows = [row for parsed in alone for row in parsed.rows.to_pylist()]
    assert together.rows.to_pylist() == rows
    assert list(together.reject_reasons) == [reason for parsed in alone for reason in parsed.reject_reasons]
    starts = np.cumsum([0, *(len(line) + 1 for line in lines)])[:-1]
    assert together.reject_offsets.tolist() == [
        start for start, parsed in zip(starts, alone, strict=True) for _ in parsed.reject_reasons
    ]
    assert together.num_action_lines == sum(parsed.num_action_lines for parsed in alone)
    assert together.num_blank_lines == sum(parsed.num_blank_lines for parsed in alone)
    assert together.wrong_values == sum((parsed.wrong_values for parsed in alone), Counter())


@pytest.mark.parametrize(
    ("timestamp", "milliseconds"),
    [
        ("2001-09-09T01:46:40.500Z", 1_000_000_000_500),
        ("2001-09-09T03:46:40+02:00", 1_000_000_000_000),
        ("2001-09-09", 999_993_600_000),  # no zone is UTC
        (1_000_000_000_500, 1_000_000_000_500),
        (1_000_000_000.5, 1_000_000_000_500),
        ("20010909014640", 1_000_000_000_000),
        (None, None),
    ],
)
def test_times_are_milliseconds_since_1970(timestamp, milliseconds):
    (time,) = parse_block(search("a", "x", time=timestamp)).rows["time"].cast(pa.int64()).to_pylist()
    assert time == milliseconds


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
    hashes = [parse_block(line + end).rows["line_hash"][0] for end in (b"", b"\n", b"\r\n", b"\r\r\n")]
    assert hashes[0] == hashes[1] == hashes[2]
    assert parse_block(line + b" \n").rows["line_hash"][0] != hashes[0]


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_byte_order_mark_where_files_were_joined_is_no_part_of_a_line(monkeypatch, is_compiled):
    if not is_compiled:
        monkeypatch.setattr(ubi, "everyday_rows", lambda block, kinds: None)
    lines = [search(f"s{number}", "x") for number in range(100)]
    joined = b"\n".join([*lines[:50], codecs.BOM_UTF8 + lines[50], *lines[51:]])
    assert parse_block(joined).rows.equals(parse_block(b"\n".join(lines)).rows)
    assert not parse_block(joined).reject_reasons


def test_every_line_of_a_block_is_a_row_a_reject_or_an_action():
    lines = random_log(1)
    parsed = parse_block(b"\n".join(lines) + b"\n")
    counted = len(parsed.reject_reasons) + parsed.num_action_lines + parsed.num_blank_lines
    assert parsed.rows.num_rows + counted == len(lines)
    assert pa.Table.from_batches([parsed.rows]).num_rows == sum(
        isinstance(reference_line(line), dict) for line in lines
    )


def test_a_huge_field_is_text_and_a_document_id_of_nought_is_one():
    query = "y" * 10_000_000
    clicked = b'{"query_id": "a", "action_name": "click", "event_attributes": {"object": {"object_id": 0}}}'
    parsed = parse_block(search("a", query) + b"\n" + clicked + b"\n" + b"x" * 10_000_000 + b"\n")
    assert parsed.rows["query"].to_pylist() == [query, None]
    assert parsed.rows["document_id"].to_pylist() == [None, "0"]
    assert parsed.reject_reasons == ["unreadable_not_json"]


def test_a_team_can_name_its_own_actions():
    kinds = ubi.kinds_of_actions(Events(click=("tap",), conversion={"cart": 0.5, "buy": 5}))
    lines = [event("a", action, "D1") for action in ("tap", "click", "impression", "search", "buy", "cart")]
    rows = ubi.parse_block(b"\n".join(lines), kinds).rows
    assert list(zip(rows["kind"].to_pylist(), rows["weight"].to_pylist(), strict=True)) == [
        ("click", 1000),
        ("other", 0),
        ("impression", 0),
        ("other", 0),
        ("conversion", 5000),
        ("conversion", 500),
    ]


def test_more_actions_than_a_byte_counts_are_read_as_well():
    kinds = ubi.kinds_of_actions(Events(conversion={f"step {number}": number for number in range(1, 300)}))
    assert ubi.everyday_rows(event("a", "step 299", "D1"), kinds) is None
    rows = ubi.parse_block(event("a", "step 299", "D1") + b"\n" + event("a", "click", "D1"), kinds).rows
    assert rows["weight"].to_pylist() == [299_000, 1000]
