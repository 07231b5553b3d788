"""A log through both jobs: however it is cut into days, the shards hold the same rows, and every line has a fate."""

import json
import random
from pathlib import Path

import pytest

from clicktower.beam_jobs.build.build_stage import BuildConfig, build_shards
from clicktower.beam_jobs.ingest.ingest_stage import IngestConfig, ingest_log
from tests.beam_jobs.build.day_folders import read_pairs, write_documents

QUERIES = ["Angle Bracket", "angle  bracket", "wood screw", "deck paint", "Türgriff", "garden hose", "secret diary"]
CONFIG = BuildConfig(k=3, num_negatives=2, dev_share=0.3, split_salt="d")  # holds out "wood screw" and "deck paint"


def _searches(seed: int, number: int) -> list[list[str]]:
    """The lines of each search: itself, three impressions, perhaps clicks."""
    draw = random.Random(seed)
    found = []
    for i in range(number):
        query_id, client = f"q{seed}-{i}", f"u{draw.randrange(12)}"
        moment = f"2026-09-{1 + i % 28:02d}T{draw.randrange(24):02d}:{draw.randrange(60):02d}:00Z"
        query = draw.choice(QUERIES[:-1]) if i % 40 else QUERIES[-1]
        if query == QUERIES[-1]:
            client = "u1"
        head = {"query_id": query_id, "client_id": client, "timestamp": moment, "application": "shop"}
        lines = [json.dumps(head | {"user_query": query, "user_agent": "Mozilla/5.0 (X11) Firefox/130"})]
        for rank in range(1, 4):
            shown = {"object": {"object_id": f"d{draw.randrange(200)}"}, "position": {"ordinal": rank}}
            for action in ("impression", "click")[: 1 + (draw.random() < 0.4)]:
                lines.append(json.dumps(head | {"action_name": action, "event_attributes": shown}))
        found.append(lines)
    return found


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Two files whose searches are disjoint, a documents file that lacks ten of the ids, and a folder for a store."""
    folder = tmp_path_factory.mktemp("log")
    names = []
    for seed in (1, 2):
        lines = [line for search in _searches(seed, 120) for line in search]
        random.Random(seed).shuffle(lines)
        path = folder / f"log-{seed}.ndjson"
        path.write_text("\n".join([*lines, "not json"]) + "\n")
        names.append(str(path))
    documents = write_documents(folder / "documents.tsv", {f"d{i}": f"Thing number {i // 2}" for i in range(190)})
    return names, documents, str(folder / "store")


@pytest.fixture(scope="module")
def days(log):
    """The folders of the two files as two days; to be read."""
    files, _, store = log
    return [ingest_log([file], store=store, config=IngestConfig()).folder for file in files]


@pytest.fixture(scope="module")
def shards_of_both(log, days):
    """The shards of the two days together; to be read."""
    _, documents, store = log
    return build_shards(days, documents, store=store, config=CONFIG)


@pytest.mark.slow
def test_one_day_and_two_days_of_one_log_make_the_same_shards(log, shards_of_both):
    files, documents, store = log
    whole = ingest_log(files, store=store, config=IngestConfig())
    one, two = build_shards([whole.folder], documents, store=store, config=CONFIG), shards_of_both

    assert two.folder != one.folder
    assert two.manifest.outcome.logical_digest == one.manifest.outcome.logical_digest
    assert read_pairs(two) == read_pairs(one)
    assert two.manifest.outcome.ledger == one.manifest.outcome.ledger
    ledger = one.manifest.outcome.ledger
    assert ledger.total == sum(Path(file).read_bytes().count(b"\n") for file in files)
    assert ledger.lines["unreadable_not_json"] == 2
    fates = ("search", "impression", "click_train", "click_dev", "query_below_k", "document_unknown")
    assert all(ledger.lines[fate] > 0 for fate in fates)
    assert "secret diary" not in {row["query"] for row in read_pairs(one)}


@pytest.mark.slow
def test_a_new_day_leaves_the_held_out_queries_held_out(log, days, shards_of_both):
    _, documents, store = log
    before = build_shards(days[:1], documents, store=store, config=CONFIG)
    split_before = {row["query"]: row["split"] for row in read_pairs(before)}
    split_after = {row["query"]: row["split"] for row in read_pairs(shards_of_both)}
    assert set(split_before.values()) == {"train", "dev"}
    assert split_before.items() <= split_after.items()
