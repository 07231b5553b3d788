"""What a log says beyond clicks, conversions and dwell: from its lines to the weights of pairs, each with a fate."""

import csv
import json
from hashlib import sha256

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clicktower.beam_jobs.build.build_stage import BuildConfig, build_shards
from clicktower.beam_jobs.engine.arrow_files import write_table
from clicktower.beam_jobs.ingest.days import DayFile, read_day_file
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log, ingest_request
from clicktower.beam_jobs.sources.mapping import Columns, Events, Mapping
from clicktower.schemas import storage
from clicktower.schemas.errors import UsageError
from clicktower.schemas.search_log import EXPOSURES, QUERIES, VERSION_KEY
from clicktower.schemas.section import named_settings
from tests.beam_jobs.build.day_folders import read_pairs, write_documents

pytestmark = pytest.mark.slow

NAMES = ("id", "who", "query", "what", "document", "seconds")
COLUMNS = {"query_id": "id", "client_id": "who", "query": "query", "event": "what", "document_id": "document"}
MAPPING = Mapping(
    columns=Columns(**COLUMNS, dwell="seconds"),
    min_dwell=10,
    events=Events(click=("click",), conversion={"add_to_cart": 3, "purchase": 5.5, "wish": 0.25}),
    delimiter=",",
)
LINES = [
    ("a", "ann", "hose", "search", None, None),
    ("a", "ann", None, "click", "d1", 9.5),  # click_short
    ("a", "ann", None, "click", "d1", 10),
    ("a", "ann", None, "click", "d2", None),  # a click whose dwell is unknown counts
    ("a", "ann", None, "add_to_cart", "d1", 2),  # no click, so its dwell is nothing
    ("a", "ann", None, "purchase", "d1", None),
    ("a", "ann", None, "purchase", None, None),  # document_missing
    ("a", "ann", None, "return", "d1", None),  # other_action
    ("b", "ben", "hose", "search", None, None),
    ("b", "ben", None, "purchase", "d3", None),  # without a click
    ("b", "ben", None, "wish", "unknown", None),
    ("b", "ben", None, "click", "d4", 3),  # click_short: no pair
    ("c", "ben", None, "purchase", "d3", None),  # search_unknown
    ("d", "cat", "saw", "search", None, None),
    ("d", "cat", None, "wish", "d1", None),  # below k
    ("e", "ann", "hose", "click", "d1", "soon"),  # a dwell that is none, so unknown
]


def _write(folder, form):
    log = folder / f"log.{form}"
    if form == "delimited":
        with open(log, "w", newline="") as file:
            csv.writer(file).writerows([NAMES, *LINES])
        return str(log)
    lines = LINES
    if form == "parquet":  # a column has one type
        lines = [(*line[:-1], line[-1] if line[-1] is None else str(line[-1])) for line in LINES]
        pq.write_table(pa.Table.from_pylist([dict(zip(NAMES, line, strict=True)) for line in lines]), log)
    else:
        log.write_text("".join(json.dumps(dict(zip(NAMES, line, strict=True))) + "\n" for line in lines))
    return str(log)


@pytest.mark.parametrize("form", ["jsonl", "delimited", "parquet"])
def test_conversions_weigh_and_short_clicks_do_not_count(tmp_path, form):
    mapping = MAPPING if form == "delimited" else Mapping(columns=MAPPING.columns, min_dwell=10, events=MAPPING.events)
    config = IngestConfig(format=form, mapping=mapping, max_unreadable_share=0.1)
    store = str(tmp_path / "store")
    day = ingest_log([_write(tmp_path, form)], store=store, config=config)
    assert day.manifest.outcome.ledger.lines == {
        "other_action": 1, "click_short": 2, "search_unknown": 1, "document_missing": 1,
        "day_search": 3, "day_click": 3, "day_conversion": 5,
    }  # fmt: skip
    assert day.manifest.outcome.metrics["wrong_values"] == {"dwell: text": 1}
    assert day.manifest.outcome.counts["conversions"] == 5
    documents = write_documents(tmp_path / "documents.tsv", {f"d{i}": f"Thing {i}" for i in range(1, 9)})
    shards = build_shards([day.folder], documents, store=store, config=BuildConfig(k=2, dev_share=0, num_negatives=2))
    pairs = {row["clicked"]: (row["clicks"], row["weight"]) for row in read_pairs(shards)}
    assert pairs == {"thing 1": (2, 10.5), "thing 2": (1, 1), "thing 3": (0, 5.5)}
    assert all(set(row["excluded"]) == {"thing 1", "thing 2", "thing 3"} for row in read_pairs(shards))
    lines = shards.manifest.outcome.ledger.lines
    assert (lines["click_train"], lines["conversion_train"]) == (3, 3)
    assert (lines["document_unknown"], lines["query_below_k"], lines["click_short"]) == (1, 2, 2)


def test_dwell_and_its_limit_come_together():
    for given in ({"min_dwell": 10}, {"columns": Columns(dwell="seconds")}):
        with pytest.raises(UsageError, match=r"has (min_dwell and no dwell|dwell and no min_dwell)"):
            Mapping(**given)


def test_a_mapping_without_them_makes_the_request_that_it_made_before(tmp_path):
    log = tmp_path / "log"
    log.write_text("x")
    config = IngestConfig(format="jsonl", mapping=Mapping(columns=Columns(query="q", document_id="d")))
    mapping = ingest_request(["log"], "key", config).config["mapping"]
    assert not {"min_dwell"} & set(mapping)
    assert "dwell" not in mapping["columns"]
    assert set(mapping["events"]) == {"search", "impression", "click"}
    assert {"min_dwell", "events", "columns"} <= set(named_settings(MAPPING))
    assert named_settings(MAPPING)["events"]["conversion"]["purchase"] == 5.5


def test_a_day_of_version_1_is_read_as_if_each_click_counted_once(tmp_path):
    """The columns that version 1 wrote, typed in here."""
    metadata = {VERSION_KEY: b"1.0"}
    names = ("query", "document_id", "position", "impressions", "clicks", "dwell_ms")
    kinds = (pa.string(), pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.int64())
    schema = pa.schema([pa.field(*field, nullable=False) for field in zip(names, kinds, strict=True)], metadata)
    exposures = pa.table([["hose", "hose"], ["d1", "d2"], [1, 2], [4, 2], [3, 0], [-1, -1]], schema=schema)
    queries = pa.table([["hose"], [[7]], [2]], schema=QUERIES.with_metadata(metadata))
    tables = {}
    for name, table in (("exposures", exposures), ("queries", queries)):
        path = write_table(table, str(tmp_path), name)
        tables[name] = read_day_file(DayFile(uri=path, sha256=sha256(storage.read_bytes(path)).hexdigest()))
    assert tables["queries"].schema.equals(QUERIES, check_metadata=True)
    assert tables["exposures"].schema.equals(EXPOSURES, check_metadata=True)
    assert tables["queries"].to_pylist() == queries.to_pylist()
    assert [tuple(row.values()) for row in tables["exposures"].to_pylist()] == [
        ("hose", "d1", 1, 4, 3, 0, 3000),
        ("hose", "d2", 2, 2, 0, 0, 0),
    ]
