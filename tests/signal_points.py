"""Every stage is sent SIGTERM and SIGINT at many moments, on every engine: it ends with 143 or 130 and a sentence.

    python -m tests.signal_points                                  # all that is installed here, in half an hour
    python -m tests.signal_points --every 7 --point train publish

Nothing that a command started may outlive it, the flow may start it again, and the same command then succeeds. TMPDIR
has 104 bytes, as on CI and clusters, where a socket's path must not be longer than 107. Prints JSON: by stage and
engine how many signals were sent, how many came after the end, the seconds of the slowest end, and what went wrong.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which

import psutil

from clicktower.flows.config.settings import Settings
from clicktower.flows.submit import _result
from clicktower.schemas.errors import StageError, TransientError
from tests.ray_cluster import RayCluster
from tests.waiting import SECONDS, wait_until

SIGNALS = (signal.SIGTERM, signal.SIGINT)
MOMENTS = (None, 0.0, 0.5, 2.0)  # seconds after the first file of the output; None: as soon as it can be ended
MARK = "CLICKTOWER_SIGNAL_POINT"  # in the environment of all that a command starts
RUNS = """
store = "{into}/store"
[log]
files = ["{shop}/log/*.ndjson.gz"]
[documents]
file = "{shop}/documents.tsv"
[judgments]
queries = "{shop}/judgments/queries.dev.tsv"
qrels = "{shop}/judgments/qrels.dev.txt"
[publish]
to = "{into}/release"
[train]
recipe = "lstm-32"
"""
SWEEP = """
shards = "{shards}"
into = "{into}/store"
recipe = "lstm-32"
seeds = [1, 2]
at_once = 2
[fields]
epochs = [4, 5]
"""


@dataclass(frozen=True)
class Point:
    """A command on an engine. `{into}` in it: a folder of its own for each try."""

    words: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # to write first, by name


def points(root: Path, ray: RayCluster | None, engines: Path) -> Iterator[tuple[str, Point]]:
    """The name of each point, as `train, two processes`, and the point, when what it reads has been made."""
    shop, made = root / "shop", root / "made"
    documents, judgments = ["--documents", f"{shop}/documents.tsv"], shop / "judgments"
    judged = ["--queries", f"{judgments}/queries.dev.tsv", "--qrels", f"{judgments}/qrels.dev.txt"]

    def of(stage: str) -> str:
        return str(next((made / stage).iterdir()))

    def make(*words: str) -> None:
        done = run([*words])
        assert done.returncode == 0, done.stderr

    make("simulate", str(shop), "--searches", "20000", "--seed", "3")
    on_beam = {"in process": [], "processes": ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]}
    if (engines / "prism").exists():
        on_beam["Prism"] = ["--runner=PrismRunner"]
    if (engines / "flink-job-server").exists() and which("java"):
        on_beam["Flink"] = ["--runner=FlinkRunner", "--parallelism=1"]
    ingest = ["ingest", f"{shop}/log", "--into"]
    make(*ingest, str(made))
    for engine, options in on_beam.items():
        yield f"ingest, {engine}", Point([*ingest, "{into}", "--", *options])
    build = ["build", "--days", str(made), *documents, "--k", "2", "--into"]
    make(*build, str(made))
    for engine, options in on_beam.items():
        yield f"build, {engine}", Point([*build, "{into}", "--", *options])
    train = ["train", "--shards", of("build"), "--recipe", "lstm-32", "--into"]
    make(*train, str(made), "--epochs", "1")
    long = [*train, "{into}", "--epochs", "4", "--threads", "1"]
    yield "train, in process", Point(long)
    yield "train, processes", Point([*long, "--workers", "2"])
    if ray:
        around = ray.environment | {"RAY_ADDRESS": ray.address}
        yield "train, Ray", Point([*long, "--workers", "2"], around)
    model = ["--model", of("train"), *documents]
    yield "evaluate", Point(["evaluate", *model, *judged, "--into", "{into}"])
    yield "publish, in process", Point(["publish", *model, "--to", "{into}/release"])
    yield "publish, Ray", Point(["publish", *model, "--to", "{into}/release", "--workers", "2"])
    compare = ["compare", "--shards", of("build"), *documents, *judged, "--rows", "bm25", "lstm-32", "--into", "{into}"]
    yield "compare", Point(compare)
    yield "sweep", Point(["sweep", "{into}/sweep.toml"], files={"sweep.toml": SWEEP.replace("{shards}", of("build"))})
    yield "run", Point(["run", "{into}/run.toml"], files={"run.toml": RUNS.replace("{shop}", str(shop))})


def run(words: list[str], environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "clicktower.flows.cli", *words]
    around = os.environ | (environment or {})
    return subprocess.run(command, env=around, capture_output=True, text=True, check=False)


def try_point(
    point: Point, into: Path, number: signal.Signals, moment: float | None, json_too: bool
) -> tuple[str, float]:
    """(what went wrong, or "" or "finished"; seconds from the signal to the end)."""
    into.mkdir(parents=True)
    temporary = into.parent / ("t" * 104)[: max(1, 103 - len(str(into.parent)))]
    temporary.mkdir(exist_ok=True)
    for name, content in point.files.items():
        (into / name).write_text(content.replace("{into}", str(into)))
    words = [word.replace("{into}", str(into)) for word in point.words]
    if json_too:
        words.insert(1, "--json")
    started = set(into.rglob("*"))
    around = os.environ | point.environment | {"TMPDIR": str(temporary), MARK: str(into)}
    with ExitStack() as stack:
        output = stack.enter_context(tempfile.TemporaryFile("w+"))
        errors = stack.enter_context(tempfile.TemporaryFile("w+"))
        command = [sys.executable, "-m", "clicktower.flows.cli", *words]
        process = subprocess.Popen(command, env=around, stdout=output, stderr=errors)

        def reached() -> bool:
            seen = any(temporary.iterdir()) if moment is None else set(into.rglob("*")) != started
            return seen or process.poll() is not None

        wait_until(reached, "the command to begin")
        with suppress(subprocess.TimeoutExpired):
            process.wait(moment or 0.0)
        process.send_signal(number)
        sent = time.monotonic()
        code = process.wait(SECONDS)
        seconds = time.monotonic() - sent
        printed, said = (file.seek(0) or file.read() for file in (output, errors))
    wait_until(lambda: not left_by(into), lambda: f"{words}: {left_by(into)} to end")
    if code == 0 and printed:
        return "finished", seconds
    stage = words[0]
    told = [line for line in said.splitlines() if not line.startswith(("✓ ", f"{stage}: ", "  "))]
    wrong = [] if code == 128 + number else [f"code {code}"]
    if json_too:
        try:
            _result(stage, printed, code)
        except TransientError:
            pass
        except StageError as error:
            wrong.append(f"not to be tried again: {error}")
    elif len(told) != 1 or "what was finished is kept" not in told[0]:
        wrong.append("no sentence")
    if left := list(temporary.iterdir()):
        wrong.append(f"left behind: {left}")
    return (f"{number.name} at {moment}: {', '.join(wrong)}: {said[-500:]} {printed[-500:]}" if wrong else ""), seconds


def left_by(into: Path) -> list[str]:
    """The processes that a command has started and that live."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == str(into) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline())[:120])
    return found


def try_all(root: Path, every: int, names: list[str], ray: RayCluster | None) -> dict[str, dict]:
    """By point: `sent`, `finished`, `slowest` and `wrong`. Each `every`th of all signals and moments is tried."""
    results, number = {}, 0
    for name, point in points(root, ray, Path(Settings().engines)):
        if names and name.split(",")[0] not in names:
            continue
        result = results[name] = {"sent": 0, "finished": 0, "slowest": 0.0, "wrong": []}
        for sign in SIGNALS:
            for moment in MOMENTS:
                number += 1
                if (number - 1) % every:
                    continue
                into = root / f"try-{number}"
                wrong, seconds = try_point(point, into, sign, moment, bool(number // every % 2))
                print(f"{name}, {sign.name} at {moment}: {seconds:.1f} s {wrong}", file=sys.stderr, flush=True)
                result["sent"] += 1
                result["slowest"] = max(result["slowest"], round(seconds, 1))
                if wrong == "finished":
                    result["finished"] += 1
                elif wrong:
                    result["wrong"].append(wrong)
        if result["sent"]:  # what the last one left is no obstacle
            again = run([word.replace("{into}", str(into)) for word in point.words], point.environment)
            if again.returncode:
                result["wrong"].append(f"again: {again.returncode}: {again.stderr[-500:]}")
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="try each Nth signal and moment")
    parser.add_argument("--point", nargs="*", default=[], help="stages; by default all")
    parser.add_argument("--no-ray", action="store_true", help="without a Ray cluster")
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="signals-", dir="/tmp") as root, ExitStack() as stack:
        ray = None
        if not arguments.no_ray and (not arguments.point or "train" in arguments.point):
            ray = stack.enter_context(RayCluster(Path(root) / "ray", {"node": 2}))
        json.dump(try_all(Path(root), arguments.every, arguments.point, ray), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
