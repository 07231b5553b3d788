"""A log through both jobs: however it is cut into days, the shards hold the same rows, and every line has a fate."""

import json
import random
from pathlib import Path

import pytest

from beam_jobs.build import build
from beam_jobs.build_config import BuildConfig
from beam_jobs.ingest import ingest
from beam_jobs.ingest_config import IngestConfig
from tests.beam_jobs.day_folders import read_pairs, write_documents

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


@pytest.fixture
def log(tmp_path):
    """Two files whose searches are disjoint, and a documents file that lacks ten of the ids."""
    names = []
    for seed in (1, 2):
        lines = [line for search in _searches(seed, 120) for line in search]
        random.Random(seed).shuffle(lines)
        path = tmp_path / f"log-{seed}.ndjson"
        path.write_text("\n".join([*lines, "not json"]) + "\n")
        names.append(str(path))
    documents = write_documents(tmp_path / "documents.tsv", {f"d{i}": f"Thing number {i // 2}" for i in range(190)})
    return names, documents


def test_one_day_and_two_days_of_one_log_make_the_same_shards(log, tmp_path):
    files, documents = log
    store = str(tmp_path / "store")
    whole = ingest(files, store=store, config=IngestConfig())
    days = [ingest([file], store=store, config=IngestConfig()) for file in files]
    one = build([whole.folder], documents, store=store, config=CONFIG)
    two = build([day.folder for day in days], documents, store=store, config=CONFIG)

    assert not two.reused
    assert two.manifest.outcome.logical_digest == one.manifest.outcome.logical_digest
    assert read_pairs(two) == read_pairs(one)
    assert two.manifest.outcome.ledger == one.manifest.outcome.ledger
    ledger = one.manifest.outcome.ledger
    assert ledger.total == sum(Path(file).read_bytes().count(b"\n") for file in files)
    assert ledger.lines["unreadable_not_json"] == 2
    fates = ("search", "impression", "click_train", "click_dev", "query_below_k", "document_unknown")
    assert all(ledger.lines[fate] > 0 for fate in fates)
    assert "secret diary" not in {row["query"] for row in read_pairs(one)}


def test_a_new_day_leaves_the_held_out_queries_held_out(log, tmp_path):
    files, documents = log
    store = str(tmp_path / "store")
    days = [ingest([file], store=store, config=IngestConfig()).folder for file in files]
    before, after = (build(days[:n], documents, store=store, config=CONFIG) for n in (1, 2))
    split_before = {row["query"]: row["split"] for row in read_pairs(before)}
    split_after = {row["query"]: row["split"] for row in read_pairs(after)}
    assert set(split_before.values()) == {"train", "dev"}
    assert split_before.items() <= split_after.items()


def test_the_ledger_of_the_product_log_adds_up_to_every_line(tmp_path, real_data):
    data, store = real_data, str(tmp_path / "store")
    day = ingest([f"{data}/homedepot_log"], store=store, config=IngestConfig())
    result = build(
        [day.folder],
        f"{data}/homedepot/documents.tsv",
        store=store,
        config=BuildConfig(),
        judged_queries=f"{data}/homedepot/queries.dev.tsv",
    )
    outcome = result.manifest.outcome
    assert outcome.ledger.total == sum(outcome.ledger.lines.values()) == 541_918
    pairs = read_pairs(result)
    assert len(pairs) == outcome.counts["train_pairs"] + outcome.counts["dev_pairs"]
    assert all(not set(row["negatives"]) & set(row["excluded"]) for row in pairs)
    splits = {}
    for row in pairs:
        splits.setdefault(row["query"], set()).add(row["split"])
    assert all(len(split) == 1 for split in splits.values())
