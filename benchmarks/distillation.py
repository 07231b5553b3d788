"""The effect of a teacher: recipes trained on clicks alone, and distilled from their ensemble or another encoder.

    CLICKTOWER_DATA=/path/to/data python benchmarks/distillation.py --work /tmp/quality [--seeds 1 2 3]
    ... --vectors vectors.parquet --set objective.teacher.share=0.9 objective.teacher.gamma=20

Trains and judges on Home Depot as benchmarks/quality.py does, through the commands a user types. The teacher is what
`combine` makes of every model that was trained on clicks alone, and of the untrained overlap of trigrams (a bag that
hardly moves); or the vectors of another encoder (benchmarks/peers/finetuned_minilm.py), of which minilm.py says how it
ranks. Prints a table and writes benchmarks/results/distillation-homedepot.json, or -vectors.json.
"""

import argparse
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.machine import machine  # noqa: E402
from benchmarks.quality import DATASETS, MEASURES, MIN_JUDGED, RESULTS, build_shards, clicktower, first_grades, train  # noqa: E402
from clicktower.schemas.documents import read_documents  # noqa: E402
from clicktower.schemas.judgments import read_queries  # noqa: E402
from clicktower.training.model.embedding import TitleEmbeddings  # noqa: E402
from clicktower.training.model.model import load_encoder  # noqa: E402
from clicktower.training.ranking.measure import judged_collection, measure  # noqa: E402
from clicktower.training.ranking.ndcg import bootstrap_interval  # noqa: E402

DATASET, RECIPES = "homedepot", ("bag-512", "lstm-96:epochs=10")
UNTRAINED = "bag-512:tower.cells=1024,optimiser.step=1e-9,epochs=1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True, help="folder for the store")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="training seeds")
    parser.add_argument("--recipes", nargs="+", default=RECIPES, help="name or name:field=value,...")
    parser.add_argument("--set", nargs="+", default=["objective.teacher.share=0.5"], help="field=value of the pupils")
    parser.add_argument("--vectors", help="a teacher's, of the texts that `clicktower texts` lists")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    data, work = Path(os.environ["CLICKTOWER_DATA"]) / DATASET, Path(options.work) / DATASET
    store = work / "store"
    shards = build_shards(data, DATASETS[DATASET], work)["path"]
    documents, queries = read_documents(str(data / "documents.tsv")), read_queries(str(data / "queries.dev.tsv"))
    collection = judged_collection(documents, queries, first_grades(data / "qrels.dev.txt"), min_judged=MIN_JUDGED)

    def measured(model: dict) -> np.ndarray:
        """float64 [queries, measures]."""
        per_query = measure(TitleEmbeddings(load_encoder(model["data"]), documents.titles), collection).per_query
        return np.stack([per_query[name] for name in MEASURES], axis=1)

    def seeds_of(recipe: str, *more: str) -> list[dict]:
        return [train(recipe, seed, shards, store, options.threads, *more) for seed in options.seeds]

    alone = {recipe: seeds_of(recipe) for recipe in options.recipes}
    teacher, rows = options.vectors, {}
    if not teacher:
        members = [*(model for models in alone.values() for model in models),
                   train(UNTRAINED, 1, shards, store, options.threads)]  # fmt: skip
        made, _ = clicktower("combine", "--models", *(m["path"] for m in members), "--into", str(store))
        teacher, rows = made["path"], {"the teacher": row_of([measured(made)])}
    for recipe, models in alone.items():
        more = ("--teacher", teacher, *(word for one in options.set for word in ("--set", one)))
        by_itself, taught = (np.stack([measured(model) for model in of]) for of in (models, seeds_of(recipe, *more)))
        low, high = bootstrap_interval((taught - by_itself).mean(axis=0))
        rows |= {recipe: row_of(by_itself), f"{recipe}, taught": row_of(taught) | {
            "difference": {name: [round(float(end), 4) for end in ends]
                           for name, *ends in zip(MEASURES, low, high, strict=True)}}}  # fmt: skip

    for name, row in rows.items():
        print(f"{name:<32}" + "".join(f"{row['mean'][measure_name]:>12.4f}" for measure_name in MEASURES))
    value = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"python benchmarks/distillation.py {' '.join(sys.argv[1:])}",
        "machine": machine(),
        "judged_on": f"dev, at least {MIN_JUDGED} judgments",
        "n": len(collection.qrels),
        "seeds": options.seeds,
        "pupils": options.set,
        "difference": "95% interval of taught minus alone, the mean of the seeds of each query",
        "rows": rows,
    }
    out = RESULTS / f"distillation-{DATASET}{'-vectors' if options.vectors else ''}.json"
    out.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def row_of(values_SQM: "np.ndarray | list[np.ndarray]") -> dict:
    """The mean over the seeds of a row, and each seed's."""
    means = np.stack([values.mean(axis=0) for values in values_SQM]).round(4)
    by_seed = [dict(zip(MEASURES, mean.tolist(), strict=True)) for mean in means]
    return {"mean": dict(zip(MEASURES, means.mean(axis=0).round(4).tolist(), strict=True)), "by_seed": by_seed}


if __name__ == "__main__":
    main()
