"""Pairs a second: the trainer beside the same model in stock parts and beside the bound of arithmetic.

    CLICKTOWER_DATA=/path/to/data python benchmarks/training.py [--json] [--record]
    CLICKTOWER_DATA=/path/to/data python benchmarks/training.py --quick          minutes less, figures less sure
    CLICKTOWER_DATA=/path/to/data python benchmarks/training.py --device cuda    our reference path beside cuDNN's

Real queries and titles (homedepot), 96 cells, n = 4, float32. Each variant gets the same pairs, from the shards' index
arrays on: index, gather, forward, backward, reduction, update all count. Before a variant is timed, its loss and its
gradient of one minibatch are compared with the reference path's in float64; a variant that computes something else
ends the benchmark. Then they take turns, and a figure is the median over the rounds.

What is printed:

    ratio_to_plain            the trainer over the fastest arrangement of stock parts found, of the same model: nn.LSTM,
                              or the cell written as a loop in autograd
    ratio_to_three_buckets    ... over the usual good one: sparse gradients, padded, three buckets of like length
    ratio_to_bound            ... over what the processor's fused multiply-adds allow for the products that the model is
                              written in (benchmarks/speed/bound.py)
    ratio_to_bound_of_products_made  ... for those that the trainer makes, which leaves out what texts have in common
    reference_ratio_to_plain  the pure torch path over that arrangement
    exact_to_fast             time of exact over time of fast reduction
    pool_to_independent       pairs/s with shared negatives, as many as pairs, over pairs/s with independent ones
    small_pool_to_independent ... with a shared title for every four pairs

and at each size of a minibatch where an update's time goes (benchmarks/speed/phases.py). Below them encoding, the time
from a query to its vector, several workers on this machine, and the machine. Every other process on the machine shows
in the figures: run it on a quiet one. CLICKTOWER_INSTRUCTIONS=avx2 measures another instruction set, and is recorded
beside the machine's own.
"""

import argparse
import json
import os
import platform
import statistics
import sys
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
import psutil
import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.machine import generation, processor  # noqa: E402
from benchmarks.real_pairs import read_pairs, read_queries, read_titles  # noqa: E402
from benchmarks.speed.agreement import Trainee  # noqa: E402
from benchmarks.speed.bound import flops_made, needs_of, peak_gflops  # noqa: E402
from benchmarks.speed.contest import Entrant, Rates, Tell, in_turns, rounded  # noqa: E402
from benchmarks.speed.encoding import measure_encoding, model_of  # noqa: E402
from benchmarks.speed.phases import measure_operations, measure_phases  # noqa: E402
from benchmarks.speed.several_workers import Setting, measure_workers  # noqa: E402
from benchmarks.speed.trainer import Trainer  # noqa: E402
from benchmarks.speed.variants import (  # noqa: E402
    GOOD_ARRANGEMENTS,
    MOMENTUM,
    SMALL_POOL,
    STEP,
    THREE_BUCKETS,
    Variant,
    base_recipe,
    compare,
    start_of,
    stock,
    trainers,
)
from clicktower.training.kernel.kernel_library import status  # noqa: E402
from clicktower.training.model.parameters import CPU, layout_of  # noqa: E402
from clicktower.training.model.recipe import Recipe  # noqa: E402
from clicktower.training.trainer import clicks  # noqa: E402
from clicktower.training.trainer.gpu_check import open_device  # noqa: E402
from clicktower.training.trainer.job import arithmetic_of  # noqa: E402
from clicktower.training.trainer.kernel_path import CompiledPath  # noqa: E402
from clicktower.training.trainer.shard_data import MicroBatch, Order, ShardData, pair_lengths  # noqa: E402
from clicktower.training.trainer.worker import path_of  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
PAIRS_OF_ROUND, PAIRS_OF_QUICK_ROUND = 4_096, 2_048
NUM_NEGATIVES = 4
KINDS = "compiled", "reference"
PACKAGES = ("torch", "numpy", "pyarrow")
GOALS = {
    "ratio_to_plain": ("at least", 14),
    "ratio_to_three_buckets": ("at least", 14),
    "ratio_to_bound": ("at least", 0.5),
    "ratio_to_bound_at_256": ("at least", 0.45),
    "ratio_to_bound_at_128": ("at least", 0.35),
    "reference_ratio_to_plain": ("at least", 4),
    "exact_to_fast": ("at most", 1.15),
    "pool_to_independent": ("at least", 2),
    "small_pool_to_independent": ("at least", 2),
    "encode_titles_per_second": ("at least", 400_000),
    "encode_ratio_to_stock": ("at least", 4),
    "encode_raw_titles_per_second": ("at least", 200_000),
    "query_p50_microseconds": ("at most", 20),
}


GOALS_ON_A_GPU = {"ratio_to_plain": ("at least", 3)}


class Bench:
    """One machine, one set of pairs."""

    def __init__(self, options: argparse.Namespace, data: ShardData, tell: Tell) -> None:
        self._options, self._data, self._tell = options, data, tell
        self._devices = {"": CPU}
        if options.device == "cuda":
            self._devices = {"eager, ": open_device("cuda-eager"), "fused, ": open_device("cuda")}

    def train(self, minibatch: int) -> dict:
        """The figures of all variants at one size of a minibatch."""
        recipe = base_recipe(self._options.cells, minibatch)
        if self._options.device == "cuda":
            recipe = replace(recipe, micro_batch=minibatch)  # one on a GPU, since each costs its launches
        pairs = PAIRS_OF_QUICK_ROUND if self._options.quick else PAIRS_OF_ROUND
        rounds = minibatches_of_rounds(recipe, self._data, self._options.repeats, pairs)
        variants = self._variants(recipe)

        def tell(message: str) -> None:
            self._tell(f"minibatch {minibatch}, {message}")

        errors = compare(variants, rounds[0][0], self._data, tell)
        trainees = {name: variant.make(STEP, MOMENTUM) for name, variant in variants.items()}
        peaks: list[float] = []
        rates = in_turns(
            {name: entrant(trainee) for name, trainee in trainees.items()},
            rounds,
            num_pairs,
            seconds=self._options.seconds,
            tell=tell,
            before_round=lambda: peaks.append(peak_gflops(self._options.threads)[0]),
        )
        for trainee in trainees.values():
            trainee.close()
        figures = self._figures(recipe, variants, rates, errors, peaks, [m for mini in rounds[0] for m in mini])
        if "compiled" in figures["ours"]:
            bound = figures["bound"]["pairs_per_second"]
            made = variants[figures["ours"]].make(STEP, MOMENTUM)
            assert isinstance(made, Trainer)
            figures["phases"] = measure_phases(
                made, rounds[0], products_seconds=minibatch / bound, threads=self._options.threads
            )
            made.close()
        if self._options.device == "cuda":  # the peak is the CPU's
            made = variants[figures["ours"]].make(STEP, MOMENTUM)
            assert isinstance(made, Trainer)
            figures["operations"] = measure_operations(made, rounds[0])
            made.close()
            figures = {name: value for name, value in figures.items() if "bound" not in name}
        return figures

    def _variants(self, recipe: Recipe) -> dict[str, Variant]:
        device = next(iter(self._devices.values())).place
        threads = self._options.threads
        found = trainers(recipe, self._data, threads=threads, devices=self._devices)
        found |= stock(recipe, self._data, threads=threads, device=device)
        if recipe.minibatch == self._options.minibatch[0] and not self._options.quick:
            return found
        # Elsewhere only what a small minibatch changes: the trainer, and what is best among stock parts.
        return {
            name: variant
            for name, variant in found.items()
            if variant.kind in ("compiled", "reference") or name in GOOD_ARRANGEMENTS
        }

    def _figures(
        self,
        recipe: Recipe,
        variants: dict[str, Variant],
        rates: dict[str, Rates],
        errors: dict[str, float],
        peaks: list[float],
        micro_batches: list[MicroBatch],
    ) -> dict:
        stock_rows = [name for name, variant in variants.items() if variant.kind == "stock"]
        plain = _fastest(stock_rows, rates)
        three = _fastest([name for name in stock_rows if name in THREE_BUCKETS], rates)
        exact = {kind: [n for n, v in variants.items() if v.kind == kind and "exact" in n] for kind in KINDS}
        reference = _fastest(exact["reference"], rates)
        ours = _fastest(exact["compiled"], rates) if exact["compiled"] else reference
        pairs = self._data.train[0]
        columns = layout_of(recipe, self._data.word_rows.trigram_rows).columns
        needs = needs_of(pairs, np.arange(len(pairs)), recipe.tower.cells, columns)
        made = needs.flops_per_pair
        if exact["compiled"]:
            path = path_of(arithmetic_of("compiled", recipe, "cpu"), recipe, CPU, 1, clicks.batch)
            assert isinstance(path, CompiledPath)
            made = flops_made(path, micro_batches, self._data, recipe, columns)

        def of_option(option: str) -> Rates:
            return rates[ours.replace("exact", option)]

        def to_bound(flops: float) -> float:
            shares = (rate * flops / (peak * 1e9) for rate, peak in zip(rates[ours].by_clock, peaks, strict=True))
            return rounded(statistics.median(shares))

        return {
            "ours": ours,
            "plain": plain,
            "ratio_to_plain": rounded(rates[ours].over(rates[plain])),
            "ratio_to_three_buckets": rounded(rates[ours].over(rates[three])),
            "ratio_to_bound": to_bound(needs.flops_per_pair),
            "ratio_to_bound_without_first_words": to_bound(needs.flops_per_pair_without_first_words),
            "ratio_to_bound_of_products_made": to_bound(made),
            "reference_ratio_to_plain": rounded(rates[reference].over(rates[plain])),
            "reference_ratio_to_three_buckets": rounded(rates[reference].over(rates[three])),
            "exact_to_fast": rounded(of_option("fast").over(rates[ours])),
            "pool_to_independent": rounded(of_option("shared negatives").over(rates[ours])),
            "small_pool_to_independent": rounded(of_option(SMALL_POOL).over(rates[ours])),
            "bound": {
                **asdict(needs),
                "flops_per_pair_made": made,
                "peak_gflops": rounded(statistics.median(peaks)),
                "peak_is_of": peak_gflops(self._options.threads)[1],
                "pairs_per_second": rounded(statistics.median(peaks) * 1e9 / needs.flops_per_pair),
            },
            "variants": {
                name: {
                    "kind": variants[name].kind,
                    **rate.summary(),
                    "ratio_to_plain": rounded(rate.over(rates[plain])),
                    "error": rounded(errors[name]),
                }
                for name, rate in rates.items()
            },
        }

    def encode(self, folder: Path) -> dict:
        """Titles a second, and microseconds a query."""
        recipe = base_recipe(self._options.cells, self._options.minibatch[0])
        start = start_of(recipe, self._data.word_rows.trigram_rows)
        return measure_encoding(
            model_of(recipe, start, self._data.word_rows.trigram_rows),
            start,
            read_titles(folder),
            read_queries(folder),
            threads=self._options.threads,
            repeats=self._options.repeats,
            seconds=self._options.seconds,
            tell=self._tell,
        )


def minibatches_of_rounds(
    recipe: Recipe, data: ShardData, repeats: int, pairs: int = PAIRS_OF_ROUND
) -> list[list[list[MicroBatch]]]:
    """The minibatches of each round, from the order of an epoch; after its last full one it begins again."""
    order = Order(
        lengths=[pair_lengths(data.train[0])],
        micro_batch=recipe.micro_batch,
        minibatch=recipe.minibatch,
        seed=recipe.seed,
    )
    whole = [minibatch for minibatch in order.epoch(0) if num_pairs([minibatch]) == recipe.minibatch]
    count = max(1, min(pairs // recipe.minibatch, len(whole)))
    return [[whole[(r * count + i) % len(whole)] for i in range(count)] for r in range(repeats)]


def _fastest(names: list[str], rates: dict[str, Rates]) -> str:
    return max(names, key=lambda name: rates[name].median)


def num_pairs(minibatches: list[list[MicroBatch]]) -> int:
    """The size of a round, for contest.in_turns."""
    return sum(len(micro_batch.pairs) for minibatch in minibatches for micro_batch in minibatch)


def entrant(trainee: Trainee) -> Entrant:
    """A trainee that takes turns."""

    def train(minibatches: list[list[MicroBatch]], passes: int) -> None:
        trainee.train([*minibatches] * passes)

    return train


def measure(options: argparse.Namespace, folder: Path, tell: Tell) -> dict:
    """Everything that is printed, as one JSON object."""
    if hasattr(os, "sched_setaffinity") and options.device == "cpu":  # all variants on as many cores
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    torch.set_num_threads(options.threads)
    load = os.getloadavg()[0]
    data = read_pairs(folder, NUM_NEGATIVES)
    bench = Bench(options, data, tell)
    training = {str(minibatch): bench.train(minibatch) for minibatch in options.minibatch}
    first = training[str(options.minibatch[0])]
    encoding = {} if options.device == "cuda" else bench.encode(folder)
    setting = Setting(
        data=str(folder),
        cells=options.cells,
        minibatch=options.minibatch[0],
        num_negatives=NUM_NEGATIVES,
        steps=2 if options.quick else 8,
    )
    counts = [] if options.device == "cuda" else options.workers
    result = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        **{name: value for name, value in first.items() if "ratio" in name or "_to_" in name},
        **_encoding_figures(encoding),
        "minibatch": options.minibatch[0],
        "pairs": len(data.train[0]),
        "cells": options.cells,
        "negatives": NUM_NEGATIVES,
        "dtype": "float32",
        "threads": options.threads,
        "device": options.device,
        **{
            f"ratio_to_bound_at_{size}": of["ratio_to_bound"] for size, of in training.items() if "ratio_to_bound" in of
        },
        "training": training,
        "encoding": encoding,
        "workers": measure_workers(counts, setting, tell),
        "repeats": options.repeats,
        "notes": NOTES,
        "machine": machine(options) | {"load_before": round(load, 2)},
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
    }
    return result | {"goals": goals(result)}


NOTES = [
    "per_second: pairs (training) or titles (encoding) by the clock, median over the rounds; all of it counts, from the"
    " shards' index arrays to the update, or from the text to the vector",
    "ratios are medians over rounds of two figures of one round",
    "error: the largest relative error of loss and gradients of one minibatch against the float64 reference",
    "stock parts with sparse gradients step the bag by SGD without momentum, which is less than the trainer does",
    "ours of the ratios: exact reduction, independent negatives",
]


def _encoding_figures(encoding: dict) -> dict:
    if not encoding:
        return {}
    variants, latency = encoding["variants"], encoding["latency"]
    return {
        "encode_titles_per_second": variants["pre-tokenised"]["per_second"],
        "encode_raw_titles_per_second": variants["raw"]["per_second"],
        "encode_ratio_to_stock": encoding["ratio_to_stock"],
        "query_p50_microseconds": latency["ours"]["p50_microseconds"],
        "query_p99_microseconds": latency["ours"]["p99_microseconds"],
    }


def goals(result: dict) -> dict[str, dict]:
    """Each goal with the figure and whether it is met; without those that were not measured, or are of all cores."""
    found = {}
    for name, (kind, goal) in (GOALS_ON_A_GPU if result["device"] == "cuda" else GOALS).items():
        of_cores = name.endswith("per_second") and result["threads"] == 1
        if (value := result.get(name)) is not None and not of_cores:
            met = value >= goal if kind == "at least" else value <= goal
            found[name] = {"figure": value, "goal": f"{kind} {goal:,}", "met": met}
    return found


def machine(options: argparse.Namespace) -> dict:
    found = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "torch_instructions": torch.backends.cpu.get_cpu_capability(),
        "kernel_instructions": status().instructions,
        "kernel": status().reason,
    }
    if options.device == "cuda":
        found["gpu"] = torch.cuda.get_device_name()
    return found


def table(result: dict) -> str:
    rows = []
    for minibatch, figures in result["training"].items():
        rows.append(f"minibatch {minibatch}{'pairs/s':>68}{'per core-second':>17}{'to plain':>10}{'error':>9}")
        for name, row in sorted(figures["variants"].items(), key=lambda item: -item[1]["per_second"]):
            rows.append(
                f"  {name:<70}{row['per_second']:>8,}{row['per_second_of_processor']:>17,}"
                f"{row['ratio_to_plain']:>10.2f}{row['error']:>9.0e}"
            )
        if bound := figures.get("bound"):
            rows.append(f"  {'the bound of arithmetic: ' + bound['peak_is_of']:<70}{bound['pairs_per_second']:>8,}")
        if phases := figures.get("phases"):
            shares = ", ".join(f"{what} {share:.0%}" for what, share in phases["share"].items())
            rows.append(f"  an update takes {phases['milliseconds']['update']} ms: {shares}")
            memory = ", ".join(f"{what} {share:.0%}" for what, share in phases["of_memory_bound"].items())
            rows.append(
                f"  products at the peak would be {phases['share_of_products_at_peak']:.0%} of it; of what memory's"
                f" {phases['memory_gigabytes_per_second']:.0f} GB/s allow: {memory}"
            )
        rows.append("")
    if result["encoding"]:
        rows.append(f"encoding{'titles/s':>70}")
        for name, row in result["encoding"]["variants"].items():
            rows.append(f"  {name:<70}{row['per_second']:>6,}")
        for name, row in result["encoding"]["latency"].items():
            rows.append(f"  one query, {name}: p50 {row['p50_microseconds']} µs, p99 {row['p99_microseconds']} µs")
        rows.append("")
    for row in result["workers"]:
        rows.append(
            f"{row['workers']} workers: {row['bytes_per_step'] / 1e6:.1f} MB a step each"
            f" ({row['bytes_on_the_wire_per_step'] / 1e6:.1f} MB on the wire), {1e3 * row['seconds_per_step']:.0f} ms,"
            f" of which {1e3 * row['seconds_in_sums_per_step']:.0f} ms in sums ({row['arithmetic']})"
        )
    rows.append("")
    for name, goal in result["goals"].items():
        rows.append(f"{name} = {goal['figure']:,} (goal: {goal['goal']}){'' if goal['met'] else ' - not reached'}")
    return "\n".join(rows)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7, help="rounds; a figure is the median over them")
    parser.add_argument(
        "--seconds", type=float, default=0.5, help="each variant is busy for at least about this a round"
    )
    parser.add_argument(
        "--minibatch", type=int, nargs="+", default=[1024, 256, 128], help="the ratios are those of the first"
    )
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4, 8], help="simulated on this machine")
    parser.add_argument("--threads", type=int, default=2, help="and cores")
    parser.add_argument("--cells", type=int, default=96)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="fewer variants, one minibatch, two rounds, two workers")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--record", action="store_true", help="also write it to benchmarks/results/training-HOST.json")
    options = parser.parse_args()
    if options.quick:
        options.repeats, options.seconds = 2, 0.2
        options.minibatch, options.workers = options.minibatch[:1], options.workers[:2]
    return options


def main() -> None:
    options = arguments()
    if "CLICKTOWER_DATA" not in os.environ:
        raise SystemExit("set CLICKTOWER_DATA to the folder of real data (it has homedepot/clicks.orcas.tsv)")
    result = measure(options, Path(os.environ["CLICKTOWER_DATA"]), lambda reported: print(reported, file=sys.stderr))
    if options.record:
        RESULTS.mkdir(exist_ok=True)
        forced = os.environ.get("CLICKTOWER_INSTRUCTIONS", "")
        host = generation() if options.device == "cpu" else options.device
        name = "-".join(filter(None, ("training", host.lower().replace(" ", "-"), forced)))
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result) if options.json else table(result))


if __name__ == "__main__":
    main()
