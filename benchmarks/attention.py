"""What the penalty of a self-attentive tower does: how much its hops overlap, and how well it ranks.

    CLICKTOWER_DATA=/path/to/data python benchmarks/attention.py --work /tmp/quality [--seeds 1 2 3] [--epochs 3]

Trains and judges on Home Depot as benchmarks/quality.py does, through the commands a user types. Overlap of a text's
hops is the mean of A Aᵀ off its diagonal, here over dev queries and every 50th title of at least two words; beside it
what hops that weight all words alike would have, 1 / words. Prints a table and writes
benchmarks/results/attention-homedepot.json.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.machine import machine  # noqa: E402
from benchmarks.quality import DATASETS, MIN_JUDGED, RESULTS, build_shards, first_grades, train  # noqa: E402
from clicktower.schemas.documents import read_documents  # noqa: E402
from clicktower.schemas.judgments import read_queries  # noqa: E402
from clicktower.schemas.text_contract import words  # noqa: E402
from clicktower.training.analysis.traces import overlap, trace  # noqa: E402
from clicktower.training.model.embedding import Side, TitleEmbeddings  # noqa: E402
from clicktower.training.model.model import Model, load_model  # noqa: E402
from clicktower.training.ranking.measure import judged_collection, measure  # noqa: E402

DATASET, EVERY = "homedepot", 50
RECIPES = (
    "lstm-96",
    *(f"self-attentive:tower.penalty={penalty}" for penalty in (0, 1, 0.1)),
    "max-pooled",
    "variational",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True, help="folder for the store")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="training seeds")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--recipes", nargs="+", default=RECIPES, help="name or name:field=value,field=value")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    data, work = Path(os.environ["CLICKTOWER_DATA"]) / DATASET, Path(options.work) / DATASET

    shards = build_shards(data, DATASETS[DATASET], work)
    documents, queries = read_documents(str(data / "documents.tsv")), read_queries(str(data / "queries.dev.tsv"))
    collection = judged_collection(documents, queries, first_grades(data / "qrels.dev.txt"), min_judged=MIN_JUDGED)
    read: tuple[tuple[Side, Sequence[str]], ...] = (
        ("query", _of_two_words(list(queries.values()))),
        ("document", _of_two_words(documents.titles[::EVERY])),
    )
    rows: dict[str, list[dict[str, float]]] = {}
    for seed in options.seeds:
        for given in options.recipes:
            name, _, settings = given.partition(":")
            with_epochs = f"{name}:" + ",".join(part for part in (settings, f"epochs={options.epochs}") if part)
            trained = train(with_epochs, seed, shards["path"], work / "store", options.threads)
            model = load_model(trained["data"])
            judged = measure(TitleEmbeddings(model, documents.titles), collection).per_query
            row = {f"ndcg@{k}": float(judged[f"ndcg@{k}"].mean()) for k in (1, 3, 10)}
            row |= {
                f"overlap_{side}": _overlap(model, texts, side) for side, texts in read if model.recipe.tower.rows > 1
            }
            row |= {"train_core_seconds": trained["core_seconds"] or np.nan}
            rows.setdefault(with_epochs, []).append(row)
            print(with_epochs, seed, row, flush=True)
    value = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "judged_on": f"dev, at least {MIN_JUDGED} judgments",
        "n": len(collection.qrels),
        "seeds": options.seeds,
        "overlap_of_equal_weights": {side: float(np.mean([1 / len(words(t)) for t in texts])) for side, texts in read},
        "rows": {name: {"mean": _of_seeds(found, np.mean), "sd": _of_seeds(found, np.std), "by_seed": found}
                 for name, found in rows.items()},
    }  # fmt: skip
    for name, row in value["rows"].items():
        print(f"{name:<48}" + "".join(f"  {key} {number:.4f}" for key, number in row["mean"].items()))
    (RESULTS / f"attention-{DATASET}.json").write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def _of_two_words(texts: Sequence[str]) -> list[str]:
    return [text for text in texts if len(words(text)) > 1]


def _overlap(model: Model, texts: Sequence[str], side: Side) -> float:
    found = [overlap(weights) for text in texts if (weights := trace(model, text, side).attention) is not None]
    return float(np.mean([one for one in found if one is not None]))


def _of_seeds(found: Sequence[dict[str, float]], taken) -> dict[str, float]:
    return {key: round(float(taken([row[key] for row in found])), 4) for key in found[0]}


if __name__ == "__main__":
    main()
