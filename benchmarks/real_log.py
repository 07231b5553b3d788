"""What the pipeline reaches on the real product log, by the commands a user types, beside BM25 and a random order.

    CLICKTOWER_DATA=/path/to/data python benchmarks/real_log.py --work /tmp/real-log [--seeds 1 2 3]

Each training is judged on the dev queries with at least five judged products: k = 1 (a team training on its own log in
private) and k = 5 (the default), with the default recipe and with one that ranks better. The leak check permutes the
clicked titles: what then ranks better than a random order was not learnt from clicks. It starts from two towers that
have nothing in common, since a start by rarity ranks well before any click, and stands beside the same start with the
clicks as they are. Prints a table and writes benchmarks/results/real_log.json: figures by seed, their means, and the
difference of these means to BM25 with intervals of 95% over the queries. The recipes were chosen on these dev queries;
no test set is touched.
"""

import argparse
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.machine import machine  # noqa: E402
from clicktower.training.ranking.ndcg import percentiles, resample  # noqa: E402

POOL = ["--recipe", "lstm-pool-96"]
FROM_NOTHING = [  # vectors alone: terms rank well without a click
    word
    for one in ("start=uniform", "tie_towers=false", "same_start=false", "word_share=0", "lexical_share=0")
    for word in ("--set", f"objective.{one}")
]

RUNS: dict[str, tuple[int, list[str]]] = {
    "k = 1": (1, []),
    "k = 1, lstm-pool-96": (1, POOL),
    "k = 5": (5, []),
    "k = 5, lstm-pool-96": (5, POOL),
    "k = 1, from nothing": (1, FROM_NOTHING),
    "k = 1, from nothing, clicks shuffled": (1, [*FROM_NOTHING, "--set", "objective.shuffle_clicks=true"]),
}
MEASURES = ("ndcg@1", "ndcg@3", "ndcg@10")
RESULTS = Path(__file__).parent / "results" / "real_log.json"


def clicktower(*arguments: str) -> dict:
    """The JSON result of a command; its progress is shown."""
    print("clicktower", *arguments, file=sys.stderr)
    command = [sys.executable, "-m", "clicktower.flows.cli", *arguments, "--json"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True, help="folder for the store")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="training seeds")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    threads = ["--threads", str(options.threads)]
    data, store = Path(os.environ["CLICKTOWER_DATA"]), str(Path(options.work) / "store")
    documents = ["--documents", str(data / "homedepot/documents.tsv")]
    queries = str(data / "homedepot/queries.dev.tsv")
    judged = ["--queries", queries, "--qrels", str(data / "homedepot/qrels.dev.txt"), "--min-judged", "5"]

    day = clicktower("ingest", str(data / "homedepot_log"), "--into", store)
    rows, minus_bm25 = [], {}
    for name, (k, settings) in RUNS.items():
        shards = clicktower(
            "build", "--days", day["path"], *documents, "--judged-queries", queries, "--k", str(k), "--into", store
        )
        differences = []
        for seed in options.seeds:
            given = ["--set", f"seed={seed}", *settings, *threads]
            model = clicktower("train", "--shards", shards["path"], *given, "--into", store)
            evaluated = clicktower("evaluate", "--model", model["path"], *documents, *judged, "--into", store)
            metrics, systems = evaluated["metrics"], _per_query(evaluated["data"])
            differences.append(systems["model"] - systems["bm25"])
            rows.append(
                {
                    "run": name,
                    "seed": seed,
                    "pairs": shards["counts"]["train_pairs"],
                    "train_seconds": model["duration_seconds"],
                    "pairs_per_second": model["metrics"]["pairs_per_second"],
                    "systems": metrics["systems"],
                    "difference_to_bm25": metrics["difference"]["measures"],
                    "n": metrics["n"],
                }
            )
        minus_bm25[name] = _with_interval(np.mean(differences, axis=0))
    summary = {name: _mean([row for row in rows if row["run"] == name]) for name in RUNS}
    summary |= {system: [rows[0]["systems"][system][m]["mean"] for m in MEASURES] for system in ("bm25", "random")}
    print(f"\n{'':<40}" + "".join(f"{m.upper():>10}" for m in MEASURES) + f"   (n = {rows[0]['n']:,})")
    for name, values in summary.items():
        print(f"{name:<40}" + "".join(f"{value:>10.3f}" for value in values))
    ledger = {key: day["ledger"][key] for key in ("total", "lines")}
    RESULTS.parent.mkdir(exist_ok=True)
    value = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "ledger_of_ingest": ledger,
        "mean_over_seeds": summary,
        "seeds": options.seeds,
        "minus_bm25": minus_bm25,
        "runs": rows,
    }
    RESULTS.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def _per_query(folder: str) -> dict[str, np.ndarray]:
    """Each system's measures of each query [queries, MEASURES]."""
    found = json.loads((Path(folder) / "per_query.json").read_text(encoding="utf-8"))["systems"]
    return {name: np.stack([values[m] for m in MEASURES], axis=1) for name, values in found.items()}


def _with_interval(differences_QM: np.ndarray) -> dict[str, dict[str, float]]:
    num_queries = len(differences_QM)
    draws_RM = resample(lambda times_SQ: times_SQ @ differences_QM / num_queries, num_queries, num_resamples=10_000)
    columns = (differences_QM.mean(axis=0), *percentiles(draws_RM, 0.95))
    return {
        measure: dict(zip(("mean", "low", "high"), map(float, figures), strict=True))
        for measure, *figures in zip(MEASURES, *columns, strict=True)
    }


def _mean(rows: list[dict]) -> list[float]:
    return [sum(row["systems"]["model"][m]["mean"] for row in rows) / len(rows) for m in MEASURES]


if __name__ == "__main__":
    main()
