"""What a log's packing and the names in it change: exactly what they should, in every form of log."""

import csv
import gzip
import io
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.beam_jobs.sources.mapping import Columns, Events, Mapping
from tests.beam_jobs.ingest.test_ingest_day import exposures_of, queries_of
from tests.beam_jobs.sources.ubi_lines import event, search

pytestmark = pytest.mark.slow

NAMES = ("query_id", "client_id", "query", "document_id", "position", "time", "event")
Record = dict[str, Any]


def _records(seed: int = 7, num_searches: int = 60) -> list[Record]:
    """Searches with what was shown and clicked; a few records are of unknown searches, wordless, or repeats."""
    rng = random.Random(seed)
    records = []
    for number in range(num_searches):
        client, time = f"c{rng.randrange(9)}", f"2026-09-01T10:{number:02d}:00Z"
        visit = {"query_id": f"q{number}", "client_id": client, "time": time}
        text = rng.choice(("angle bracket", "Angle  BRACKET", "café table", "电钻", "?!"))
        records.append(visit | {"event": "search", "query": text})
        for position in range(1, rng.randrange(2, 5)):
            shown = visit | {"event": "impression", "document_id": f"D{rng.randrange(12)}", "position": position}
            records += [shown, *([shown | {"event": "click"}] if rng.random() < 0.5 else [])]
    records.append(visit | {"query_id": "nowhere", "event": "click", "document_id": "D1", "position": 1})
    return [dict.fromkeys(NAMES) | record for record in [*records, *rng.sample(records, 5)]]


def _ubi(records: Sequence[Record]) -> bytes:
    lines = []
    for record in records:
        if record["event"] == "search":
            lines.append(search(record["query_id"], record["query"], record["client_id"], record["time"]))
        else:
            names = ("query_id", "event", "document_id", "position", "client_id", "time")
            lines.append(event(*(record[name] for name in names)))
    return b"".join(line + b"\n" for line in lines)


def _jsonl(records: Sequence[Record]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def _delimited(records: Sequence[Record]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, NAMES, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue().encode()


def _parquet(records: Sequence[Record], codec: str = "snappy") -> bytes:
    file = io.BytesIO()
    kinds = {name: pa.int64() if name == "position" else pa.string() for name in NAMES}
    pq.write_table(pa.Table.from_pylist(records, schema=pa.schema(kinds)), file, row_group_size=31, compression=codec)
    return file.getvalue()


MAPPING = {"columns": Columns(**{name: name for name in NAMES}), "events": Events(search=("search",), click=("click",))}
FORMS: dict[str, tuple[Callable[..., bytes], IngestConfig]] = {
    "ubi": (_ubi, IngestConfig()),
    "jsonl": (_jsonl, IngestConfig(format="jsonl", mapping=Mapping(**MAPPING))),
    "delimited": (_delimited, IngestConfig(format="delimited", mapping=Mapping(**MAPPING, delimiter=","))),
    "parquet": (_parquet, IngestConfig(format="parquet", mapping=Mapping(**MAPPING))),
}


@pytest.fixture(scope="module", params=FORMS)
def form(request, tmp_path_factory):
    """(the bytes of records, ingest of files by name, the outcome of all records in one file)"""
    write, config = FORMS[request.param]
    store = str(tmp_path_factory.mktemp("store"))

    def ingest(files: dict[str, bytes]):
        folder = tmp_path_factory.mktemp("logs")
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return ingest_log([str(folder)], store=store, config=config)

    return write, ingest, ingest({"log": write(_records())})


def _same(result, whole, *, but: dict[str, int] | None = None) -> None:
    """Rows and ledger are those of the whole log, except that each of these fates has so many more lines."""
    seen, expected = result.manifest.outcome, whole.manifest.outcome
    assert not result.reused
    assert seen.logical_digest == expected.logical_digest
    lines = expected.ledger.lines
    assert seen.ledger.lines == lines | {fate: lines.get(fate, 0) + more for fate, more in (but or {}).items()}


def test_order_pieces_names_and_packing_change_nothing(form):
    write, ingest, whole = form
    records = _records()
    random.Random(1).shuffle(records)
    pieces = [records[number::3] for number in range(3)]
    if write is _parquet:
        codecs = zip(pieces, ("none", "zstd", "gzip"), strict=True)
        files = {f"{codec}-9": _parquet(piece, codec) for piece, codec in codecs}
    else:
        packing = {"z": bytes, "y.old": gzip.compress, "x": lambda data: pa.compress(data, "zstd", asbytes=True)}
        files = {name: pack(write(piece)) for (name, pack), piece in zip(packing.items(), pieces, strict=True)}
    _same(ingest(files), whole)


def test_each_record_twice_is_a_repeat_more(form):
    write, ingest, whole = form
    records = _records()
    _same(ingest({"first": write(records), "second": write(records[::-1])}), whole, but={"repeat": len(records)})


@pytest.mark.parametrize("name", ["client_id", "query_id"])
def test_other_ids_of_clients_and_searches_change_no_count(form, name):
    write, ingest, whole = form
    ids = sorted({record[name] for record in _records()})
    numbers = random.Random(2).sample(range(9**6), len(ids))
    other = {id_: f"{number:x}-{name}" for id_, number in zip(ids, numbers, strict=True)}
    result = ingest({"log": write([record | {name: other[record[name]]} for record in _records()])})
    _same(result, whole)
    assert queries_of(result) == queries_of(whole)


def test_other_ids_of_documents_are_in_the_rows_and_change_nothing_else(form):
    write, ingest, whole = form
    other = {f"D{number}": f"document {(number * 5 + 3) % 12}" for number in range(12)}
    renamed = [record | {"document_id": other.get(record["document_id"])} for record in _records()]
    result = ingest({"log": write(renamed)})
    assert result.manifest.outcome.ledger == whole.manifest.outcome.ledger
    assert queries_of(result) == queries_of(whole)
    expected = {(query, other[id_], position): row for (query, id_, position), row in exposures_of(whole).items()}
    assert exposures_of(result) == expected


def test_a_click_less_takes_one_from_its_row_alone(form):
    write, ingest, whole = form
    wordless = {record["query_id"] for record in _records() if record["query"] == "?!"}
    clicks = [record for record in _records() if record["event"] == "click" and record["query_id"] not in wordless]
    others = [record for record in _records() if record != clicks[0]]
    result, repeats = ingest({"log": write(others)}), len(_records()) - len(others) - 1
    expected, seen = exposures_of(whole), exposures_of(result)
    (row,) = (row for row in expected if seen.get(row) != expected[row])
    assert row == ("angle bracket", *(clicks[0][name] for name in ("document_id", "position")))
    assert seen[row] == (expected[row][0], expected[row][1] - 1)
    lines = whole.manifest.outcome.ledger.lines
    less = {"day_click": lines["day_click"] - 1, "repeat": lines["repeat"] - repeats}
    assert result.manifest.outcome.ledger.lines == lines | less
