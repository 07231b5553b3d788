"""Kept columns and filters: every search equals that of all documents with the others left out."""

import json
from dataclasses import replace
from pathlib import Path

import lancedb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from clicktower.flows.cli import run
from clicktower.flows.releases.document_filter import matching_rows, read_filter
from clicktower.flows.releases.export_release import export
from clicktower.flows.releases.publish import publish
from clicktower.flows.releases.release_folder import PublishConfig
from clicktower.flows.releases.search import OpenRelease
from clicktower.flows.serve.service import ServeConfig, make_app
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.section import changed
from clicktower.training.model.named_recipes import recipe
from tests.flows.releases.catalogue import CONFIG, WORDS
from tests.trained_model import trained_stage

KEPT = replace(CONFIG, columns=("price", "category", "in_stock"))
CATEGORIES = ["drill", "saw", "ørn's", None]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory) -> str:
    """Documents with a price, a category that some lack, and whether they are in stock."""
    rng = np.random.default_rng(3)
    rows = [
        {"id": f"d{at}", "title": " ".join(rng.choice(WORDS, rng.integers(1, 6))), "price": float(at % 50) / 2,
         "category": CATEGORIES[at % 4], "in_stock": bool(at % 3)}
        for at in range(300)
    ]  # fmt: skip
    path = tmp_path_factory.mktemp("shelf") / "documents.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture(scope="module", params=["cosines", "words and index"])
def opened(request, model, shelf, tmp_path_factory) -> OpenRelease:
    config, to = KEPT, tmp_path_factory.mktemp("kept")
    if request.param != "cosines":
        small = changed(recipe("bag-pool-512-words"), {"tower.cells": 16})
        model = trained_stage(str(to / "store"), recipe=small)
        config = replace(KEPT, index="ivf", min_recall=0.5)
    return OpenRelease(publish(model, documents=shelf, to=str(to / "live"), config=config).uri)


VALUES = {
    "price": st.floats(-1, 26) | st.integers(0, 25),
    "category": st.sampled_from(["drill", "saw", "ørn's", "none"]),
    "in_stock": st.booleans(),
}
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        name: value
        | st.lists(value, max_size=3)
        | st.dictionaries(st.sampled_from(["lt", "lte", "gt", "gte"]), value, min_size=1)
        for name, value in VALUES.items()
    },
).map(lambda where: {name: whole_if_float(name, wanted) for name, wanted in where.items()})


def whole_if_float(name: str, wanted):
    """A list of prices has one type, as JSON from a program has."""
    return [float(value) for value in wanted] if name == "price" and isinstance(wanted, list) else wanted


def matches(value, wanted) -> bool:
    if value is None:
        return False
    if isinstance(wanted, list):
        return value in wanted
    if isinstance(wanted, dict):
        holds = {"lt": value.__lt__, "lte": value.__le__, "gt": value.__gt__, "gte": value.__ge__}
        return all(holds[bound](type(value)(limit)) for bound, limit in wanted.items())
    return value == wanted


@settings(max_examples=40, deadline=None)
@given(where=FILTERS, mode=st.sampled_from(["vector", "bm25", "hybrid"]), k=st.integers(1, 40))
def test_a_filtered_search_is_the_search_of_the_matching_documents(opened, where, mode, k):
    every = opened.search("steel angle hose", 300, mode, where={})
    expected = [
        hit for hit in every if all(matches(hit.columns[name], wanted) for name, wanted in where.items())
    ][:k]  # fmt: skip
    hits = opened.search("steel angle hose", k, mode, where=where)
    assert [(hit.id, hit.title, hit.score, hit.columns) for hit in hits] == [
        (hit.id, hit.title, hit.score, hit.columns) for hit in expected
    ]


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        ({"size": 3}, "no column 'size'"),
        ({"price": "5"}, "column 'price' of type double"),
        ({"category": 5}, "column 'category' of type large_string"),
        ({"category": [5]}, "column 'category' of type large_string"),
        ({"category": ["saw", 5]}, "column 'category'"),
        ({"in_stock": 1}, "column 'in_stock' of type bool"),
        ({"price": 10**400}, "column 'price'"),
        ({"price": [[1.0]]}, "column 'price'"),
        ({"price": {"lt": [1]}}, "column 'price'"),
        ({"price": {}}, "unknown bound, or none"),
        ({"price": {"near": 3}}, "unknown bound, or none"),
    ],
)
def test_a_filter_that_does_not_fit_is_refused(opened, where, problem):
    with pytest.raises(UsageError, match=problem):
        opened.search("steel", where=where)


def test_a_value_is_never_read_as_a_query(opened):
    hostile = "ørn's' OR 1=1 --"
    assert opened.search("steel", where={"category": hostile}) == []
    assert all(hit.columns["category"] == "ørn's" for hit in opened.search("steel", where={"category": "ørn's"}))


def test_arrow_tables_of_other_types_are_filtered_too():
    batch = pa.record_batch({"id": ["a", "b", "c"], "size": pa.array([1, None, 3], pa.int16())})
    assert matching_rows(batch, {"size": {"gte": 1.5}}).tolist() == [2]
    assert matching_rows(batch, {"size": [1, 3], "id": "a"}).tolist() == [0]
    assert matching_rows(batch, {}).tolist() == [0, 1, 2]


@pytest.mark.parametrize("text", ["", "3", "[]", '{"price": '])
def test_a_filter_on_the_command_line_is_a_json_object(text):
    with pytest.raises(UsageError, match="no JSON object"):
        read_filter(text)


def test_the_command_line_and_the_service_filter_alike(opened, capsys):
    where = {"price": {"gte": 5, "lt": 9}, "in_stock": True}
    words = ["search", "angle hose", "--release", opened.uri, "--k", "4", "--where", json.dumps(where)]
    assert run([*words, "--json"]) == 0
    typed = json.loads(capsys.readouterr().out)["hits"]
    assert len(typed) == 4
    assert all(5 <= hit["columns"]["price"] < 9 and hit["columns"]["in_stock"] for hit in typed)
    assert run(words) == 0
    assert "in_stock" in capsys.readouterr().out
    with TestClient(make_app(ServeConfig(release=opened.uri)), "http://127.0.0.1") as client:
        body = {"query": "angle hose", "k": 4, "where": where}
        hits = client.post("/v1/search", json=body).json()["hits"]
        assert [(hit["id"], hit["columns"]) for hit in hits] == [(hit["id"], hit["columns"]) for hit in typed]
        for wrong in ({"size": 1}, {"price": {"near": 1}}, {"price": None}, 3):
            refused = client.post("/v1/search", json=body | {"where": wrong})
            assert refused.status_code == 422, refused.text


def test_kept_columns_are_exported(opened, shelf, tmp_path):
    export(opened.uri, form="parquet", into=str(tmp_path / "titles.parquet"))
    rows = [json.loads(line) for line in Path(shelf).read_text().splitlines()]
    assert pq.read_table(tmp_path / "titles.parquet").drop_columns("vector").to_pylist() == rows
    export(opened.uri, form="opensearch", into=str(tmp_path / "opensearch"))
    lines = (tmp_path / "opensearch" / "documents-00000.ndjson").read_text().splitlines()
    assert json.loads(lines[3]).items() >= {"price": 0.5, "category": "saw", "in_stock": True}.items()


def test_columns_change_the_release_and_encode_nothing_again(model, shelf, tmp_path):
    plain = publish(model, documents=shelf, to=str(tmp_path / "live"), config=CONFIG)
    kept = publish(model, documents=shelf, to=str(tmp_path / "live"), config=KEPT)
    assert kept.release.digest != plain.release.digest
    assert kept.release.encoded["encoded"] == 0
    assert OpenRelease(kept.uri).search("steel", 1)[0].columns.keys() == {"price", "category", "in_stock"}


@pytest.mark.parametrize(
    ("columns", "error", "problem"),
    [(("size",), StageError, "no column 'size'"), (("tags",), StageError, "lists or objects")],
)
def test_columns_that_cannot_be_kept_are_refused(model, tmp_path, columns, error, problem):
    documents = tmp_path / "documents.jsonl"
    documents.write_text('{"id": "a", "title": "angle", "tags": ["x"], "since": "2026-01-02"}\n')
    with pytest.raises(error, match=problem):
        publish(model, documents=str(documents), to=str(tmp_path / "live"), config=replace(CONFIG, columns=columns))


def test_dates_are_kept_as_text_and_lines_without_names_have_no_columns(model, documents, tmp_path):
    dated = tmp_path / "documents.jsonl"
    dated.write_text('{"id": "a", "title": "angle", "since": "2026-01-02"}\n{"id": "b", "title": "hose"}\n')
    config = replace(CONFIG, columns=("since",))
    made = publish(model, documents=str(dated), to=str(tmp_path / "live"), config=config)
    [hit] = OpenRelease(made.uri).search("angle", where={"since": {"lt": "2026-02"}})
    assert hit.columns["since"].startswith("2026-01-02")
    with pytest.raises(StageError, match="no column 'since'"):
        publish(model, documents=documents, to=str(tmp_path / "tsv"), config=config)


@pytest.mark.parametrize("columns", [["id"], ["price", "price"], ["vector"]])
def test_columns_have_names_of_their_own(model, shelf, tmp_path, columns, capsys):
    words = ["publish", "--model", model, "--documents", shelf, "--to", str(tmp_path / "live")]
    assert run([*words, "--set", f"columns={json.dumps(columns)}"]) == 2
    assert "must differ from each other" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "fits"), [
    ("_rowid", False), ("_row_created_at_version", False), ("a`b", False), ("a.b", False),
    ("", False), ("_x", True), ("price EUR", True), ("a'b[0]\"", True), ("Größe", True), ("_distance", True),
])  # fmt: skip
def test_a_release_takes_the_columns_that_its_table_can_hold(tmp_path, name, fits):
    rows = pa.table({"id": ["1"], name: ["x"], "vector": pa.array([[1.0]], pa.list_(pa.float32(), 1))})
    try:
        table = lancedb.connect(tmp_path).create_table("documents", data=rows)
        holds = table.search().select(rows.schema.names).to_arrow()[name].to_pylist() == ["x"]
    except (RuntimeError, ValueError):
        holds = False
    assert holds == fits
    if fits:
        assert PublishConfig(columns=(name,)).columns == (name,)
    else:
        with pytest.raises(UsageError, match="name"):
            changed(PublishConfig(), {"columns": [name]})
