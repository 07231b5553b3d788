"""The benchmark's peers find what `ingest` and `build` find, on a simulated log with lines of every odd form added."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from benchmarks.shard_pairs import difference, in_order, read_shard_pairs
from clicktower.beam_jobs.build.build_stage import BuildConfig, build_shards
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from clicktower.flows.simulation.simulation_config import SimulationConfig
from clicktower.flows.simulation.write_simulation import simulate

K = 2
ROOT = Path(__file__).parents[2]
STAMP = '"2026-09-01T10:00:00.000Z"'

# Each form of a search line, and of a click line of the search, is given its own query, id and client. What can be read
# is a pair behind k = 2, what cannot is none.
GOOD = {
    "plain": ({}, {}),
    "epoch": ({"timestamp": "1788256800000"}, {"timestamp": "1788256800000"}),
    "zone": ({"timestamp": '"2026-09-01T12:00:00+02:00"'}, {"timestamp": '"2026-09-01T12:00"'}),
    "no time": ({"timestamp": "null"}, {"timestamp": "null"}),
    "escaped": ({"user_query": r'"\u0065scaped \"quoted\""'}, {"client_id": r'"c\u0041"'}),
    "nothing known": ({"client_id": "$client", "query_attributes": "null"}, {"client_id": "null"}),
    "empty client": ({}, {"client_id": '""'}),
    "other fields": (
        {"session_id": "[1, {}]"},
        {"event_attributes": '{"object": {"object_id": $doc, "x": [null, 1e3]}}'},
    ),
    "index": ({}, {"event_attributes": '{"object": {"object_id": $doc}, "position": {"ordinal": {"index": 3}}}'}),
    "whole float": ({}, {"event_attributes": '{"object": {"object_id": $doc}, "position": {"ordinal": 3.0}}'}),
    "inner id": ({}, {"event_attributes": '{"object": {"object_id": null, "internal_id": $doc}}'}),
    "42": ({"user_query": "42"}, {}),
    "text for attributes": ({"query_attributes": '"Mozilla"'}, {}),
    "text for a rank": ({}, {"event_attributes": '{"object": {"object_id": $doc}, "position": {"ordinal": "third"}}'}),
    "rank below 0": ({}, {"event_attributes": '{"object": {"object_id": $doc}, "position": {"ordinal": -1}}'}),
    "rank beyond": ({}, {"event_attributes": '{"object": {"object_id": $doc}, "position": {"ordinal": 2147483648}}'}),
}
BAD_SEARCHES = {
    "a list": {"user_query": '["a list"]'},
    "flag": {"client_id": "true"},
    "no such day": {"timestamp": '"2026-02-31T10:00:00.000Z"'},
    "no time at all": {"timestamp": '"yesterday"'},
    "half a pair": {"user_query": r'"half a pair \ud800"'},
    "nan": {"user_query": '"nan"', "x": "NaN"},
    "no id": {"query_id": '""'},
}
BAD_CLICKS = {
    "flag for a document": '{"object": {"object_id": true}}',
    "empty document": '{"object": {"object_id": ""}}',
    "text for attributes of a click": '"none"',
}


def line(fields: dict[str, str], changed: dict[str, str], **values: str) -> str:
    text = "{" + ", ".join(f'"{name}": {value}' for name, value in (fields | changed).items()) + "}"
    for name, value in values.items():
        text = text.replace(f"${name}", value)
    return text


def odd_lines(document: str) -> list[bytes]:
    forms = dict(GOOD)
    forms |= {name: (search, {}) for name, search in BAD_SEARCHES.items()}
    forms |= {name: ({}, {"event_attributes": event}) for name, event in BAD_CLICKS.items()}
    lines = []
    for number, (name, (search, click)) in enumerate(forms.items()):
        for person in range(K):
            common = {"query_id": f'"odd-{number}-{person}"', "client_id": "$client", "timestamp": STAMP}
            values = {"client": f'"c{number}-{person}"', "doc": f'"{document}"'}
            lines.append(line({**common, "user_query": f'"{name}"'}, search, **values))
            event = {"action_name": '"click"', "event_attributes": '{"object": {"object_id": $doc}}'}
            lines.append(line({**common, **event}, click, **values))
    lines += [
        "",
        "{}",
        "[" * 10_000,
        '{"index": {"_index": "ubi"}}',
        lines[0],
        lines[1] + "\r",
        '{"query_id": "a"',
        "7",
    ]
    return [text.encode() for text in lines] + [b'{"query_id": "\xff", "user_query": "x"}']


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> tuple[str, str]:
    """(pattern of the log, documents)"""
    folder = tmp_path_factory.mktemp("peers") / "simulated"
    simulate(str(folder), config=SimulationConfig(num_searches=1_500, broken_lines=0.01, searches_per_bot=100))
    document = (folder / "documents.tsv").read_text(encoding="utf-8").split("\t")[0]
    (folder / "log" / "odd.ndjson.gz").write_bytes(gzip.compress(b"\n".join(odd_lines(document))))
    return str(folder / "log" / "*.ndjson.gz"), str(folder / "documents.tsv")


@pytest.fixture(scope="module")
def ours(log, tmp_path_factory) -> pl.DataFrame:
    store = str(tmp_path_factory.mktemp("store"))
    ingest_log([log[0]], store=store, config=IngestConfig())
    shards = build_shards([store], log[1], store=store, config=BuildConfig(k=K))
    return read_shard_pairs(shards.data)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("peer", "too_many"), [("polars_pairs", ()), ("duckdb_pairs", ("nan",)), ("elementwise_beam", ())]
)
def test_a_peer_finds_the_pairs_of_the_shards(peer, too_many, log, ours, tmp_path):
    """`too_many`: what its docstring says it reads otherwise."""
    out = tmp_path / "pairs.parquet"
    command = [sys.executable, "-m", f"benchmarks.peers.{peer}", "--log", log[0], "--documents", log[1]]
    ended = subprocess.run([*command, "--k", str(K), "--out", str(out)], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-2000:]
    json.loads(ended.stdout.splitlines()[-1])
    found = in_order(pl.read_parquet(out))
    assert set(too_many) <= set(found["query"])
    found = found.filter(~pl.col("query").is_in(too_many))
    assert difference(ours, found) is None
    odd = set(found["query"]) & {*GOOD, *BAD_SEARCHES, *BAD_CLICKS, 'escaped "quoted"'}
    assert odd == {*GOOD, 'escaped "quoted"'} - {"escaped"}


@pytest.mark.slow
def test_the_comparison_tells_pairs_that_differ(ours):
    assert len(ours) > 100
    assert ours["dev"].any()
    other = ours.with_columns(clicks=pl.col("clicks") + (pl.int_range(pl.len()) == 7))
    assert "1 only in the first, 1 only in the second" in (difference(ours, other) or "")
    assert difference(ours, ours.head(-1)) is not None
