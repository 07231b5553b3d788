"""What a log of a given size costs: slopes measured on two cores, and arithmetic from there.

    python benchmarks/cost_model.py                               1e9 lines a day, 1e8 pairs, 1e7 titles
    python benchmarks/cost_model.py --lines 2e8 --pairs 2e7 --cores 8

The slopes come from benchmarks/results/*.json. What is assumed, and was never measured: that a stage scales with cores
as it did from one to two, that another machine is as fast as this one, and that a real log is like the simulated one.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from statistics import median

RESULTS = Path(__file__).parent / "results"

# Bytes a line of the simulated log, as text and as gzip (`clicktower check` prints both).
TEXT_BYTES, PACKED_BYTES = 280, 34
# Rows of both trigram tables that a minibatch of real product queries and titles touches, by pairs.
TOUCHED_ROWS = {1024: 10_536, 4096: 15_266, 16384: 19_584, 35125: 20_922}
COLUMNS, EXACT_BYTES = 288, 8
HOP_SECONDS = 20e-6
DISK_BYTES_PER_SECOND = 1e9  # one local SSD, written and read in turn
FAST_WIRE = 12.5e9  # 100 Gb/s


@dataclass(frozen=True, kw_only=True, slots=True)
class Slopes:
    """Core-seconds for one unit of each stage's work; `sums`: bytes a second that a worker brings through a sum."""

    ingest_line: float
    ingest_line_of_more: float
    build_line: float
    pairs_per_line: float
    train_pair: float
    encode_title: float
    sums: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What is asked: lines a day, pairs to train on, epochs, titles to publish, cores of a machine."""

    lines: float = 1e9
    pairs: float = 1e8
    epochs: int = 20
    titles: float = 1e7
    cores: int = 16


def measured() -> Slopes:
    """The slopes, read from the recorded results."""
    ten, fifty = _result("preprocessing-10000000"), _result("preprocessing-50000000")
    training = _result("training-zen-5")
    cores = ten["machine"]["cores"]
    first, second = (_seconds(one["variants"]["ours"]["seconds_of_each_run"]) for one in (ten, fifty))
    more_lines = fifty["lines"] - ten["lines"]
    pair = training["training"]["1024"]["variants"]["compiled, exact"]["per_second"]
    two = training["workers"][1]
    return Slopes(
        ingest_line=cores * first["ingest"] / ten["lines"],
        ingest_line_of_more=cores * second["ingest"] / fifty["lines"],
        build_line=cores * (second["build"] - first["build"]) / more_lines,
        pairs_per_line=(fifty["pairs"] - ten["pairs"]) / more_lines,
        train_pair=training["threads"] / pair,
        encode_title=training["threads"] / training["encode_raw_titles_per_second"],
        sums=two["bytes_on_the_wire_per_step"] / two["seconds_in_sums_per_step"],
    )


def _seconds(runs: list[dict[str, float]]) -> dict[str, float]:
    """Of each stage the median over the runs."""
    return {stage: median(run[stage] for run in runs) for stage in runs[0]}


def step_seconds(slopes: Slopes, minibatch: int, machines: int, cores: int, wire: float) -> tuple[float, float]:
    """(computing, in sums) of one update on so many machines, one worker each; `wire` in bytes a second."""
    computing = minibatch * slopes.train_pair / (machines * cores)
    if machines == 1:
        return computing, 0.0
    size = TOUCHED_ROWS[minibatch] * COLUMNS * EXACT_BYTES + 2 * 65536
    ring = 2 * (machines - 1) / machines
    return computing, ring * size / wire + 2 * 2 * (machines - 1) * HOP_SECONDS


def slope_table(slopes: Slopes) -> list[str]:
    ingest, of_more, build, train, encode = (
        1e6 * slope
        for slope in (
            slopes.ingest_line,
            slopes.ingest_line_of_more,
            slopes.build_line,
            slopes.train_pair,
            slopes.encode_title,
        )
    )
    return [
        "| stage | slope | measured in |",
        "|---|---|---|",
        f"| ingest | {ingest:.1f} core-µs per line | `preprocessing-10000000.json` |",
        f"| ingest of five times as many lines | {of_more:.1f} core-µs per line | `preprocessing-50000000.json` |",
        f"| build | {build:.1f} core-µs per line of the window | difference of both |",
        f"| output of build | {slopes.pairs_per_line:.3f} pairs per line | difference of both |",
        f"| train | {train:.0f} core-µs per pair and epoch | `training-zen-5.json`, compiled, exact |",
        f"| sums over workers | {slopes.sums / 1e9:.2f} GB/s per worker | `training-zen-5.json`, two workers |",
        f"| encode | {encode:.1f} core-µs per title | `training-zen-5.json`, raw titles |",
    ]


def stage_table(slopes: Slopes, load: Load) -> list[str]:
    window = load.pairs / slopes.pairs_per_line
    text, packed = load.lines * TEXT_BYTES, load.lines * PACKED_BYTES
    scratch = 2 * text / DISK_BYTES_PER_SECOND
    rows = [
        ("ingest of a day", f"{load.lines:,.0f} lines", slopes.ingest_line * load.lines),
        ("build", f"{load.pairs:,.0f} pairs, of {window:,.0f} lines", slopes.build_line * window),
        ("train", f"{load.pairs:,.0f} pairs, {load.epochs} epochs", slopes.train_pair * load.pairs * load.epochs),
        ("publish: encoding", f"{load.titles:,.0f} titles", slopes.encode_title * load.titles),
    ]
    lines = [f"| stage | work | core-hours | one machine of {load.cores} cores |", "|---|---|---|---|"]
    for name, work, seconds in rows:
        lines.append(f"| {name} | {work} | {seconds / 3600:,.2f} | {_time(seconds / load.cores)} |")
    return [
        *lines,
        "",
        f"A day is {text / 1e9:,.0f} GB of text, {packed / 1e9:,.0f} GB compressed. Its scratch is written and read "
        f"once: {_time(scratch)} for one disk of 1 GB/s.",
    ]


def sum_table(slopes: Slopes, load: Load) -> list[str]:
    lines = [
        "| minibatch | machines | computing | sums, as measured | all epochs | sums, at 100 Gb/s | all epochs |",
        "|---|---|---|---|---|---|---|",
    ]
    for minibatch in (1024, 16384, 35125):
        for machines in (1, 2, 4, 8):
            updates = load.epochs * load.pairs / minibatch
            computing, slow = step_seconds(slopes, minibatch, machines, load.cores, slopes.sums)
            _, fast = step_seconds(slopes, minibatch, machines, load.cores, FAST_WIRE)
            cells = [f"{minibatch:,}", str(machines), f"{computing * 1e3:.0f} ms"]
            for sums in (slow, fast):
                cells += [f"{sums * 1e3:.0f} ms", f"{updates * (computing + sums) / 3600:.1f} h"]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def report(load: Load) -> str:
    """Three tables: slopes, stages, sums over machines."""
    slopes = measured()
    return "\n".join([*slope_table(slopes), "", *stage_table(slopes, load), "", *sum_table(slopes, load)])


def _time(seconds: float) -> str:
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


def _result(name: str) -> dict:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = Load()
    parser.add_argument("--lines", type=float, default=usual.lines, help="lines per day")
    parser.add_argument("--pairs", type=float, default=usual.pairs, help="pairs to train on")
    parser.add_argument("--epochs", type=int, default=usual.epochs)
    parser.add_argument("--titles", type=float, default=usual.titles, help="titles to publish")
    parser.add_argument("--cores", type=int, default=usual.cores, help="cores per machine")
    print(report(Load(**vars(parser.parse_args()))))


if __name__ == "__main__":
    main()
