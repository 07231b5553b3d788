"""What is compiled gives what Python gives: rows of everyday lines, digests. All other lines are left to Python."""

import json
import random
from contextlib import nullcontext
from hashlib import blake2b, sha256
from itertools import product
from unittest import mock
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clicktower.beam_jobs.compiled.log_library import first_rows, keyed_hashes, row_digest, text_hashes
from clicktower.beam_jobs.sources import ubi
from clicktower.beam_jobs.sources.mapping import Events
from clicktower.beam_jobs.sources.ubi import everyday_rows
from clicktower.schemas.shard import LogicalDigest
from clicktower.schemas.text_contract import MARKS_OF_NOTHING
from tests.beam_jobs.ingest.fuzzed_lines import DAMAGES, fuzzed_line, good_line
from tests.beam_jobs.sources.test_ubi import LINES
from tests.beam_jobs.sources.ubi_lines import event, search

KINDS = ubi.kinds_of_actions(Events(conversion={"add_to_cart": 3, "hover": 0.5}))
LOGGED = st.builds(
    lambda seed, damage: fuzzed_line(random.Random(seed), damage),
    st.integers(0, 2**32),
    st.none() | st.integers(0, len(DAMAGES) - 1),
)


def _odd(lines):
    """The numbers of the lines that are left to Python; of the others the rows are compared with Python's."""
    block = b"\n".join(lines)
    found = everyday_rows(block, KINDS)
    found.rows.validate(full=True)
    cut = block.split(b"\n")[: None if lines[-1] else -1]  # an empty last line is none
    assert found.num_lines == len(cut)
    odd = found.odd.tolist()
    assert [block[begin:end] for begin, end in found.odd_spans.tolist()] == [
        cut[number].removesuffix(b"\r") for number in odd
    ]
    is_odd = set(odd)
    everyday = [line for number, line in enumerate(cut) if number not in is_odd]
    rows, rejects, _ = ubi._read(b"\n".join(everyday), everyday, KINDS)
    assert not rejects
    assert found.rows.to_pylist() == rows.to_pylist()
    return odd


@pytest.mark.slow
@given(st.lists((LINES | LOGGED).map(lambda line: line.replace(b"\n", b" ")), min_size=1, max_size=12))
def test_everyday_lines_give_the_rows_that_python_gives(lines):
    _odd(lines)


def test_what_loggers_write_is_everyday():
    rng = random.Random(1)
    lines = [good_line(rng) for _ in range(200)]
    lines += [
        search("a", 'a 19" drill \\ caf\u00e9 \u7535\u94bb', session_id="s", query_response_hits=[1, 2.5, None, True]),
        json.dumps({"query_id": "a", "user_query": "caf\u00e9 \u7535\t/"}).encode(),
        b'{"query_id": "a", "user_query": "", "client_id": null, "query_attributes": null}\r',
        b' { "query_id" : 17 , "client_id" : -5 , "user_query":"x","timestamp":1756720800123 } ',
        event("a", "click", 12345, {"index": 3, "xy": {"x": 0.5, "y": 1}}),
        event("a", "hover", "", None, user_query=""),
        event("550e8400-e29b-41d4-a716-446655440000", "click", "https://example.org/1.0?a=1+2#x", "12"),
        event("1-2", "click", "1.2.3", "1"),
        search("a", "x", time="2026-09-01T10:00:00+00:00"),
        search("a", "x", time="2026-09-01T10:00:00.123456Z"),
    ]
    assert _odd(lines) == []


@pytest.mark.parametrize(
    "line",
    [
        b'{"query_id": "a", "user_query": "x", "query_id": "b"}',
        b'{"query_id": "a", "user_query": "\\ud83d\\ude00"}',
        b'{"query_id": "a", "user_query": "x"} {}',
        b'{"query_id": "a"}',
        b'{"query_id": "", "user_query": "x"}',
        b'{"query_id": 0, "user_query": "x"}',
        b'{"index": {}}',
        b'{"query_id": "a", "user_query": "x", "more": ' + b"[" * 30 + b"]" * 30 + b"}",
        b'{"query_id": "a", "user_query": "x", "timestamp": "2026-09-01T10:00:00+02:00"}',
        b'{"query_id": "a", "action_name": "click", "event_attributes": {"position": {"ordinal": 1.0}}}',
        b'{"query_id": "a", "action_name": "click", "event_attributes": {"position": {"ordinal": "one"}}}',
        b'{"query_id": "10.0", "user_query": "x"}',
        b'{"query_id": "a", "client_id": "1.2E7", "user_query": "x"}',
        b'{"query_id": "a", "client_id": "1e+16", "user_query": "x"}',
        b'{"query_id": "a", "client_id": "c7 ", "user_query": "x"}',
        '{"query_id": "\u3000a", "user_query": "x"}'.encode(),
        '{"query_id": "a\u00a0", "user_query": "x"}'.encode(),
        b'{"query_id": "a", "user_query": "\\\\N"}',
        b'{"query_id": "a", "user_query": 17}',
        b'{"query_id": "a", "user_query": "x", "timestamp": 1756720800}',
        b'{"query_id": "a", "user_query": "x", "timestamp": "1989-12-31T23:59:59Z"}',
        b'{"query_id": "a", "user_query": "x", "timestamp": "2100-01-01T00:00:00Z"}',
        b'{"query_id": "a", "user_query": "x", "timestamp": "2026-09-01T23:59:60Z"}',
        b"",
    ],
)
def test_what_is_rare_is_left_to_python(line):
    assert _odd([search("a", "x"), line, search("b", "y")]) == [1]


@pytest.mark.parametrize("mark", [mark for mark in MARKS_OF_NOTHING if mark])
def test_marks_of_nothing_are_left_to_python(mark):
    shown = {"event_attributes": {"object": {"object_id": mark, "internal_id": "7"}}}
    lines = [search(mark, "x"), search("a", "x", mark), json.dumps({"query_id": "a", **shown}).encode()]
    assert _odd([search("a", "x"), *lines, search("b", "y")]) == [1, 2, 3]


def test_many_applications_are_left_to_python():
    lines = [search("a", "x", application=f"shop {number}") for number in range(70)]
    assert _odd([*lines, lines[0]]) == list(range(64, 70))


def test_utf8_is_what_python_takes_for_it():
    # every lead byte with second and third bytes at and around the borders of the Unicode Standard's table 3-7
    borders = [0x20, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0]
    rest = [0x7F, 0x80, 0xBF, 0xC0]
    tails = [*product(borders), *product(borders, rest), *product(borders, [0x80, 0xC0], rest)]
    texts = [bytes([lead, *tail]) for lead in range(0x80, 0x100) for tail in tails]
    lines = [b'{"query_id": "a", "user_query": "%s"}' % text for text in texts]
    is_text = [text.decode(errors="replace").encode() == text for text in texts]
    assert _odd(lines) == [number for number, good in enumerate(is_text) if not good]


def test_days_are_those_of_the_calendar():
    years = (0, 1, 1900, 1989, 1990, 1992, 2000, 2023, 2024, 2096, 2099, 2100, 9999)
    days = [
        f"{year:04d}-{month:02d}-{day:02d}" for year, month, day in product(years, range(14), (0, 1, 28, 29, 30, 31))
    ]
    lines = [search("a", "x", time=f"{day}T23:59:59.999Z") for day in days]
    is_day = []
    for day in days:
        try:
            np.datetime64(day)
            is_day.append(1990 <= int(day[:4]) <= 2099)  # other years are left to Python
        except ValueError:
            is_day.append(False)
    assert _odd(lines) == [number for number, good in enumerate(is_day) if not good]


@pytest.mark.parametrize("plain", [False, True])
def test_digests_of_texts_of_every_length_add_up(plain):
    texts = [bytes((7 * length + place) % 256 for place in range(length)) for length in range(200)]
    expected = sum(int.from_bytes(sha256(text).digest(), "big") for text in texts) % 2**256
    assert row_digest(pa.array(texts, pa.binary()), plain=plain) == f"{expected:064x}"
    uneven = [texts[37 * place % 200] for place in range(200)]  # two are hashed together: short ones with long ones
    assert row_digest(pa.array(uneven, pa.binary()), plain=plain) == f"{expected:064x}"
    digest = LogicalDigest()
    digest.add(texts[150:])
    assert row_digest(pa.chunked_array([pa.array(texts, pa.binary())]).slice(150), plain=plain) == digest.hexdigest()


@given(
    st.lists(st.tuples(st.text(max_size=80), st.integers(-(2**63), 2**63 - 1), st.text(max_size=80)), max_size=12),
    st.integers(0, 12),
    st.booleans(),
)
def test_a_row_of_several_columns_is_their_text_with_line_ends_between(rows, begin, is_compiled):
    columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(_TEXT_NUMBER_TEXT)]
    expected = LogicalDigest()
    expected.add("\n".join(map(str, row)).encode() for row in rows[begin:])
    with _library(is_compiled):
        assert row_digest(*(column.slice(begin) for column in columns)) == expected.hexdigest()


_TEXT_NUMBER_TEXT = (pa.string(), pa.int64(), pa.string())


def test_an_escape_or_a_number_ends_where_the_line_does():
    good = b'{"query_id": "a\\u00e9", "client_id": 12, "user_query": "x", "timestamp": "2026-09-01T10:00:00.1Z"}'
    assert _odd([good[:end] for end in range(1, len(good) + 1)]) == list(range(len(good) - 1))


@given(st.lists(st.none() | st.binary(max_size=40), max_size=20), st.integers(0, 20))
def test_hashes_are_those_of_zlib(texts, begin):
    expected = [crc32(text or b"") for text in texts[begin:]]
    assert text_hashes(pa.array(texts, pa.binary()).slice(begin)).tolist() == expected


def test_what_lies_where_there_is_no_text_counts_for_nothing():
    texts = pa.Array.from_buffers(  # one text, `b`; Arrow lets a null cover bytes
        pa.string(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"ab")]
    )
    assert text_hashes(texts).tolist() == [0, crc32(b"b")]


def _library(is_there):
    """The compiled library, or none, as where it was not built."""
    return (
        nullcontext()
        if is_there
        else mock.patch("clicktower.beam_jobs.compiled.log_library.library", return_value=None)
    )


TEXTS = st.lists(st.binary(max_size=300), max_size=20)


@given(TEXTS, st.integers(0, 20), st.binary(max_size=64), st.binary(max_size=16), st.booleans())
def test_keyed_hashes_are_those_of_hashlib(texts, begin, key, person, is_compiled):
    digests = [blake2b(text, digest_size=8, key=key, person=person).digest() for text in texts[begin:]]
    with _library(is_compiled):
        found = keyed_hashes(pa.array(texts, pa.binary()).slice(begin), key=key, person=person)
    assert found.tolist() == [int.from_bytes(digest, "little") for digest in digests]


@pytest.mark.parametrize("length", [0, 127, 128, 129, 256, 257])
@pytest.mark.parametrize("key", [b"", b"k" * 32])
def test_a_text_may_end_where_a_block_does(length, key):
    text = bytes(range(256)) * 2
    expected = blake2b(text[:length], digest_size=8, key=key).digest()
    assert keyed_hashes(pa.array([text[:length]]), key=key).tolist() == [int.from_bytes(expected, "little")]


@given(st.lists(st.integers(0, 30), max_size=200), st.integers(0, 200), st.booleans(), st.booleans())
def test_the_first_row_of_each_hash_is_told(numbers, begin, same_place, is_compiled):
    # hashes of one place in the table, or of many
    hashes = [
        bytes(8) + bytes([number] * 8) if same_place else sha256(bytes([number])).digest()[:16] for number in numbers
    ]
    seen = set()
    expected = [not (number in seen or seen.add(number)) for number in numbers[begin:]]
    with _library(is_compiled):
        assert first_rows(pa.array(hashes, pa.binary(16)).slice(begin)).tolist() == expected
