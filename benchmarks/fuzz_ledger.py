"""A million fuzzed lines through `clicktower ingest`: no crash, every line accounted for, memory bounded.

    python benchmarks/fuzz_ledger.py [--lines 1000000] [--seed 1] [--record]

Half of the lines are damaged: bytes flipped, cut, NUL, invalid UTF-8, halves of surrogate pairs, wrong types, missing,
huge and doubled fields, times out of this world, JSON 10,000 deep (tests/beam_jobs/ingest/fuzzed_lines.py); one of them
has 10 MB. The lines are counted as they are written, apart from the job. The same number of good lines goes through
a second run, and both peaks of memory are told. With --record writes benchmarks/results/fuzz_ledger.json.
"""

import argparse
import json
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.beam_jobs.ingest.fuzzed_lines import MEGABYTE, fuzzed_lines, good_line  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "fuzz_ledger.json"
NUM_FILES = 8


def write_log(folder: Path, lines: Iterable[bytes]) -> tuple[int, int]:
    """(lines, bytes) written, distributed over several files."""
    folder.mkdir()
    number = size = 0
    files = [(folder / f"part-{part}.ndjson").open("wb") for part in range(NUM_FILES)]
    for number, line in enumerate(lines, 1):
        size += files[number % NUM_FILES].write(line + b"\n")
    for file in files:
        file.close()
    return number, size


def ingest(logs: Path, store: Path) -> dict:
    """The result of a run in a process of its own, with its time and its peak memory."""
    options = ["--into", str(store), "--set", "max_unreadable_share=1", "--json"]
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "clicktower.flows.cli", "ingest", str(logs), *options], stdout=subprocess.PIPE, cwd=ROOT
    )
    assert process.stdout
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"the ingest ended with status {status}")
    seconds = round(time.monotonic() - began, 1)
    return {**json.loads(printed), "seconds": seconds, "peak_mebibytes": usage.ru_maxrss // 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true", help="write benchmarks/results/fuzz_ledger.json")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    long_line = b'{"query_id": "q1", "user_query": "' + b"x" * (10 * MEGABYTE) + b'"}'
    runs = {}
    with tempfile.TemporaryDirectory() as work:
        for name, lines in (
            ("fuzzed", [long_line, *fuzzed_lines(options.seed, options.lines - 1)]),
            ("good", (good_line(rng, max(400, options.lines // 8)) for _ in range(options.lines))),
        ):
            number, size = write_log(Path(work) / name, lines)
            del lines
            result = ingest(Path(work) / name, Path(work) / "store")
            ledger = result["ledger"]
            accounted = sum(ledger["lines"].values())
            runs[name] = {
                "lines": number,
                "megabytes": size >> 20,
                "accounted": accounted,
                "seconds": result["seconds"],
                "peak_mebibytes": result["peak_mebibytes"],
                "ledger": ledger["lines"],
            }
            print(f"{name}: {number:,} lines of {size >> 20:,} MB in {result['seconds']} s, peak "
                  f"{result['peak_mebibytes']:,} MiB; the ledger accounts for {accounted:,}")  # fmt: skip
            for fate, count in ledger["lines"].items():
                print(f"    {fate:<26}{count:>12,}")
            if not number == accounted == ledger["total"]:
                raise SystemExit("the ledger does not add up to the lines that were written")
    print(f"peak of this process, which only writes: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10:,} MiB")
    if options.record:
        made = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "machine": platform.machine(), "runs": runs}
        RESULTS.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
