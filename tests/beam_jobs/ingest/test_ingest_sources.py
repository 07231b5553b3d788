"""Whole ingests of every form of log: the same day from the same events, every line with one fate."""

import csv
import gzip
import json
from collections import Counter

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.beam_jobs.sources.mapping import Columns, Events, Mapping
from clicktower.schemas import storage
from clicktower.schemas.errors import StageError, UsageError
from tests.beam_jobs.ingest.test_ingest_day import exposures_of, queries_of
from tests.beam_jobs.sources.ubi_lines import event, search

NAMES = ["query_id", "client_id", "query", "document_id", "position", "time", "event", "user_agent", "application"]
COLUMNS = Columns(**{name: name for name in NAMES})
EVENTS = Events(search=("search",), click=("click",))


def _records(num_searches=40):
    for number in range(num_searches):
        query_id, client, minute = f"q{number}", f"c{number % 7}", number % 60
        common = {"query_id": query_id, "client_id": client, "application": "shop"}
        time = f"2026-09-0{1 + number % 9}T10:{minute:02d}:00.000Z"
        yield common | {"event": "search", "query": f"drill {number % 5}", "time": time, "user_agent": "Firefox"}
        for rank in range(1, 4):
            shown = common | {"event": "impression", "document_id": f"D{rank}", "position": rank, "time": time}
            yield shown
            if (number + rank) % 3 == 0:
                yield shown | {"event": "click"}
    yield common | {"event": "add_to_cart", "document_id": "D1", "position": 1, "time": time}
    yield {"query_id": "nowhere", "client_id": "c1", "event": "click", "document_id": "D1", "time": time}
    yield {
        "query_id": "nowhere",
        "client_id": "c1",
        "event": "click",
        "document_id": "D2",
        "time": time,
        "query": "saw",
    }


def _ubi_line(record):
    if record["event"] == "search":
        return search(record["query_id"], record["query"], record["client_id"], record["time"], "Firefox")
    more = {"user_query": record["query"]} if "query" in record else {}
    facts = [record["query_id"], record["event"], record["document_id"], record.get("position"), record["client_id"]]
    return event(*facts, record["time"], **more)


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """(log, config) of the same events in every form."""
    folder = tmp_path_factory.mktemp("logs")
    records = [dict.fromkeys(NAMES) | record for record in _records()]
    ubi, jsonl, tsv, parquet = (folder / name for name in ("ubi.ndjson", "log.jsonl", "log.csv", "log.parquet"))
    ubi.write_bytes(b"".join(_ubi_line(record) + b"\n" for record in _records()))
    jsonl.write_text("".join(json.dumps(record) + "\n" for record in records))
    with open(tsv, "w", newline="") as file:
        writer = csv.DictWriter(file, NAMES)
        writer.writeheader()
        writer.writerows(records)
    table = pa.Table.from_pylist(records)
    table = table.set_column(5, "time", table["time"].cast(pa.timestamp("us", tz="UTC")))
    pq.write_table(table, parquet, row_group_size=50)
    mapping = Mapping(columns=COLUMNS, events=EVENTS)
    return {
        "ubi": (ubi, IngestConfig()),
        "jsonl": (jsonl, IngestConfig(format="jsonl", mapping=mapping)),
        "delimited": (
            tsv,
            IngestConfig(format="delimited", mapping=Mapping(columns=COLUMNS, events=EVENTS, delimiter=",")),
        ),
        "parquet": (parquet, IngestConfig(format="parquet", mapping=mapping)),
    }


@pytest.fixture(scope="module")
def outcomes(logs, tmp_path_factory):
    """What became of them; to be read."""
    store = str(tmp_path_factory.mktemp("outcomes") / "store")
    return {
        name: ingest_log([str(log)], store=store, config=config).manifest.outcome
        for name, (log, config) in logs.items()
    }


@pytest.mark.slow
def test_the_same_events_in_every_form_make_the_same_day(outcomes):
    first = outcomes["ubi"]
    assert first.ledger.lines == {"day_search": 40, "day_impression": 120, "day_click": 41, "other_action": 1,
                                  "search_unknown": 1}  # fmt: skip
    assert first.labels == {}
    for name, outcome in outcomes.items():
        assert outcome.logical_digest == first.logical_digest, name
        assert outcome.ledger == first.ledger, name


@pytest.mark.slow
def test_an_event_without_its_search_makes_its_client_one_of_the_people_of_its_query(tmp_path):
    lines = [
        event("lost1", "click", "D1", 1, "ann", user_query="Saw"),
        event("lost2", "impression", "D1", 1, "ben", user_query="saw"),
        event("lost2", "click", "D1", 1, "ben", user_query="saw"),
        event("lost3", "click", "D1", 1, None, user_query="saw"),
        search("a", "drill", "cat"),
        event("a", "click", "D1", 1, "dan", user_query="something else"),  # the search says what was asked
    ]
    log = tmp_path / "log"
    log.write_bytes(b"\n".join(lines))
    result = ingest_log([str(log)], store=str(tmp_path / "store"), config=IngestConfig())
    assert queries_of(result) == {"drill": (1, 1), "saw": (2, 0)}
    assert exposures_of(result) == {("drill", "D1", 1): (0, 1), ("saw", "D1", 1): (1, 3)}
    assert result.manifest.outcome.ledger.lines == {"day_search": 1, "day_impression": 1, "day_click": 4}


def test_orcas_makes_a_day_that_says_it_has_no_people(tmp_path):
    log = tmp_path / "o.tsv"
    log.write_bytes(b"1\tdrill\tD1\tu1\n1\tdrill\tD2\tu2\n2\tDrill\tD1\tu1\n1\tdrill\tD1\tu1\n")
    result = ingest_log([str(log)], store=str(tmp_path / "store"), config=IngestConfig(format="orcas"))
    outcome = result.manifest.outcome
    assert outcome.labels == {"no_people": True}
    assert outcome.ledger.lines == {"day_click": 3, "repeat": 1}
    assert queries_of(result) == {"drill": (0, 0)}
    assert exposures_of(result) == {("drill", "D1", -1): (0, 2), ("drill", "D2", -1): (0, 1)}


@pytest.mark.slow
def test_homedepot_clicks_add_up_as_polars_adds_them(tmp_path, real_data):
    log = real_data / "homedepot" / "clicks.orcas.tsv"
    result = ingest_log([str(log)], store=str(tmp_path / "store"), config=IngestConfig(format="orcas"))
    names = ["query_id", "query", "document_id", "url"]
    frame = polars.read_csv(
        log, separator="\t", has_header=False, quote_char=None, infer_schema=False, new_columns=names
    )
    outcome = result.manifest.outcome
    assert outcome.ledger.total == frame.height
    assert outcome.ledger.lines["day_click"] + outcome.ledger.lines.get("query_empty", 0) == frame.unique().height
    by_document = Counter()
    for (_, document, _), (_, clicks) in exposures_of(result).items():
        by_document[document] += clicks
    clicked = frame.unique().group_by("document_id").len().rows()
    assert sum(by_document.values()) == outcome.counts["clicks"]
    assert dict(clicked) == dict(by_document)


@pytest.mark.slow
def test_the_ubi_sample_is_read_whole(tmp_path, real_data):
    (log,) = (real_data / "ubi_sample").iterdir()
    result = ingest_log([str(real_data / "ubi_sample")], store=str(tmp_path / "store"), config=IngestConfig())
    with gzip.open(log) as file:
        values = [json.loads(line) for line in file]
    actions = sum(set(value) == {"index"} for value in values)
    searches = {value["query_id"] for value in values if "user_query" in value and "action_name" not in value}
    events = [value for value in values if "action_name" in value]
    lines = result.manifest.outcome.ledger.lines
    assert result.manifest.outcome.ledger.total == len(values) == sum(lines.values()) == 7842
    assert lines["action_line"] == actions == 3921
    assert lines["day_search"] + lines["search_repeated"] > 470
    joinable = [
        value
        for value in events
        if value["action_name"] in ("click", "impression")
        and value["query_id"]
        and ((value["event_attributes"] or {}).get("object") or {}).get("object_id")
    ]
    unknown = [value for value in joinable if value["query_id"] not in searches and not value.get("user_query")]
    assert lines["search_unknown"] == len(unknown) > 0
    assert lines["unreadable_no_query_id"] == 2
    dropped = ("bot_behaviour", "bot_unsure", "bot_crowd", "query_empty", "repeat")
    kept = lines["day_click"] + lines["day_impression"]
    assert len(joinable) - len(unknown) - sum(lines.get(fate, 0) for fate in dropped) <= kept
    assert kept <= len(joinable) - len(unknown)


@pytest.mark.slow
def test_packed_logs_and_uris_make_the_same_day(logs, outcomes, tmp_path):
    log, config = logs["delimited"]
    header, *lines = log.read_bytes().splitlines(keepends=True)
    parts = [header + b"".join(lines[n::4]) for n in range(4)]
    for name, part, pack in (
        ("packed", parts[0], gzip.compress),
        ("squeezed", parts[1], lambda half: pa.compress(half, codec="zstd", asbytes=True)),
    ):
        middle = len(part) // 2
        (tmp_path / name).write_bytes(pack(part[:middle]) + pack(part[middle:]))
    (tmp_path / "plain.csv").write_bytes(parts[2])
    remote = "memory://clicktower-test-logs/log.csv"
    storage.write_atomic(remote, parts[3])
    all_four = [str(tmp_path / "packed"), str(tmp_path / "squeezed"), f"file://{tmp_path / 'plain.csv'}", remote]
    result = ingest_log(all_four, store=str(tmp_path / "store"), config=config)
    assert result.manifest.outcome.logical_digest == outcomes["delimited"].logical_digest
    assert result.manifest.outcome.ledger == outcomes["delimited"].ledger


WRONG = [("ubi", "orcas"), ("ubi", "jsonl"), ("delimited", "ubi"), ("delimited", "orcas"), ("jsonl", "orcas")]


@pytest.mark.slow
@pytest.mark.parametrize(("is_a", "read_as"), WRONG)
def test_a_log_taken_for_another_form_is_refused_without_quoting_it(logs, tmp_path, is_a, read_as):
    config = IngestConfig(format="orcas") if read_as == "orcas" else logs[read_as][1]
    with pytest.raises((StageError, UsageError)) as caught:
        ingest_log([str(logs[is_a][0])], store=str(tmp_path / "store"), config=config)
    assert "drill" not in str(caught.value)
    assert not list((tmp_path / "store").rglob("manifest.json"))


def test_a_parquet_file_taken_for_text_is_told_by_its_first_bytes(logs, tmp_path):
    with pytest.raises(StageError, match="--format parquet"):
        ingest_log([str(logs["parquet"][0])], store=str(tmp_path / "store"), config=IngestConfig())
