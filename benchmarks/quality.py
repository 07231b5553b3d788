"""How well recipes rank on real judgments: alone, as ensembles over seeds or towers, and with BM25.

    CLICKTOWER_DATA=/path/to/data python benchmarks/quality.py --dataset homedepot --work /tmp/quality [--seeds 1 2 3]

Trains on what stands for clicks: homedepot's clicks.orcas.tsv, elsewhere the train judgments of high grades, written as
such a log. Judges on dev, whose queries are kept out of training; everything goes through the commands a user types
(ingest, build, train, combine). Prints a table and writes benchmarks/results/quality-DATASET.json.

Times are seconds of one core (the processor time of all threads), so that other work on the machine does not show.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from schemas.documents import read_documents  # noqa: E402
from schemas.judgments import read_queries  # noqa: E402
from training.models.model import load_encoder  # noqa: E402
from training.ranking.bm25 import TitleBM25  # noqa: E402
from training.ranking.embedding import TitleEmbeddings  # noqa: E402
from training.ranking.hybrid import Hybrid, cross_fit, scores_of_pairs  # noqa: E402
from training.ranking.measure import (  # noqa: E402  # noqa: E402
    JudgedCollection,
    Measured,
    RandomOrder,
    System,
    judged_collection,
    measure,
)
from training.ranking.ndcg import judged_pairs  # noqa: E402
from training.ranking.significance import bootstrap_interval, randomisation_p  # noqa: E402

RESULTS = Path(__file__).parent / "results"
MEASURES = ("ndcg@1", "ndcg@3", "ndcg@10", "collection_recall@100")
MIN_JUDGED = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    """What stands for clicks, and which recipes are tried, each as `name` or `name:field=value,field=value`.

    Clicks are judgments of `grade` and above, at most `most` of a query; with grade 0, the data's own file of clicks.
    """

    recipes: tuple[str, ...]
    grade: int = 0
    most: int = 0
    table_rows: int = 65_536


TOWERS = ("bag-512", "bag-pool-512", "lstm-96", "lstm-pool-96", "lstm-pool-192")

# Documents of some 150 words: the first 32 of them (docs/quality.md).
FIRST_WORDS = "max_words=32,overflow=truncate"

DATASETS = {
    "homedepot": Dataset(recipes=TOWERS),
    "dbpedia_entity": Dataset(recipes=TOWERS, grade=1, most=100),
    "nfcorpus": Dataset(recipes=tuple(f"{name}:{FIRST_WORDS}" for name in TOWERS), grade=2, most=8),
    # Pairs of characters fall outside a-z and 0-9: each distinct one needs a row of the hashed part of the table.
    "sogou_qt": Dataset(
        recipes=("bag-512", "bag-pool-512", "lstm-96", "lstm-long-96"),
        grade=2,
        most=100,
        table_rows=400_000,
    ),
}


def clicktower(*arguments: str) -> tuple[dict, float]:
    """(the JSON result of a command, the seconds of a core that it took)."""
    print("clicktower", *arguments, file=sys.stderr)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "flows.cli", *arguments, "--json"]
    value = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return value, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True, choices=DATASETS)
    parser.add_argument("--work", required=True, help="folder for the store")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="training seeds")
    parser.add_argument("--recipes", nargs="+", help="instead of the data set's: name or name:field=value,...")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    dataset = DATASETS[options.dataset]
    dataset = replace(dataset, recipes=tuple(options.recipes or dataset.recipes))
    data = Path(os.environ["CLICKTOWER_DATA"]) / options.dataset
    work = Path(options.work) / options.dataset

    shards = build_shards(data, dataset, work)
    trained = {
        given: [train(given, seed, shards["path"], work / "store", options.threads) for seed in options.seeds]
        for given in dataset.recipes
    }
    documents = read_documents(str(data / "documents.tsv"))
    queries, qrels = read_queries(str(data / "queries.dev.tsv")), first_grades(data / "qrels.dev.txt")
    collection = judged_collection(documents, queries, qrels, min_judged=MIN_JUDGED)
    bm25 = TitleBM25(documents.titles)
    table = Table(collection, bm25)
    table.add("random", [RandomOrder(documents.ids)])
    for given, models in trained.items():
        systems, rate = encoded([model["data"] for model in models], documents.titles)
        seconds = sum(model["core_seconds"] for model in models) / len(models)
        table.add(given, systems, train_core_seconds=seconds, titles_per_core_second=rate)
    for name, members in side_by_side(trained).items():
        made, _ = clicktower("combine", "--models", *(m["path"] for m in members), "--into", str(work / "store"))
        systems, rate = encoded([made["data"]], documents.titles)
        seconds = sum(member["core_seconds"] for member in members)
        table.add(name, systems, train_core_seconds=seconds, titles_per_core_second=rate)

    table.print()
    value = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"python benchmarks/quality.py {' '.join(sys.argv[1:])}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, no accelerator",
        "dataset": options.dataset,
        "train_pairs": shards["counts"]["train_pairs"],
        "judged_on": f"dev, at least {MIN_JUDGED} judgments",
        "n": len(collection.qrels),
        "seeds": options.seeds,
        "systems": table.rows,
    }
    (RESULTS / f"quality-{options.dataset}.json").write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def build_shards(data: Path, dataset: Dataset, work: Path) -> dict:
    """The build stage's result. k = 0, since such a log has clicks by nobody."""
    clicks = data / "clicks.orcas.tsv"
    if dataset.grade:
        work.mkdir(parents=True, exist_ok=True)
        clicks = work / "clicks.orcas.tsv"
        clicks.write_text("".join(click_lines(data, dataset)), encoding="utf-8")
    store = str(work / "store")
    day, _ = clicktower("ingest", str(clicks), "--format", "orcas", "--into", store)
    documents, judged = str(data / "documents.tsv"), str(data / "queries.dev.tsv")
    shards, _ = clicktower(
        "build", "--days", day["path"], "--documents", documents, "--judged-queries", judged, "--k", "0",
        "--set", f"table_rows={dataset.table_rows}", "--into", store,
    )  # fmt: skip
    return shards


def click_lines(data: Path, dataset: Dataset) -> list[str]:
    """Judgments of high grades as lines of an ORCAS log; of a query the highest grades first, then as they stand."""
    queries, lines = read_queries(str(data / "queries.train.tsv")), []
    for query_id, grades in first_grades(data / "qrels.train.txt").items():
        high = [document for document, grade in grades.items() if grade >= dataset.grade]
        best_first = sorted(high, key=lambda document: -grades[document])[: dataset.most]
        lines += [f"{query_id}\t{queries[query_id]}\t{document}\t-\n" for document in best_first]
    return lines


def first_grades(path: Path) -> dict[str, dict[str, int]]:
    """TREC qrels; where a pair has two grades, which the pipeline refuses and sogou_qt has a few of, the first."""
    qrels: dict[str, dict[str, int]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        query_id, _, document_id, grade = line.split()
        qrels.setdefault(query_id, {}).setdefault(document_id, int(grade))
    return qrels


def train(given: str, seed: int, shards: str, store: Path, threads: int, *more: str) -> dict:
    """The train stage's result, with `core_seconds`; kept beside the store, since a reused model says nothing of it."""
    name, _, settings = given.partition(":")
    sets = [word for one in [*settings.split(","), f"seed={seed}"] if one for word in ("--set", one)]
    model, seconds = clicktower(
        "train", "--shards", shards, "--recipe", name, "--threads", str(threads), *sets, *more, "--into", str(store)
    )
    kept = store.parent / "core_seconds" / model["digest"]
    if not model["reused"]:
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(str(seconds))
    return model | {"core_seconds": float(kept.read_text())}


def side_by_side(trained: Mapping[str, Sequence[dict]]) -> dict[str, list[dict]]:
    """What is combined: the seeds of each recipe, of each two recipes, and of all."""
    sets = [names for size in (1, 2, len(trained)) for names in combinations(trained, size)]
    found = {names: [model for name in names for model in trained[name]] for names in dict.fromkeys(sets)}
    return {f"{' + '.join(names)}, side by side": models for names, models in found.items() if len(models) > 1}


def encoded(folders: Sequence[str], titles: Sequence[str]) -> tuple[list[System], float]:
    """(a system of each model, titles that the first encodes in a second of one core)."""
    models = [load_encoder(folder) for folder in folders]
    models[0].encode(titles[:1], "document")
    began = time.process_time()
    first = TitleEmbeddings(models[0], titles)
    rate = len(titles) / (time.process_time() - began)
    return [first, *(TitleEmbeddings(model, titles) for model in models[1:])], rate


class Table:
    """Rows: means over the systems of a row (seeds), alone and with BM25 at a weight chosen on the other half."""

    def __init__(self, collection: JudgedCollection, bm25: TitleBM25) -> None:
        self._collection, self._judged, self._bm25 = collection, judged_pairs(collection.qrels), bm25
        self._lexical = measure(bm25, collection)
        self.rows: dict[str, dict] = {"bm25": self._row([self._lexical])}

    def add(self, name: str, systems: Sequence[System], **facts: float) -> None:
        alone = [measure(system, self._collection) for system in systems]
        row = self._row(alone) | {key: round(value, 1) for key, value in facts.items()}
        row["to_bm25"] = self._difference(alone[0])
        if facts:
            found = [self._with_bm25(system, measured) for system, measured in zip(systems, alone, strict=True)]
            row["with_bm25"] = self._row([measured for measured, _ in found]) | {"weights": found[0][1]}
        self.rows[name] = row
        print(name, row, file=sys.stderr)

    def print(self) -> None:
        print(f"\n{'':<44}" + "".join(f"{m.removeprefix('collection_'):>12}" for m in MEASURES))
        for name, row in self.rows.items():
            for label, values in ((name, row), ("    + BM25", row.get("with_bm25"))):
                if values:
                    print(f"{label:<44}" + "".join(f"{values[m]:>12.4f}" for m in MEASURES))

    def _with_bm25(self, system: System, alone: Measured) -> tuple[Measured, tuple[float, float]]:
        first, second = (scores_of_pairs(one.judged, self._judged) for one in (alone, self._lexical))
        weights = cross_fit(first, second, self._judged, self._collection.queries)
        return measure(Hybrid(system, self._bm25, weights), self._collection), weights.of_half

    def _row(self, measured: Sequence[Measured]) -> dict:
        means = np.stack([[one.per_query[m].mean() for m in MEASURES] for one in measured])
        row: dict = dict(zip(MEASURES, means.mean(axis=0).round(4).tolist(), strict=True))
        if len(measured) > 1:
            row["by_seed"] = [dict(zip(MEASURES, mean.round(4).tolist(), strict=True)) for mean in means]
        return row

    def _difference(self, measured: Measured) -> dict:
        """NDCG@10 of the first seed minus BM25's: mean, 95% interval, p."""
        values_Q1 = (measured.per_query["ndcg@10"] - self._lexical.per_query["ndcg@10"])[:, None]
        low, high = bootstrap_interval(values_Q1)
        return {
            "ndcg@10": round(float(values_Q1.mean()), 4),
            "low": round(float(low[0]), 4),
            "high": round(float(high[0]), 4),
            "p": round(float(randomisation_p(values_Q1)[0]), 4),
        }


if __name__ == "__main__":
    main()
