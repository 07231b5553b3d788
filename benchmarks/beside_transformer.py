"""The default, by its whole score and without terms, beside a transformer as it comes and fine-tuned on the same pairs.

    CLICKTOWER_DATA=/path/to/data python benchmarks/beside_transformer.py --dataset homedepot --work /tmp/quality \\
        --run "as it comes=minilm.run" --run fine-tuned=tuned.run --facts fine-tuned=tuned.json

The transformer's runs and facts come from benchmarks/peers/minilm.py and finetuned_minilm.py, fine-tuned on the shards
that this program builds; homedepot_log is the simulated log at k = 5 and 1. The tower has the recipe's shares. The
transformer also stands with BM25's help, whose share of the score is chosen for each half of the dev queries on the
other half (training/ranking/hybrid.py), so that no query chooses what it is measured with. Judged titles only: means
over seeds of each query, paired intervals over queries.

Prints a table and writes benchmarks/results/beside-transformer-DATASET.json.
"""

import argparse
import json
import os
import shlex
import sys
import time
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.less_data import ingest_log, of_log  # noqa: E402
from benchmarks.quality import DATASETS, RESULTS, Judges, build_shards, mean_core_seconds, train  # noqa: E402
from benchmarks.shares import TRAINED_AS, Scores, with_interval  # noqa: E402
from clicktower.schemas.documents import read_documents  # noqa: E402
from clicktower.schemas.judgments import read_run  # noqa: E402
from clicktower.training.model.embedding import TitleEmbeddings  # noqa: E402
from clicktower.training.model.model import load_encoder  # noqa: E402
from clicktower.training.model.recipe import DEFAULT, recipe  # noqa: E402
from clicktower.training.ranking.bm25 import RelativeBM25  # noqa: E402
from clicktower.training.ranking.hybrid import cross_fit, scores_of_pairs  # noqa: E402
from clicktower.training.ranking.measure import System  # noqa: E402
from clicktower.training.ranking.ndcg import CUTOFFS, judged_pairs, ndcg_of_judged  # noqa: E402

LOG = "homedepot_log"
MEASURES = [f"ndcg@{cutoff}" for cutoff in CUTOFFS]
FACTS = ("pairs", "core_seconds", "titles_per_core_second")  # pairs and seconds of training


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True, choices=(*DATASETS, LOG))
    parser.add_argument("--work", required=True, help="folder for the store, as quality.py's")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--run", action="append", default=[], help="NAME=FILE; a name's several files are its seeds")
    parser.add_argument("--facts", action="append", default=[], help="NAME=FILE: what made the run or its model said")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    base = "homedepot" if options.dataset == LOG else options.dataset
    data, work = Path(os.environ["CLICKTOWER_DATA"], base), Path(options.work, base)
    documents = read_documents(str(data / "documents.tsv"))
    dev = Judges(documents, data / "queries.dev.tsv", data / "qrels.dev.txt", DATASETS[base].language)
    judged = judged_pairs(dev.collection.qrels)
    given, shares = f"{TRAINED_AS[DEFAULT]}:{DATASETS[base].settings}", recipe(DEFAULT).clicks

    def scores(system: System) -> np.ndarray:
        return scores_of_pairs(dev.measure(system).judged, judged)

    table: dict[str, list[np.ndarray]] = {}  # the scores of the judged pairs, of each seed
    runs: dict[str, list[np.ndarray]] = {}
    facts: dict[str, dict] = {}
    if options.dataset == LOG:
        day = ingest_log(data, work)
        built = {f", k = {k}": of_log(data, work, day["path"], k) for k in (5, 1)}
    else:
        built = {"": build_shards(data, DATASETS[base], work)}
    for of, shards in built.items():
        trained = [train(given, seed, shards["path"], work / "store", options.threads) for seed in options.seeds]
        models = [load_encoder(one["data"]) for one in trained]
        began = time.process_time()
        for model in models:
            TitleEmbeddings(model, documents.titles)
        rate = len(models) * len(documents.titles) / (time.process_time() - began)
        of_models = [Scores(model, dev, words=True) for model in models]
        for row, lexical_share in (DEFAULT, shares.lexical_share), (f"{DEFAULT}, without terms", 0.0):
            table[row + of] = [scores(one.by(shares.word_share, lexical_share)) for one in of_models]
        facts[DEFAULT + of] = {
            "pairs": shards["counts"]["train_pairs"],
            "core_seconds": mean_core_seconds(trained),
            "titles_per_core_second": round(rate),
        }
    for name, file in (one.rsplit("=", 1) for one in options.run):
        runs.setdefault(name, []).append(scores_of_pairs(read_run(file), judged))
    for name, file in (one.rsplit("=", 1) for one in options.facts):
        said = json.loads(Path(file).read_text(encoding="utf-8"))
        facts.setdefault(name, {}).update({key: said[key] for key in FACTS if key in said})

    terms = scores(RelativeBM25(dev.bm25))
    weights: dict[str, list[tuple[float, float]]] = {}
    for name, seeds in runs.items():
        chosen = [cross_fit(one, terms, judged, dev.collection.queries) for one in seeds]
        weights[name] = [one.of_half for one in chosen]
        by_pair = [np.array([one.of(dev.collection.queries[id]) for id in judged.query_ids]) for one in chosen]
        table[name] = seeds
        table[f"{name} + bm25"] = [
            one + weight[judged.query_of] * terms for one, weight in zip(seeds, by_pair, strict=True)
        ]
    table["bm25"] = [terms]
    values = {  # NDCG [queries, cutoffs], the mean over seeds
        row: np.mean([values_of(ndcg_of_judged(judged, one)) for one in seeds], axis=0) for row, seeds in table.items()
    }
    value = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"python benchmarks/beside_transformer.py {shlex.join(sys.argv[1:])}",
        "dataset": options.dataset,
        "tower": given,
        "seeds": {name: len(seeds) for name, seeds in table.items()},
        "n": len(judged.query_ids),
        "facts": facts,
        "weights": weights,
        "systems": {name: with_interval(of, MEASURES) for name, of in values.items()},
        "between": {
            f"{one} - {two}": with_interval(values[one] - values[two], MEASURES) for one, two in combinations(values, 2)
        },
    }
    (RESULTS / f"beside-transformer-{options.dataset}.json").write_text(json.dumps(value, indent=1) + "\n")
    for name, of in value["systems"].items():
        print(f"{name:<44}" + "".join(f"{figure:>9.4f}" for figure in of["mean"].values()))


def values_of(ndcg: dict[int, np.ndarray]) -> np.ndarray:
    return np.stack([ndcg[cutoff] for cutoff in CUTOFFS], axis=1)


if __name__ == "__main__":
    main()
