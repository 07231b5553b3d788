"""What `check` reads in the first lines of a log: the format, near-miss names, the mapping it proposes."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clicktower.beam_jobs.checking.check_log import mapping_toml
from clicktower.beam_jobs.checking.fields import (
    best_name,
    event_kind,
    fields_of_json,
    read_fields,
    shape_of,
    suggest_mapping,
)
from clicktower.beam_jobs.checking.findings import wrong_in_ubi
from clicktower.beam_jobs.sources.mapping import Columns, Events, Mapping
from clicktower.flows.config.toml_file import read_toml
from tests.beam_jobs.sources.ubi_lines import event, search


def fields_of(tmp_path, lines: list[bytes]):
    path = tmp_path / "log"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return read_fields(str(path))


UBI = [search("q1", "red lamp"), event("q1", "click", "D1")] * 3


@pytest.mark.parametrize(
    ("lines", "form"),
    [
        (UBI, "ubi"),
        ([b'{"index": {"_id": "1"}}', UBI[0]], "ubi"),
        ([json.dumps({"_index": "x", "_source": json.loads(UBI[0])}).encode()], "ubi"),
        ([b'{"who": "c1", "search": {"text": "lamp"}, "hit": {"sku": "D1"}}'], "jsonl"),
        ([b"user,query,sku", b"c1,lamp,D1", b'c1,"lamp, red",D2'], "delimited"),
        ([b"user|query|sku", b"c2|red lamp|D1"], "delimited"),
        ([b"c1|lamp|D1", b"c2|red lamp|D1"], ""),
        ([b"<xml>", b"<a/>"], ""),
        ([b"nothing", b"at all"], ""),
    ],
)
def test_the_first_lines_tell_the_format(tmp_path, lines, form):
    assert fields_of(tmp_path, lines).format == form


def test_parquet_is_told_by_its_first_bytes_and_its_structs_are_paths(tmp_path):
    table = pa.table({"q": ["lamp"], "hit": [{"sku": "D1"}], "all": [["D1"]]})
    pq.write_table(table, tmp_path / "log.parquet")
    fields = read_fields(str(tmp_path / "log.parquet"))
    assert fields.format == "parquet"
    assert suggest_mapping(fields).columns.named() == {"query": "q", "document_id": "hit.sku"}


def test_the_first_line_of_a_log_without_a_header_is_not_taken_for_one(tmp_path):
    """`search` is a name for a query and `click` for an event, but both are values here: nothing of it may be shown."""
    fields = fields_of(tmp_path, [b"c1,red lamp,search,type", b"c2,lamp,search,type", b"c2,lamp,click,type"])
    assert (fields.format, fields.header, list(fields.paths)) == ("", (), [])


def test_names_are_known_in_any_spelling_and_within_objects():
    assert best_name("query_id", ["SearchID", "x"]) == "SearchID"
    assert best_name("document_id", ["name", "product.id"]) == "product.id"
    assert best_name("client_id", ["user.id", "userId"]) == "userId"  # the less nested of two that are as usual
    assert best_name("query", ["rank"]) is None
    assert [event_kind(value) for value in ("item_click", "TAP", "Displayed", "purchase")] == [
        "click", "click", "impression", None,
    ]  # fmt: skip


def test_a_key_that_may_be_text_of_the_log_is_counted_and_never_proposed():
    lines = [b'{"search": {"text": "lamp"}, "hit": {"sku": "D1"}, "alice smith": {"user_id": "c1"}, "maria": 3}']
    fields = fields_of_json(lines)
    assert sorted(fields.leaves()) == ["hit.sku", "search.text"]
    assert len(fields.paths_of_values()) == 4
    assert suggest_mapping(fields).columns.named() == {"query": "search.text", "document_id": "hit.sku"}
    fields.typed = ("maria",)
    assert "maria" in fields.leaves()


def test_a_value_of_an_event_column_with_other_letters_is_no_known_event():
    assert [event_kind(value) for value in ("click", "c.l.i.c.k", "мария click", "click 5551234")] == [
        "click", "click", None, None,
    ]  # fmt: skip


def test_a_proposed_mapping_is_a_file_that_ingest_reads(tmp_path):
    lines = [b'"Session ID","Search Term",SKU,Type,At', b'c1,"lamp, red",,SEARCH,1788000000', b"c1,,D1,TAP,1788000000"]
    mapping = suggest_mapping(fields_of(tmp_path, lines))
    assert mapping == Mapping(
        columns=Columns(client_id="Session ID", query="Search Term", document_id="SKU", event="Type", time="At"),
        events=Events(search=("search", "SEARCH"), click=("click", "click_through", "TAP")),
        delimiter=",",
        time_format="epoch_s",
    )
    (tmp_path / "mapping.toml").write_text(mapping_toml(mapping), encoding="utf-8")
    assert read_toml(str(tmp_path / "mapping.toml"), Mapping, subject="mapping", see="") == mapping


def test_a_misspelt_field_is_found_and_so_is_one_in_the_wrong_object():
    lines = [search("q1", "lamp"), event("q1", "click", "D1")]
    assert list(wrong_in_ubi(fields_of_json(lines))) == []
    camel = [line.replace(b'"query_id"', b'"queryId"') for line in lines]
    (finding,) = wrong_in_ubi(fields_of_json(camel))
    assert (finding.about, "`queryId`" in finding.problem) == ("query_id", True)
    moved = [search("q1", "lamp"), b'{"query_id": "q1", "client_id": "c", "action_name": "click", "timestamp": 1788,'
             b' "object_id": "D1", "event_attributes": {"rank": 2}}']  # fmt: skip
    about = {finding.about: finding.problem for finding in wrong_in_ubi(fields_of_json(moved))}
    assert set(about) == {"document_id", "position"}
    assert "`object_id`" in about["document_id"]
    assert "`event_attributes.rank`" in about["position"]


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        (1788000000, "seconds since 1970"),
        ("1788000000000", "milliseconds since 1970"),
        (1788000000000000, "microseconds since 1970"),
        ("2026-09-01T10:00:00Z", "ISO time"),
        (7, "whole number"),
        (True, "true or false"),
        (["a"], "list"),
        ("https://x.example", "address"),
        ("red lamp", "text"),
        ("lamp", "word"),
    ],
)
def test_what_values_look_like(value, shape):
    assert shape_of(value) == shape
