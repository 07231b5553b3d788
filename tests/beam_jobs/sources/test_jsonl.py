"""JSON lines with a mapping: rows as the json module finds them along the paths."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig
from clicktower.beam_jobs.sources.jsonl import parse_block
from clicktower.beam_jobs.sources.mapping import Columns, Events, Mapping
from clicktower.schemas.errors import UsageError
from tests.beam_jobs.ingest.reference_ingest import _id as reference_id
from tests.beam_jobs.ingest.reference_ingest import _text as reference_text
from tests.beam_jobs.ingest.source_rows import read_all
from tests.beam_jobs.sources.test_ubi import SCALARS
from tests.beam_jobs.sources.ubi_lines import random_log

NESTED = Mapping(
    columns=Columns(
        query="search.text", query_id="search.id", document_id="hit.doc.id", position="hit.rank", event="type"
    ),
    events=Events(search=("s",), impression=("i",), click=("c",)),
)


def _config(mapping, **more):
    return IngestConfig(format="jsonl", mapping=mapping, **more)


def _write(path, values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def test_dotted_paths_lead_into_nested_objects(tmp_path):
    log = _write(tmp_path / "log", [
        {"type": "s", "search": {"text": "drill", "id": 1}, "more": [1]},
        {"type": "c", "search": {"id": "1"}, "hit": {"doc": {"id": 17}, "rank": 2.0}},
        {"type": "i", "search": {"id": "1"}, "hit": {"doc": {"id": "D1"}, "rank": "3"}},
        {"type": "i", "search": {"id": "1"}, "hit": None},
        {"type": "i", "search": {"id": "1"}, "hit": {"doc": "D1"}},  # no object where one is wanted
        {"type": "i", "search": {"id": 1.5}},
        {"type": "i"},
    ])  # fmt: skip
    rows, rejects, _ = read_all([log], _config(NESTED))
    names = ("kind", "query_id", "query", "document_id", "position")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("search", "1", "drill", None, -1),
        ("click", "1", None, "17", 2),
        ("impression", "1", None, "D1", 3),
        ("impression", "1", None, None, -1),
    ]
    assert [reason for _, _, reason in rejects] == ["unreadable_field", "unreadable_field", "unreadable_no_query_id"]


def test_a_key_may_contain_the_dots_of_its_path(tmp_path):
    log = _write(tmp_path / "log", [
        {"type": "s", "search.text": "drill", "search.id": 1},
        {"type": "c", "search": {"id": "1"}, "hit.doc": {"id": 17}, "hit.rank": 2},
        {"type": "c", "search": None, "search.id": "1", "hit": {"doc.id": 18, "rank": 3}},
        {"type": "c", "search.id": "1", "hit.doc.id": 19, "hit": {"rank": "4"}},
        {"type": "c", "search.id": "1", "hit.doc.id": ["D1"]},
    ])  # fmt: skip
    rows, rejects, _ = read_all([log], _config(NESTED))
    names = ("kind", "query_id", "query", "document_id", "position")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("search", "1", "drill", None, -1),
        ("click", "1", None, "17", 2),
        ("click", "1", None, "18", 3),
        ("click", "1", None, "19", 4),
    ]
    assert [reason for _, _, reason in rejects] == ["unreadable_field"]


def test_what_a_line_can_do_without_becomes_null_and_is_counted():
    columns = Columns(query="q", document_id="d", position="p", dwell="s", user_agent="ua", application="app")
    mapping = Mapping(columns=columns, min_dwell=5)
    full = {"q": "drill", "d": "D1", "p": 1, "s": 9, "ua": "Firefox", "app": "shop"}
    changes = [{}, {"p": [1]}, {"p": "first"}, {"s": {}}, {"s": "long"}, {"ua": ["a"]}, {"app": True}, {"app": 7},
               {"q": 17}, {"q": 1.5}]  # fmt: skip
    parsed = parse_block(b"".join(json.dumps(full | change).encode() + b"\n" for change in changes), mapping)
    assert not parsed.reject_reasons
    assert parsed.rows["position"].to_pylist() == [1, -1, -1] + [1] * 7
    assert parsed.rows["weight"].to_pylist() == [1000] * 10
    assert parsed.rows["user_agent"].to_pylist() == ["Firefox"] * 5 + [None] + ["Firefox"] * 4
    assert parsed.rows["application"].to_pylist() == ["shop"] * 6 + [None, "7", "shop", "shop"]
    assert parsed.rows["query"].to_pylist() == ["drill"] * 8 + ["17", "1.5"]
    assert parsed.wrong_values == {
        "position: a list": 1, "position: text": 1, "dwell: an object": 1, "dwell: text": 1, "user_agent: a list": 1,
        "application: true or false": 1,
    }  # fmt: skip
    lost = parse_block(b'{"q": "drill", "d": ["D1"]}\n{"q": {"text": 1}}\n{"q": "a", "d": 1.5}\n', mapping)
    assert lost.reject_reasons == ["unreadable_field"] * 3
    assert set(lost.wrong_values) == {
        "document_id: a list", "query: an object", "document_id: a fraction, or a float too large for an id",
    }  # fmt: skip


def test_blank_lines_are_no_lines_that_cannot_be_read(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b'\n{"q": "a"}\r\n \t\r\n{"q": "b"}\r\r\n\n')
    rows, rejects, num_lines = read_all([log], _config(Mapping(columns=Columns(query="q", document_id="d"))))
    assert ([row["query"] for row in rows], rejects, num_lines) == (["a", "b"], [], 5)


def _along(value, path):
    for key in path.split("."):
        if value is None:
            return None
        if not isinstance(value, dict):
            raise TypeError(path)
        value = value.get(key)
    return value


def _expected(value):
    """(client, query, document) of a line without events or ids, or its fate."""
    try:
        found = [_along(value, path) for path in ("a.b", "a.c", "d")]
        if any(isinstance(each, bool) or not (each is None or isinstance(each, str | int | float)) for each in found):
            return "unreadable_field"
        client, document = reference_id(found[0]), reference_id(found[2])
    except (TypeError, ValueError):
        return "unreadable_field"
    query = "" if found[1] == "\\N" else reference_text(found[1])
    if query is None or (document and not query):
        return "unreadable_no_query_id"
    return client, query, document


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "a": SCALARS | st.fixed_dictionaries({}, optional={"b": SCALARS, "c": SCALARS, "x": SCALARS}),
                "d": SCALARS | st.lists(SCALARS, max_size=2),
                "é": SCALARS,
            },
        ),
        max_size=6,
    )
)
def test_the_json_module_finds_the_same_along_the_paths(values):
    mapping = Mapping(columns=Columns(client_id="a.b", query="a.c", document_id="d"))
    values = json.loads(json.dumps(values).replace("NaN", "0").replace("-Infinity", "0").replace("Infinity", "0"))
    parsed = parse_block(b"".join(json.dumps(value).encode() + b"\n" for value in values), mapping)
    rows, reasons = iter(parsed.rows.to_pylist()), iter(parsed.reject_reasons)
    for value in values:
        expected = _expected(value)
        if isinstance(expected, str):
            assert next(reasons) == expected
        else:
            row = next(rows)
            assert (row["client_id"], row["query"], row["document_id"]) == expected
    assert next(rows, None) is next(reasons, None) is None


def test_ubi_can_be_read_through_a_mapping_too(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"".join(line + b"\n" for line in random_log(2)))
    mapping = Mapping(
        columns=Columns(
            query_id="query_id",
            client_id="client_id",
            query="user_query",
            document_id="event_attributes.object.object_id",
            position="event_attributes.position.ordinal",
            time="timestamp",
            event="action_name",
            user_agent="query_attributes.user_agent",
            application="application",
        )
    )
    mapped, _, num_lines = read_all([log], _config(mapping))
    rows, _, num_ubi_lines = read_all([log], IngestConfig())
    assert mapped == rows
    assert num_lines == num_ubi_lines


def test_a_misspelt_key_is_named_with_what_there_is(tmp_path):
    log = _write(tmp_path / "log", [{"user_query": "secret words", "doc": "D1", "ts": 5}])
    with pytest.raises(UsageError, match=r"'doc', 'ts', 'user_query' .did you mean 'user_query'") as caught:
        read_all([log], _config(Mapping(columns=Columns(query="user.query", document_id="doc"))))
    assert "secret" not in str(caught.value)


def test_a_key_that_comes_late_is_no_misspelt_one(tmp_path, monkeypatch):
    monkeypatch.setattr("clicktower.beam_jobs.sources.jsonl._LOOK_LINES", 1)
    log = _write(tmp_path / "log", [{"id": 1, "q": "drill"}, {"id": 1, "clicked": "D1"}])
    rows, _, _ = read_all([log], _config(Mapping(columns=Columns(query_id="id", query="q", document_id="clicked"))))
    assert [row["kind"] for row in rows] == ["search", "click"]


@pytest.mark.parametrize("columns", [
    Columns(query="a", document_id="a.b"), Columns(query=1, document_id="d"), Columns(query="a..b", document_id="d"),
])  # fmt: skip
def test_paths_that_cannot_be_are_wrong_usage(columns, tmp_path):
    with pytest.raises(UsageError):
        read_all([_write(tmp_path / "log", [{"a": 1}])], _config(Mapping(columns=columns)))


def test_deep_lines_lone_surrogates_and_nul_are_rejects_or_text(tmp_path):
    log = tmp_path / "log"
    deep = b'{"q": "x", "y": ' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b"}"
    lines = [
        deep,
        b'{"q": "\\ud800"}',
        b'{"q": "a\\u0000b"}',
        b'{"q": "a\x00b"}',
        b"[" * 100_000,
        b'{"q": "x", "q": "y"}',
    ]
    log.write_bytes(b"\n".join(lines))
    rows, rejects, num_lines = read_all([log], _config(Mapping(columns=Columns(query="q", document_id="d"))))
    assert [row["query"] for row in rows] == ["a\0b", "y"]  # of a repeated key the last one counts
    assert [reason for _, _, reason in rejects] == ["unreadable_not_json"] * 4
    assert num_lines == 6
