"""Kept columns and filters: every search equals that of all documents with the others left out, and numbers are those
of a column.
"""

import json
import operator
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
from clicktower.flows.releases.publish import PublishConfig, publish
from clicktower.flows.releases.search import OpenRelease
from clicktower.flows.serve.service import ServeConfig, make_app
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.section import changed
from clicktower.training.model.recipe import recipe
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


def conditions(value: st.SearchStrategy) -> st.SearchStrategy:
    equal = value | st.none() | st.lists(value | st.none(), max_size=3)
    bounds = dict.fromkeys(("lt", "lte", "gt", "gte"), value)
    operators = st.fixed_dictionaries({}, optional=bounds | {"not": equal, "exists": st.booleans()})
    return equal | operators.filter(bool)


FILTERS = st.fixed_dictionaries({}, optional={name: conditions(value) for name, value in VALUES.items()})


def matches(value, wanted) -> bool:
    """The filter as its documentation describes it, of Python's values, which compare numbers by their worth."""
    if isinstance(wanted, list):
        return value in wanted
    if not isinstance(wanted, dict):
        return value == wanted
    holds = {"lt": operator.lt, "lte": operator.le, "gt": operator.gt, "gte": operator.ge}
    return all(
        (value is not None) == limit if name == "exists"
        else not matches(value, limit) if name == "not"
        else value is not None and holds[name](value, limit)
        for name, limit in wanted.items()
    )  # fmt: skip


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
        ({"price": float("nan")}, "column 'price'"),
        ({"price": {"lt": float("inf")}}, "column 'price'"),
        ({"price": {"lt": None}}, "column 'price'"),
        ({"price": {"gte": True}}, "column 'price'"),
        ({"category": "\ud800"}, "column 'category'"),
        ({"price": {}}, "unknown operator, or none"),
        ({"price": {"near": 3}}, "unknown operator, or none"),
        ({"price": {"exists": 1}}, "neither true nor false"),
        ({"price": {"not": {"lt": 3}}}, "has an object"),
        ([], "no JSON object"),
        ("price", "no JSON object"),
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


PRICES = [19.99, 0.1, -0.0, 5.0, 2.0**24, None]
WIDE = [2**53, 2**53 + 1, -(2**63), 2**63 - 1, 3, None]
TYPED = {
    "float32": pa.array(PRICES, pa.float32()),
    "float64": pa.array(PRICES, pa.float64()),
    "int64": pa.array(WIDE, pa.int64()),
    "int8": pa.array([-128, 127, 0, 2, 3, None], pa.int8()),
    "uint64": pa.array([2**64 - 1, 2**53 + 1, 2**53, 0, 3, None], pa.uint64()),
}
NUMBERS = (
    st.sampled_from([19.99, 0.1, 0.0, -0.0, 5, 2.5, 2**24 + 1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64])
    | st.sampled_from([-(2**63), -(2**63) - 1, -128, -129, 127, 128, -1, 1e300, -1e300, 10**30, 3.0, 126.5])
    | st.integers(-200, 200)
    | st.floats(allow_nan=False, allow_infinity=False)
)


@pytest.mark.parametrize("name", list(TYPED))
@settings(max_examples=150, deadline=None)
@given(condition=conditions(NUMBERS))
def test_a_number_is_compared_in_the_type_of_its_column(name, condition):
    """Python compares whole numbers and floats of 64 bits exactly; a float of the filter is one of the column first."""
    column = TYPED[name]

    def typed(value):
        if isinstance(value, dict):
            return {key: typed(of_key) for key, of_key in value.items()}
        if isinstance(value, list):
            return [typed(each) for each in value]
        if value is None or isinstance(value, bool) or name not in ("float32", "float64"):
            return value
        with np.errstate(over="ignore"):
            return float(np.dtype(name).type(float(value)))

    expected = [row for row, value in enumerate(column.to_pylist()) if matches(value, typed(condition))]
    assert matching_rows(pa.record_batch({"id": column}), {"id": condition}).tolist() == expected


def test_a_number_of_a_filter_by_hand():
    batch = pa.record_batch(TYPED)
    for where, rows in [
        ({"float32": 19.99}, [0]), ({"float32": [19.99]}, [0]), ({"float32": {"lt": 19.99, "gt": 5}}, []),
        ({"float32": 0}, [2]), ({"float32": [0, 5]}, [2, 3]), ({"float32": {"not": [0, 5]}}, [0, 1, 4, 5]),
        ({"int64": 2**53 + 1}, [1]), ({"int64": [2**53 + 1]}, [1]), ({"int64": float(2**53)}, [0]),
        ({"int64": 2.5}, []), ({"int64": [2.5, 3]}, [4]), ({"int64": {"gt": 2.5, "lt": 3.5}}, [4]),
        ({"int64": None}, [5]), ({"int64": [None, 3]}, [4, 5]), ({"int64": {"not": None}}, [0, 1, 2, 3, 4]),
        ({"int64": {"exists": False}}, [5]), ({"int64": {"not": 3, "exists": True}}, [0, 1, 2, 3]),
        ({"int8": {"lt": 1000}}, [0, 1, 2, 3, 4]), ({"int8": 1000}, []), ({"uint64": {"gt": -1, "lt": 1}}, [3]),
    ]:  # fmt: skip
        assert matching_rows(batch, where).tolist() == rows, where


def test_no_json_has_a_number_that_json_does_not_know(model, tmp_path, capsys):
    """NaN and infinite prices are none: to filters, on the command line, over HTTP and in OpenSearch's bodies."""
    prices = [1.5, float("nan"), float("inf"), -float("inf"), None]
    table = {"id": list("abcde"), "title": ["angle"] * 5, "price": pa.array(prices, pa.float32())}
    pq.write_table(pa.table(table | {"half": pa.array(np.float16(prices[:1] * 5))}), tmp_path / "documents.parquet")
    config = replace(CONFIG, columns=("price", "half"))
    to = publish(model, documents=str(tmp_path / "documents.parquet"), to=str(tmp_path / "live"), config=config).uri
    assert run(["search", "angle", "--release", to, "--json", "--where", '{"price": {"exists": false}}']) == 0
    typed = strict_json(capsys.readouterr().out)["hits"]
    assert [(hit["id"], hit["columns"]) for hit in typed] == [(id, {"price": None, "half": 1.5}) for id in "edcb"]
    with TestClient(make_app(ServeConfig(release=to)), "http://127.0.0.1") as client:
        answer = client.post("/v1/search", json={"query": "angle"})
        assert {hit["id"]: hit["columns"]["price"] for hit in strict_json(answer.text)["hits"]} == {
            "a": 1.5, "b": None, "c": None, "d": None, "e": None
        }  # fmt: skip
    export(to, form="opensearch", into=str(tmp_path / "titles"))
    bodies = [strict_json(line) for line in (tmp_path / "titles" / "documents-00000.ndjson").read_text().splitlines()]
    assert [body["price"] for body in bodies[1::2]] == [1.5, None, None, None, None]


def strict_json(text: str):
    def refused(name: str):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refused)


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
        for wrong in ({"size": 1}, {"price": {"near": 1}}, {"price": {"lt": None}}, 3):
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
