"""Pairs a second of the paper's LSTM with fewer gates and with all of eq. 2: fewer train faster.

    CLICKTOWER_DATA=/path/to/data python benchmarks/gates.py [--record]

The trainer, as benchmarks/training.py times it: real queries and titles (homedepot), 96 cells, n = 4, minibatches of
1,024, exact sums, on one thread. Each variant's first update is compared with the reference's in float64; then they
take turns, and a ratio is the median over rounds, by the processor's seconds, so that other work on the machine does
not show. Prints a table and, with --record, writes benchmarks/results/gates.json.
"""

import argparse
import json
import os
import statistics
import sys
from datetime import UTC, datetime
from pathlib import Path

import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.real_pairs import read_pairs  # noqa: E402
from benchmarks.speed.contest import in_turns, rounded  # noqa: E402
from benchmarks.speed.variants import MOMENTUM, STEP, base_recipe, compare, trainers  # noqa: E402
from benchmarks.training import NUM_NEGATIVES, RESULTS, entrant, machine, minibatches_of_rounds, num_pairs  # noqa: E402
from clicktower.schemas.section import changed  # noqa: E402
from clicktower.training.kernel.kernel_library import status  # noqa: E402
from clicktower.training.model.parameters import CPU  # noqa: E402

CELLS, MINIBATCH, THREADS = 96, 1_024, 1
GATES = {
    "as in the experiments": {},
    "a forget gate": {"tower.forget_gate": True},
    "peepholes": {"tower.peepholes": True},
    "all of eq. 2": {"tower.forget_gate": True, "tower.peepholes": True},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7, help="rounds; a figure is the median over them")
    parser.add_argument("--seconds", type=float, default=0.5, help="each variant is busy for about this a round")
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/gates.json")
    parser.set_defaults(device="cpu")
    options = parser.parse_args()

    def tell(report: str) -> None:
        print(report, file=sys.stderr)

    torch.set_num_threads(THREADS)
    data = read_pairs(Path(os.environ["CLICKTOWER_DATA"]), NUM_NEGATIVES)
    recipe = base_recipe(CELLS, MINIBATCH)
    name = f"{'compiled' if status().available else 'reference'}, exact"
    variants = {
        gates: trainers(changed(recipe, fields), data, threads=THREADS, devices={"": CPU})[name]
        for gates, fields in GATES.items()
    }
    rounds = minibatches_of_rounds(recipe, data, options.repeats)
    errors = compare(variants, rounds[0][0], data, tell)
    trainees = {gates: variant.make(STEP, MOMENTUM) for gates, variant in variants.items()}
    entrants = {gates: entrant(trainee) for gates, trainee in trainees.items()}
    rates = in_turns(entrants, rounds, num_pairs, seconds=options.seconds, tell=tell)
    for trainee in trainees.values():
        trainee.close()
    fewest = rates[next(iter(GATES))].by_processor
    longer = {
        gates: statistics.median(a / b for a, b in zip(fewest, rate.by_processor, strict=True))
        for gates, rate in rates.items()
    }
    value = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"python benchmarks/gates.py {' '.join(sys.argv[1:])}".strip(),
        "pairs": len(data.train[0]),
        "cells": CELLS,
        "negatives": NUM_NEGATIVES,
        "minibatch": MINIBATCH,
        "threads": THREADS,
        "path": name,
        "machine": machine(options),
        "gates": {
            gates: {**rate.summary(), "time_to_fewest": rounded(longer[gates]), "error": rounded(errors[gates])}
            for gates, rate in rates.items()
        },
    }
    for gates, row in value["gates"].items():
        rate, times = row["per_second_of_processor"], row["time_to_fewest"]
        print(f"{gates:<24}{rate:>8,} pairs a core-second, {times:.2f} times as long")
    if options.record:
        (RESULTS / "gates.json").write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
