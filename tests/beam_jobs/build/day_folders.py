"""Day folders made by hand, in the form that ingest writes them, and shards read back as texts."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from clicktower.beam_jobs.engine.arrow_files import write_table
from clicktower.schemas import storage
from clicktower.schemas.ledger import Ledger
from clicktower.schemas.manifest import Outcome, Request
from clicktower.schemas.search_log import EXPOSURES, QUERIES
from clicktower.schemas.shard import EXCLUSIONS, PAIRS, POOL, TEXTS, WORDS, open_table
from clicktower.schemas.stage import StageResult, run_stage

Query = tuple[str, Sequence[int], int]  # query, people, searches
Shown = tuple[str, str, int, int, int]  # query, document, position, impressions, clicks


def make_day(
    store: Path | str,
    queries: Sequence[Query],
    shown: Sequence[Shown],
    *,
    logs: Sequence[str] = ("log-1",),
    person_key: str = "key-1",
    labels: dict | None = None,
    repeats: int = 0,
) -> str:
    """The folder of a finished ingest that holds these rows, and `repeats` lines that ingest dropped."""
    request = Request(
        stage="ingest",
        stage_version=1,
        config={},
        inputs={"logs": list(logs), "person_key": person_key, "rows": [list(queries), list(shown)]},
    )
    lines = {
        "repeat": repeats,
        "day_search": sum(searches for _, _, searches in queries),
        "day_impression": sum(impressions for *_, impressions, _ in shown),
        "day_click": sum(clicks for *_, clicks in shown),
    }

    def produce(folder: str) -> Outcome:
        query_rows = [{"query": q, "people": sorted(people), "searches": s} for q, people, s in queries]
        shown_rows = [
            {
                "query": q,
                "document_id": d,
                "position": p,
                "impressions": i,
                "clicks": c,
                "conversions": 0,
                "weight": 1000 * c,
            }
            for q, d, p, i, c in shown
        ]
        half = len(shown_rows) // 2  # rows of a query may be in any file
        write_table(pa.Table.from_pylist(query_rows, schema=QUERIES), folder, "queries-00000")
        write_table(pa.Table.from_pylist(shown_rows[:half], schema=EXPOSURES), folder, "exposures-00000")
        write_table(pa.Table.from_pylist(shown_rows[half:], schema=EXPOSURES), folder, "exposures-00001")
        return Outcome(ledger=Ledger(total=sum(lines.values()), lines=lines), labels=labels or {})

    return run_stage(str(store), request, produce).folder


def write_documents(path: Path, titles: dict[str, str]) -> str:
    path.write_text("".join(f"{i}\t{title}\n" for i, title in titles.items()), encoding="utf-8")
    return str(path)


def read_pairs(result: StageResult) -> list[dict]:
    """Every pair of a build as texts, sorted: split, query, clicked, negatives, clicks, excluded and so on."""
    pool_titles = [row["title"] for row in read_pool(result)]
    pairs = []
    for entry in read_catalogue(result)["shards"]:
        folder = storage.join(result.data, entry["name"])
        open_table(storage.join(folder, "words.arrow"), WORDS)
        text = open_table(storage.join(folder, "texts.arrow"), TEXTS)["text"].to_pylist()
        excluded = open_table(storage.join(folder, "exclusions.arrow"), EXCLUSIONS)["rows"].to_pylist()
        for row in open_table(storage.join(folder, "pairs.arrow"), PAIRS).to_pylist():
            row |= {"split": entry["split"], "shard": entry["name"]}
            row |= {"query": text[row["query"]], "clicked": text[row["clicked"]]}
            row |= {"negatives": [text[i] for i in row["negatives"]]}
            row |= {"excluded": [pool_titles[i] for i in excluded[row.pop("exclusion")]]}
            pairs.append(row)
    return sorted(pairs, key=lambda row: (row["query"], row["clicked"]))


def read_pool(result: StageResult) -> list[dict]:
    """The pool in its order: document_id, title, probability."""
    folder = storage.join(result.data, "pool")
    text = open_table(storage.join(folder, "texts.arrow"), TEXTS)["text"].to_pylist()
    rows = open_table(storage.join(folder, "pool.arrow"), POOL).to_pylist()
    return [
        {"document_id": row["document_id"], "title": text[row["text"]], "probability": row["probability"]}
        for row in rows
    ]


def read_catalogue(result: StageResult) -> dict:
    return json.loads(storage.read_bytes(storage.join(result.data, "catalogue.json")))
