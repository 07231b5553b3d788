"""The compiled parts under the address and the undefined-behaviour sanitiser: `make sanitise`.

    python -m tests.sanitised [--examples 500] [--minutes 5] [-- pytest arguments]

Builds both libraries anew, with g++ and the sanitisers, in a copy of the packages, and runs there the tests that lead
through them: everyday and fuzzed lines of logs, tables of shards with bytes changed, texts of every script. The first
error ends the process that meets it, so that its test fails. Then log bytes, tables of shards and texts are tried with
new inputs, round after round, until the minutes are over. Prints how many inputs were tried, and the minutes.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("clicktower", "schemas", "beam_jobs", "training", "flows", "tests")
TESTS = (
    "tests/beam_jobs/compiled/test_compiled.py", "tests/beam_jobs/ingest/test_fuzzed_ledger.py",
    "tests/beam_jobs/engine/test_exchange.py", "tests/beam_jobs/ingest/test_lines_once.py",
    "tests/training/kernel", "tests/training/ranking", "tests/training/trainer/test_foreign_shards.py",
)  # fmt: skip
FUZZED = (
    "tests/beam_jobs/ingest/test_fuzzed_ledger.py::test_any_lines_add_up",
    "tests/beam_jobs/compiled/test_compiled.py::test_everyday_lines_give_the_rows_that_python_gives",
    "tests/training/trainer/test_foreign_shards.py::test_bytes_changed_anywhere_are_refused_or_harmless",
    "tests/training/kernel/test_tokenise.py::test_any_texts_are_cut_as_python_cuts_them",
)
EXAMPLES_A_ROUND = 1_000  # of each: a minute or two, of which starting takes seconds
SANITISERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-O1", "-g")


def build_libraries(copy: Path) -> None:
    """Both libraries, where the packages in `copy` look for them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for module in project["tool"]["setuptools"]["ext-modules"]:
        place = module["name"].removeprefix("clicktower.").replace(".", "/")
        made = copy / (place + sysconfig.get_config_var("EXT_SUFFIX"))
        arguments = [argument for argument in module["extra-compile-args"] if argument != "-O3"]
        command = ["g++", "-shared", "-fPIC", *arguments, *SANITISERS, *module["sources"], "-o", str(made)]
        subprocess.run(command, cwd=copy, check=True)


def main() -> int:
    """1 where a test failed or a sanitiser found something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=300, help="inputs that each fuzzing test tries")
    parser.add_argument("--minutes", type=float, default=0.0, help="of new inputs, after the tests")
    parser.add_argument("arguments", nargs="*", help="of pytest, behind --; by default the tests that reach C++")
    given = parser.parse_args()
    libraries = [subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout
                 for name in ("libasan.so", "libstdc++.so")]  # fmt: skip
    begun, tried, failed = time.monotonic(), 0, False
    with tempfile.TemporaryDirectory(prefix="clicktower-sanitised-") as work:
        copy = Path(work)
        for package in PACKAGES:
            shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        build_libraries(copy)
        found = f"log_path={copy / 'found'}"  # pytest keeps to itself what a process says before it ends
        environment = os.environ | {
            "LD_PRELOAD": ":".join(map(str.strip, libraries)),  # or else no exception could be thrown
            # Python leaks at its end; what trec_eval's own module allocates with new it gives back with free.
            "ASAN_OPTIONS": f"{found}:detect_leaks=0:allocator_may_return_null=1:alloc_dealloc_mismatch=0",
            "UBSAN_OPTIONS": f"{found}:print_stacktrace=1",
        }

        def tests(names: Sequence[str], examples: int) -> None:
            nonlocal tried, failed
            command = [sys.executable, "-m", "pytest", "-q", "--hypothesis-show-statistics", *names]
            around = environment | {"CLICKTOWER_EXAMPLES": str(examples)}
            done = subprocess.run(command, cwd=copy, env=around, stdout=subprocess.PIPE, text=True, check=False)
            reports = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(copy.glob("found.*"))]
            tried += sum(map(int, re.findall(r"(\d+) passing", done.stdout)))
            failed = failed or bool(done.returncode or reports)
            said = (line for line in done.stdout.splitlines() if not re.match(r"\s*(- |Stopped|$|tests/.*:$)", line))
            print("\n".join([*said, *reports]), flush=True)

        tests(given.arguments or TESTS, given.examples)
        until, longest = time.monotonic() + 60 * given.minutes, 0.0
        while not failed and (at := time.monotonic()) + longest < until:
            tests(FUZZED, EXAMPLES_A_ROUND)
            longest = max(longest, time.monotonic() - at)
    print(f"{tried:,} inputs tried under the sanitisers, {(time.monotonic() - begun) / 60:.1f} minutes")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
