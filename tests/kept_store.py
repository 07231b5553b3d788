"""A store and a release as this version writes them, kept for all later versions, which must open them (test_upgrades).

    python -m tests.kept_store      # writes tests/kept/VERSION.tar.xz; once for each version, before its release

Two days of a simulated log, one person erased from them, shards, a model of four cells, an evaluation and a release, by
the commands that a user types; and kept.json, which says what they answered.
"""

import gzip
import io
import json
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

import clicktower
from clicktower.schemas.manifest import Outcome, Request
from clicktower.schemas.stage import run_stage
from clicktower.training.model.model import write_model
from clicktower.training.model.named_recipes import DEFAULT
from clicktower.training.model.named_recipes import recipe as named_recipe
from tests.end_to_end.shop import clicktower as command
from tests.recipes import varied
from tests.trained_model import untrained

KEPT = Path(__file__).parent / "kept"
FILES = {
    "documents.tsv": "documents.tsv",
    "queries.tsv": "judgments/queries.dev.tsv",
    "qrels.txt": "judgments/qrels.dev.txt",
}
STAGES = ("ingest", "build", "train", "evaluate", "publish")
PIPELINE = """
title = "kept"
store = "store"
[log]
files = ["log/{date}.ndjson.gz"]
[documents]
file = "documents.tsv"
[judgments]
queries = "queries.tsv"
qrels = "qrels.txt"
[ingest]
pair_people = true
[build]
k = 1
table_rows = 51000
[train]
threads = 1
start = "store/train/START"
[train.set]
epochs = 1
tower.cells = 4
objective.negatives.size = 32
micro_batch = 32
minibatch = 64
[evaluate]
top_k = 10
num_examples = 2
[publish.set]
index = "ivf"
num_recall_queries = 20
"""


def archives() -> list[Path]:
    """Those of all versions."""
    return sorted(KEPT.glob("*.tar.xz"))


@contextmanager
def opened(archive: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """(the folder of a kept store, its kept.json). Its key has no end: in the year of a test it has long expired."""
    with tempfile.TemporaryDirectory(prefix="kept-") as folder:
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
        key = Path(folder, "store/private/person-key.json")
        key.write_text(json.dumps(json.loads(key.read_text()) | {"expires": "9999-12-31"}))
        yield Path(folder), json.loads(Path(folder, "kept.json").read_text())


def make(folder: Path) -> None:
    run("simulate", str(folder / "data"), "--searches", "200", "--seed", "3", "--set", "days=2", "--set",
        "num_documents=200", "--set", "num_judged_queries=20")  # fmt: skip
    days, people = _split_log(folder / "data/log", folder / "log")
    for name, simulated in FILES.items():
        (folder / "data" / simulated).rename(folder / name)
    pipeline = folder / "pipeline.toml"
    pipeline.write_text(PIPELINE.replace("START", start_model(str(folder / "store"))))
    run("backfill", str(pipeline), "--from", days[0], "--to", days[-1], "--ingest-only")
    erased, person = people
    (folder / "erased.txt").write_text(erased)
    run("erase", "--store", str(folder / "store"), "--client-ids-file", str(folder / "erased.txt"))
    results = run("run", str(pipeline), "--date", days[-1])
    (folder / "kept.json").write_text(json.dumps(said_of(folder, days, person, results), indent=1))


def said_of(folder: Path, days: list[str], person: str, results: dict[str, Any]) -> dict[str, Any]:
    """What kept.json holds: `person`: somebody who searched on the last of the days; `results`: of the run."""
    digests = {stage: results[stage]["digest"] for stage in STAGES}
    release = clicktower.load(str(folder / "release"))
    queries = [line.split("\t")[1] for line in (folder / "queries.tsv").read_text().splitlines()][:3]
    return {
        "version": metadata.version("clicktower"),
        "days": days,
        "person": person,
        "digests": digests,
        "versions": {stage: _version(folder, stage, digest) for stage, digest in digests.items()},
        "ndcg@10": results["evaluate"]["metrics"]["systems"]["model"]["ndcg@10"]["mean"],
        "hits": {
            mode: {query: [[hit.id, hit.score] for hit in release.search(query, 5, mode=mode)] for query in queries}
            for mode in ("hybrid", "vector", "bm25")
        },
        "vectors": {query: release.encode_queries([query])[0].tolist() for query in queries},
    }


def start_model(store: str) -> str:
    """The digest of a model to start from, whose rows repeat: those that no pair touches then take hardly any room."""
    chosen = varied(named_recipe(DEFAULT), cells=4)
    drawn = untrained(chosen)

    def produce(folder: str) -> Outcome:
        towers = {name: matrix[torch.arange(len(matrix)) % 97] for name, matrix in drawn.towers.items()}
        write_model(folder, chosen, drawn.layout, towers)
        return Outcome()

    request = Request(stage="train", stage_version=1, config={"rows": "repeat"}, inputs={})
    return run_stage(store, request, produce).manifest.digest


def run(*words: str) -> dict[str, Any]:
    done = command(*words, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def _split_log(log: Path, into: Path) -> tuple[list[str], list[str]]:
    """(the dates of a log, whose lines are now in a file each; two people who searched on the last of them)."""
    lines, people = defaultdict(list), defaultdict(dict[str, None])
    for line in b"".join(gzip.decompress(file.read_bytes()) for file in sorted(log.iterdir())).splitlines():
        try:
            value = json.loads(line)
            date = value["timestamp"][:10]
        except (ValueError, KeyError, TypeError):  # broken on purpose
            continue
        lines[date].append(line + b"\n")
        if "user_query" in value and value.get("client_id"):
            people[date][value["client_id"]] = None
    into.mkdir()
    for date, of_date in lines.items():
        (into / f"{date}.ndjson.gz").write_bytes(gzip.compress(b"".join(of_date), mtime=0))
    return sorted(lines), [*people[max(lines)]][:2]


def _version(folder: Path, stage: str, digest: str) -> int:
    record = folder / ("release/releases" if stage == "publish" else f"store/{stage}") / digest
    if stage == "publish":
        return json.loads((record / "release.json").read_text())["stage_version"]
    return json.loads((record / "manifest.json").read_text())["request"]["stage_version"]


def archive(folder: Path) -> Path:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:xz", preset=9) as file:
        for name in ("pipeline.toml", "kept.json", "log", *FILES, "store", "release"):
            file.add(folder / name, name)
    KEPT.mkdir(exist_ok=True)
    path = KEPT / f"{metadata.version('clicktower')}.tar.xz"
    path.write_bytes(content.getvalue())
    return path


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="kept-") as folder:
        make(Path(folder))
        path = archive(Path(folder))
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
