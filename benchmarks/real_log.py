"""What the pipeline reaches on the real product log, by the commands a user types, beside BM25 and a random order.

    CLICKTOWER_DATA=/path/to/data python benchmarks/real_log.py --work /tmp/real-log [--seeds 1 2 3]

Each training is judged on the dev queries with at least five judged products: k = 1 (a team training on its own log in
private) and k = 5 (the default), with the default recipe and with one that ranks better. The leak check permutes the
clicked titles: what then ranks better than a random order was not learnt from clicks. It starts from two towers that
have nothing in common, since a start by rarity ranks well before any click, and stands beside the same start with the
clicks as they are. Prints a table and writes benchmarks/results/real_log.json. The recipes were chosen on these dev
queries; no test set is touched.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

POOL = ["--recipe", "lstm-pool-96"]
FROM_NOTHING = [
    word for one in ("start=uniform", "tie_towers=false", "same_start=false") for word in ("--set", f"objective.{one}")
]

RUNS: dict[str, tuple[int, list[str]]] = {
    "k = 1": (1, []),
    "k = 1, lstm-pool-96": (1, POOL),
    "k = 5": (5, []),
    "k = 5, lstm-pool-96": (5, POOL),
    "k = 1, from nothing": (1, FROM_NOTHING),
    "k = 1, from nothing, clicks shuffled": (1, [*FROM_NOTHING, "--set", "shuffle_clicks=true"]),
}
MEASURES = ("ndcg@1", "ndcg@3", "ndcg@10")
RESULTS = Path(__file__).parent / "results" / "real_log.json"


def clicktower(*arguments: str) -> dict:
    """The JSON result of a command; its progress is shown."""
    print("clicktower", *arguments, file=sys.stderr)
    command = [sys.executable, "-m", "flows.cli", *arguments, "--json"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True, help="folder for the store")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="training seeds")
    options = parser.parse_args()
    data, store = Path(os.environ["CLICKTOWER_DATA"]), str(Path(options.work) / "store")
    documents = ["--documents", str(data / "homedepot/documents.tsv")]
    queries = str(data / "homedepot/queries.dev.tsv")
    judged = ["--queries", queries, "--qrels", str(data / "homedepot/qrels.dev.txt"), "--min-judged", "5"]

    day = clicktower("ingest", str(data / "homedepot_log"), "--into", store)
    rows = []
    for name, (k, settings) in RUNS.items():
        shards = clicktower(
            "build", "--days", day["path"], *documents, "--judged-queries", queries, "--k", str(k), "--into", store
        )
        for seed in options.seeds:
            given = ["--set", f"seed={seed}", *settings]
            model = clicktower("train", "--shards", shards["path"], *given, "--into", store)
            metrics = clicktower("evaluate", "--model", model["path"], *documents, *judged, "--into", store)["metrics"]
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
    summary = {name: _mean([row for row in rows if row["run"] == name]) for name in RUNS}
    summary |= {system: [rows[0]["systems"][system][m]["mean"] for m in MEASURES] for system in ("bm25", "random")}
    print(f"\n{'':<40}" + "".join(f"{m.upper():>10}" for m in MEASURES) + f"   (n = {rows[0]['n']:,})")
    for name, values in summary.items():
        print(f"{name:<40}" + "".join(f"{value:>10.3f}" for value in values))
    ledger = {key: day["ledger"][key] for key in ("total", "lines")}
    RESULTS.parent.mkdir(exist_ok=True)
    value = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, no accelerator",
        "ledger_of_ingest": ledger,
        "mean_over_seeds": summary,
        "runs": rows,
    }
    RESULTS.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def _mean(rows: list[dict]) -> list[float]:
    return [sum(row["systems"]["model"][m]["mean"] for row in rows) / len(rows) for m in MEASURES]


if __name__ == "__main__":
    main()
