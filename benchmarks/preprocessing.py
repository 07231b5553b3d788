"""`ingest` + `build` beside a Polars script, a DuckDB script and element-wise Beam: time, memory, and the same pairs.

    python benchmarks/preprocessing.py --lines 1000000 --work /tmp/preprocessing [--json] [--record]

Every variant is a command (ours: two) on the same simulated log, start-up counted, and they take turns. Whatever is
compared must have found the same pairs (query, title, clicks, dev), or the benchmark fails. `ratio_to_X` is X's time
over ours: above 1, ours is faster. Ours does more than the others: a private aggregate by document and position, a
ledger, excluded documents, negatives, trigram ids, digests.

Element-wise Beam is so slow that it gets a log of `--elementwise-lines`; its time is taken to grow linearly from its
time on next to nothing. `elementwise` is one process, as Beam runs it without options; where the log is so long that
ours takes one for each core, `elementwise_parallel` is the same script in as many. `--skew` measures ours on a skewed
log too (benchmarks/skewed_log.py) and prints the ratio.
"""

import argparse
import json
import os
import platform
import shlex
import shutil
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import polars as pl
import psutil

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.machine import processor  # noqa: E402
from benchmarks.measured_process import Measured, run_measured  # noqa: E402
from benchmarks.shard_pairs import difference, in_order, read_shard_pairs  # noqa: E402
from benchmarks.skewed_log import SHARES, skew_log  # noqa: E402
from clicktower.beam_jobs.engine.engine_options import with_local_workers  # noqa: E402
from clicktower.beam_jobs.sources.read_lines import plan_reading  # noqa: E402
from clicktower.flows.simulation.simulation_config import VERSION, SimulationConfig  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
ELEMENTWISE = ("elementwise", "elementwise_parallel")
PEERS = {"polars": "polars_pairs", "duckdb": "duckdb_pairs", **dict.fromkeys(ELEMENTWISE, "elementwise_beam")}
VARIANTS = ("ours", *PEERS)
LINES_PER_SEARCH = 11.03  # of the simulator's default settings
FEW_LINES = 1_000
PACKAGES = ("apache-beam", "polars", "duckdb", "pyarrow", "numpy", "msgspec")


@dataclass(frozen=True, kw_only=True)
class Log:
    """A log that variants are run on, below `folder`."""

    folder: Path
    documents: Path
    lines: int

    @cached_property
    def pattern(self) -> str:
        return str(self.folder / "*.ndjson.gz")

    @cached_property
    def num_processes(self) -> int:
        """The worker processes that our ingest takes on this machine, without options."""
        chosen = with_local_workers((), plan_reading([self.pattern]).estimated_bytes)
        return int(chosen[-1].rpartition("=")[2]) if chosen else 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run of one variant. `stages`: seconds of each of its commands."""

    stages: dict[str, float]
    peak_bytes: int
    pairs: pl.DataFrame
    queries_at_k: dict[str, int]

    @property
    def seconds(self) -> float:
        return sum(self.stages.values())


class Bench:
    """The commands of all variants, run in a work folder."""

    def __init__(self, work: Path, k: int, runner_options: str) -> None:
        self.work, self._k, self._runner_options = work, k, shlex.split(runner_options)
        # As on a user's machine: compiled once, then kept. Whatever the caller's shell says about it.
        self._env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._env["PYTHONPYCACHEPREFIX"] = str(work / "bytecode")

    def simulated(self, lines: int) -> Log:
        """The simulated log of about so many lines, made unless it is there, by the simulator as it is."""
        searches = max(50, round(lines / LINES_PER_SEARCH))
        asked = json.dumps([VERSION, asdict(SimulationConfig(num_searches=searches))])
        folder = self.work / f"log-{lines}-{sha256(asked.encode()).hexdigest()[:8]}"
        made = self._clicktower("simulate", str(folder), "--searches", str(searches), "--json")
        return Log(
            folder=folder / "log", documents=folder / "documents.tsv", lines=json.loads(made.stdout)["counts"]["lines"]
        )

    def skewed(self, log: Log, skew: str) -> Log:
        folder = log.folder.with_name(f"log-skewed-by-{skew}")
        return Log(folder=folder, documents=log.documents, lines=skew_log(log.folder, log.documents, skew, folder))

    def run(self, variant: str, log: Log) -> Run:
        return self._ours(log) if variant == "ours" else self._peer(variant, log)

    def _ours(self, log: Log) -> Run:
        store = self.work / "store"
        shutil.rmtree(store, ignore_errors=True)
        options = ["--", *self._runner_options] if self._runner_options else []
        into = ["--into", str(store), "--json", *options]
        day = self._clicktower("ingest", log.pattern, *into)
        documents = ["--documents", str(log.documents), "--k", str(self._k)]
        shards = self._clicktower("build", "--days", str(store), *documents, *into)
        result = json.loads(shards.stdout)
        run = Run(
            stages={"ingest": day.seconds, "build": shards.seconds},
            peak_bytes=max(day.peak_bytes, shards.peak_bytes),
            pairs=read_shard_pairs(result["data"]),
            queries_at_k={str(left["k"]): left["queries"] for left in result["metrics"]["left_at_k"]},
        )
        shutil.rmtree(store)
        return run

    def _peer(self, variant: str, log: Log) -> Run:
        out = self.work / f"pairs-{variant}.parquet"
        module = f"benchmarks.peers.{PEERS[variant]}"
        command = [sys.executable, "-m", module, "--log", log.pattern, "--documents", str(log.documents)]
        command += ["--k", str(self._k), "--out", str(out)]
        if variant == "elementwise_parallel":
            command += ["--processes", str(os.cpu_count())]
        made = run_measured(command, cwd=ROOT, env=self._env)
        return Run(
            stages={variant: made.seconds},
            peak_bytes=made.peak_bytes,
            pairs=in_order(pl.read_parquet(out)),
            queries_at_k=json.loads(made.stdout.splitlines()[-1]).get("queries_at_k", {}),
        )

    def _clicktower(self, *arguments: str) -> Measured:
        return run_measured([sys.executable, "-m", "clicktower.flows.cli", *arguments], cwd=ROOT, env=self._env)


def interleaved(
    bench: Bench, tasks: dict[str, tuple[str, Log]], repeats: int, tell: Callable[[str], None]
) -> dict[str, list[Run]]:
    """The runs of each task (variant, log), taking turns. Raises SystemExit where two of one log differ."""
    runs: dict[str, list[Run]] = {name: [] for name in tasks}
    first: dict[Path, tuple[str, Run]] = {}
    for repeat in range(repeats):
        for name, (variant, log) in tasks.items():
            run = bench.run(variant, log)
            tell(f"{repeat + 1}/{repeats} {name}: {run.seconds:.1f} s, {run.peak_bytes / 2**20:,.0f} MiB")
            runs[name].append(run)
            require_equal(first.setdefault(log.folder, (name, run)), (name, run))
    return runs


def require_equal(one: tuple[str, Run], other: tuple[str, Run]) -> None:
    """Raises SystemExit where two runs on one log found other pairs, or counted people otherwise."""
    (name, run), (other_name, other_run) = one, other
    if found := difference(run.pairs, other_run.pairs):
        raise SystemExit(f"{name} and {other_name} do not find the same pairs: {found}")
    for k in run.queries_at_k.keys() & other_run.queries_at_k.keys():
        if run.queries_at_k[k] != other_run.queries_at_k[k]:
            raise SystemExit(
                f"{name} and {other_name} do not count the same people: at k = {k} they keep "
                f"{run.queries_at_k[k]:,} and {other_run.queries_at_k[k]:,} queries"
            )


def summary(runs: list[Run], log: Log) -> dict:
    """The figures of one variant: medians over its runs, and every time."""
    seconds = statistics.median(run.seconds for run in runs)
    return {
        "lines": log.lines,
        "seconds": round(seconds, 3),
        "seconds_of_each_run": [{stage: round(took, 3) for stage, took in run.stages.items()} for run in runs],
        "lines_per_second": round(log.lines / seconds),
        "peak_mib": round(statistics.median(run.peak_bytes for run in runs) / 2**20, 1),
    }


def ratios(figures: dict[str, dict], lines: int) -> dict[str, float | None]:
    """The time of each peer, and its memory, over ours; None for a peer that did not run."""
    found: dict[str, float | None] = {}
    ours = figures.get("ours")
    for peer in PEERS:
        theirs = figures.get(peer)
        if ours is None or theirs is None:
            found[f"ratio_to_{peer}"] = None
            continue
        seconds = theirs["seconds"]
        if peer in ELEMENTWISE and theirs["lines"] != lines:
            start = figures[start_of(peer)]
            growth = (seconds - start["seconds"]) / (theirs["lines"] - start["lines"])
            seconds = start["seconds"] + growth * (lines - start["lines"])
            theirs["seconds_extrapolated"] = round(seconds, 1)
        found[f"ratio_to_{peer}"] = round(seconds / ours["seconds"], 3)
    return found


def start_of(peer: str) -> str:
    return f"{peer} on next to nothing"


def measure(options: argparse.Namespace, tell: Callable[[str], None]) -> dict:
    """Everything that is printed, as one JSON object."""
    work = Path(options.work).resolve()
    work.mkdir(parents=True, exist_ok=True)
    bench = Bench(work, options.k, options.runner_options)
    variants = options.variants.split(",")
    if unknown := set(variants) - set(VARIANTS):
        raise SystemExit(f"unknown variants: {', '.join(sorted(unknown))}; there are {', '.join(VARIANTS)}")

    tell("warming up on a small log")
    few = bench.simulated(FEW_LINES)
    for name in variants:
        bench.run(name, few)
    tell("simulating")
    uniform = bench.simulated(options.lines)
    if uniform.num_processes == 1 or options.runner_options:
        variants = [name for name in variants if name != "elementwise_parallel"]
    log = uniform if options.skew == "none" else bench.skewed(uniform, options.skew)
    tasks = {name: (name, log) for name in variants}
    if log is not uniform and "ours" in tasks:
        tasks["ours on the uniform log"] = ("ours", uniform)
    if elementwise := [name for name in ELEMENTWISE if name in variants]:
        small = uniform
        if options.elementwise_lines < options.lines:
            small = bench.simulated(options.elementwise_lines)
            judge = "polars" if "polars" in variants else "ours"
            found = (f"{judge}, small log", bench.run(judge, small))
            require_equal(found, (elementwise[0], bench.run(elementwise[0], small)))
        tasks |= {name: (name, small) for name in elementwise}
        tasks |= {start_of(name): (name, few) for name in elementwise}
    load = os.getloadavg()[0]
    runs = interleaved(bench, tasks, options.repeats, tell)

    figures = {name: summary(runs[name], tasks[name][1]) for name in tasks}
    result = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "simulated": True,
        "lines": log.lines,
        "skew": options.skew,
        "k": options.k,
        "pairs": len(next(iter(runs.values()))[0].pairs),
        "equal_pairs": True,  # or `interleaved` had raised
        **ratios(figures, log.lines),
        "variants": figures,
        "repeats": options.repeats,
        "runner_options": options.runner_options,
        "notes": NOTES,
        "machine": machine() | {"load_before": round(load, 2)},
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
    }
    if "ours on the uniform log" in figures:
        skewed, even = figures["ours"], figures["ours on the uniform log"]
        result["ratio_to_uniform"] = {
            measure: round(skewed[measure] / even[measure], 3) for measure in ("seconds", "peak_mib")
        }
    return result


NOTES = [
    "ratio_to_X = seconds of X / seconds of ours; medians over the repeats; start-up of every process counted",
    "element-wise Beam runs on fewer lines: seconds_extrapolated is the straight line through its two times",
    "elementwise: one process, as Beam runs it without options; elementwise_parallel: one for each core, as ours has",
    "peak_mib: largest sum of PSS over all processes of a variant at one moment, sampled every 0.15 s",
    "each variant ran once on a small log before, so that Python's bytecode is compiled",
]


def machine() -> dict:
    gib = psutil.virtual_memory().total / 2**30
    return {"processor": processor(), "cores": os.cpu_count(), "memory_gib": round(gib, 1)}


def table(result: dict) -> str:
    rows = [
        f"{result['lines']:,} simulated lines, skew {result['skew']}, k = {result['k']}:",
        f"{result['pairs']:,} pairs, equal for all",
    ]
    rows.append(f"{'':<32}{'lines':>12}{'seconds':>10}{'lines/s':>12}{'peak MiB':>10}")
    for name, row in result["variants"].items():
        rows.append(
            f"{name:<32}{row['lines']:>12,}{row['seconds']:>10.1f}{row['lines_per_second']:>12,}{row['peak_mib']:>10,.0f}"
        )
    rows += [f"{name} = {value}" for name, value in result.items() if name.startswith("ratio_") and value is not None]
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, required=True, help="lines of the simulated log, about")
    parser.add_argument("--work", default="preprocessing-benchmark", help="folder for logs and stores; logs are kept")
    parser.add_argument("--variants", default=",".join(VARIANTS), help=f"of {','.join(VARIANTS)}")
    parser.add_argument("--elementwise-lines", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--skew", choices=("none", *SHARES), default="none")
    parser.add_argument("--runner-options", default="", help="of both our stages, as --runner-options='--a=1 --b=2'")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--record", action="store_true", help="also write it to benchmarks/results")
    options = parser.parse_args()
    result = measure(options, lambda message: print(message, file=sys.stderr))
    if options.record:
        RESULTS.mkdir(exist_ok=True)
        name = f"preprocessing-{options.lines}" + ("" if options.skew == "none" else f"-{options.skew}")
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result) if options.json else table(result))


if __name__ == "__main__":
    main()
