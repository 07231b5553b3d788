"""A step of training, ours beside stock parts: what the benchmarks that compare one micro-batch's gradient share.

A step is the loss and the gradient of every parameter, on one thread, as the trainer gives a micro-batch. A peer that
computes something else ends the benchmark before anything is timed.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from benchmarks.machine import processor
from benchmarks.speed.contest import Entrant, Rates, rounded

TOLERANCE = 1e-4  # of each gradient's norm; float32 leaves some 1e-6
SAME = {"dtype": "float32", "threads": 1}

Values = Mapping[str, torch.Tensor]


def require_same(name: str, found: tuple[float, Values], expected: tuple[float, Values]) -> float:
    """The largest relative error of (loss, each gradient by name) that ours `found` and a peer `expected`.

    Raises SystemExit beyond TOLERANCE.
    """
    loss, gradients = expected
    worst = abs(found[0] - loss) / abs(loss)
    for part, values in gradients.items():
        worst = max(worst, float(torch.linalg.norm(found[1][part] - values) / torch.linalg.norm(values)))
    if not worst <= TOLERANCE:
        raise SystemExit(f"{name} and ours compute different things: off by {worst:.2g}")
    return worst


def repeated(step: Callable[[Any], object]) -> Entrant:
    """What takes turns: the step of some examples, so many times."""

    def work(examples: Any, passes: int) -> None:
        for _ in range(passes):
            step(examples)

    return work


def figures(rates: Mapping[str, Rates], error: float) -> dict:
    """Ours over each peer, the largest error between them, and everybody's rates."""
    peers = [name for name in rates if name != "ours"]
    return {
        **{f"ratio_to_{name.replace(' ', '_')}": rounded(rates["ours"].over(rates[name])) for name in peers},
        "error": error,
        "variants": {name: rate.summary() for name, rate in rates.items()},
    }


def rows_of(result: Mapping[str, Any], unit: str) -> list[str]:
    """`figures` as lines to read."""
    rows = [f"{'':<14}{f'{unit}/s':>10}{'per core-second':>18}"]
    for name, row in result["variants"].items():
        rows.append(f"{name:<14}{row['per_second']:>10,}{row['per_second_of_processor']:>18,}")
    rows += [f"{name} = {value}" for name, value in result.items() if name.startswith("ratio_")]
    return [*rows, f"largest relative error between them {result['error']:.0e}"]


def step_arguments(description: str, result: Path) -> argparse.ArgumentParser:
    """Options that these benchmarks have alike. `result`: where --record writes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5, help="rounds; a figure is the median over them")
    parser.add_argument("--seconds", type=float, default=1.0, help="each is busy for at least about this a round")
    parser.add_argument("--word-columns", type=int, default=128, help="of a word's vector in stock parts")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--record", action="store_true", help=f"also write it to benchmarks/results/{result.name}")
    return parser


def run(
    parser: argparse.ArgumentParser,
    measure: Callable[[argparse.Namespace, Path], dict],
    table: Callable[[dict], str],
    result_path: Path,
) -> None:
    """Measure on one thread what the command line asks for; print it, and record it if asked."""
    options = parser.parse_args()
    if "CLICKTOWER_DATA" not in os.environ:
        raise SystemExit("set CLICKTOWER_DATA to the folder of real data (it has question_pairs/train.tsv)")
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    result = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        **measure(options, Path(os.environ["CLICKTOWER_DATA"])),
        **SAME,
        "repeats": options.repeats,
        "machine": {"processor": processor(), "cores": os.cpu_count(), "load_before": round(load, 2)},
        "torch": torch.__version__,
    }
    if options.record:
        result_path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result) if options.json else table(result))


def tell(output: str) -> None:
    """Progress, apart from the result."""
    print(output, file=sys.stderr)
