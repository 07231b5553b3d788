"""The suite as other processors would run it: instruction sets, cores and threads by force, a table at the end.

    python -m tests.instruction_sets                                    # numeric tests with each set, two cores
    python -m tests.instruction_sets --sets avx2 --cores 1 2 --threads 1 2 --busy -- tests/training -m "not engine"

A set that this processor does not have is left out, with a line that says so. What follows -- goes to pytest.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from itertools import product

import numpy as np

from clicktower.training.kernel.kernel_library import library

NUMERIC = ["tests/training", "-m", "not engine and not gpu", "-q"]
SETS = ("avx512", "avx2", "generic")


def forced(name: str) -> dict[str, str]:
    """Environment variables that limit everything that asks the processor what it has to one set of ours.

    `generic`: nothing beyond SSE 4.2. Processes that are started with them obey; one that runs does not.
    """
    kept = {"avx512": ("X86_V3", "X86_V4", "AVX512"), "avx2": ("X86_V3",), "generic": ()}[name]
    features = np._core._multiarray_umath  # type: ignore[attr-defined]
    here = [one for one in features.__cpu_dispatch__ if features.__cpu_features__[one]]
    limits = {
        "avx512": {},
        "avx2": {
            "ATEN_CPU_CAPABILITY": "avx2",
            "ONEDNN_MAX_CPU_ISA": "AVX2",
            "OPENBLAS_CORETYPE": "Haswell",
            "ARROW_USER_SIMD_LEVEL": "AVX2",
            "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW",
        },
        "generic": {
            "ATEN_CPU_CAPABILITY": "default",
            "ONEDNN_MAX_CPU_ISA": "SSE41",
            "MKL_CBWR": "COMPATIBLE",
            "OPENBLAS_CORETYPE": "Nehalem",
            "ARROW_USER_SIMD_LEVEL": "NONE",
            "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX2,-FMA",
        },
    }[name]
    if without := " ".join(one for one in here if not one.startswith(kept)):
        limits["NPY_DISABLE_CPU_FEATURES"] = without
    return limits | {"CLICKTOWER_INSTRUCTIONS": name}


def sets_here() -> list[str]:
    """Those of SETS that this processor has, widest first."""
    before = library().kernel_instructions()
    try:
        return [name for name in SETS if library().kernel_choose(name.encode())]
    finally:
        library().kernel_choose(before)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS, help="instruction sets, one after the other")
    parser.add_argument("--cores", nargs="+", type=int, default=[2], help="each run is held on so many of them")
    parser.add_argument("--threads", nargs="+", type=int, default=[1], help="OMP_NUM_THREADS and its like")
    parser.add_argument("--busy", action="store_true", help="with a process beside it that is never idle, on each core")
    parser.add_argument("arguments", nargs="*", default=NUMERIC, help="of pytest, after --")
    asked = parser.parse_args()
    here, found, failed = sets_here(), [], False
    for name, cores, threads in product(asked.sets, asked.cores, asked.threads):
        what = f"{name:8} {cores} cores {threads} threads{' busy' if asked.busy else ''}"
        if name not in here:
            found.append(f"{what}: this processor does not have it")
            continue
        variables = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        environment = os.environ | forced(name) | dict.fromkeys(variables, str(threads))
        held = sorted(os.sched_getaffinity(0))[:cores]
        hogs = [_hog(core) for core in held] if asked.busy else []
        started = time.monotonic()
        try:
            command = ["taskset", "-c", ",".join(map(str, held)), sys.executable, "-m", "pytest", *asked.arguments]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        finally:
            for hog in hogs:
                hog.kill()
                hog.wait()
        failed |= done.returncode != 0
        print(done.stdout)
        counts = ["no result", *re.findall(r"^.*\b(?:passed|failed|error).* in .*$", done.stdout, re.M)]
        found.append(f"{what}: {counts[-1].strip('= ')} ({time.monotonic() - started:.0f} s)")
    print(*found, sep="\n")
    return int(failed)


def _hog(core: int) -> subprocess.Popen:
    return subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-c", "while True: pass"])


if __name__ == "__main__":
    sys.exit(main())
