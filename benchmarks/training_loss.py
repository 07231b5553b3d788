"""L after each epoch of an LSTM and of an RNN (Fig. 7 of Palangi et al.): the LSTM's is below, over 50 epochs.

    CLICKTOWER_DATA=/path/to/data python benchmarks/training_loss.py --work /tmp/quality [--epochs 50] [--seeds 1 2 3]

Both as printed, of 14.4 M parameters, on Home Depot as benchmarks/quality.py trains them; with one γ, the RNN's own,
since losses of two γ do not compare. The loss is that of all pairs at an epoch's end, per pair (`train
--loss-after-epoch`); beside it the mean of the epoch as it trains, and what held-out pairs lose. Prints a table and,
with --record, writes benchmarks/results/training_loss.json.
"""

import argparse
import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.quality import DATASETS, RESULTS, build_shards, by_epoch, mean_core_seconds, train  # noqa: E402

DATASET, GAMMA = "homedepot", 5
RECIPES = ("paper-lstm-96", "paper-rnn-288")
CURVES = ("train_loss_after", "train_loss", "dev_loss")
SHOWN = (1, 2, 5, 10, 20, 30, 40, 50)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True, help="folder for the store")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="training seeds")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/training_loss.json")
    options = parser.parse_args()
    data, work = Path(os.environ["CLICKTOWER_DATA"]) / DATASET, Path(options.work) / DATASET
    shards = build_shards(data, DATASETS[DATASET], work)
    settings = f"objective.gamma={GAMMA},epochs={options.epochs},objective.loss_after_epoch=true"
    models = {
        name: [
            train(f"{name}:{settings}", seed, shards["path"], work / "store", options.threads) for seed in options.seeds
        ]
        for name in RECIPES
    }
    curves = {
        name: {measure: [by_epoch(model, measure) for model in of] for measure in CURVES} for name, of in models.items()
    }
    for epoch in (epoch for epoch in SHOWN if epoch <= options.epochs):
        losses = (
            f"{name} {' '.join(f'{curve[epoch - 1]:.4f}' for curve in of['train_loss_after'])}"
            for name, of in curves.items()
        )
        print(f"epoch {epoch:>3}  {'   '.join(losses)}")
    value = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"python benchmarks/training_loss.py {' '.join(sys.argv[1:])}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, no accelerator",
        "dataset": DATASET,
        "train_pairs": shards["counts"]["train_pairs"],
        "epochs": options.epochs,
        "gamma": GAMMA,
        "seeds": options.seeds,
        "core_seconds": {name: mean_core_seconds(of) for name, of in models.items()},
        "curves": curves,
    }
    if options.record:
        (RESULTS / "training_loss.json").write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
