"""A small simulated shop that end-to-end tests share, and the pipeline.toml that runs it."""

import subprocess
import sys
from pathlib import Path

FILES = """
[log]
files = ["{data}/log/*.ndjson.gz"]
[documents]
file = "{data}/documents.tsv"
[judgments]
queries = "{data}/judgments/queries.dev.tsv"
qrels = "{data}/judgments/qrels.dev.txt"
"""
PIPELINE = """
title = "end to end"
store = "store"
{files}
[build]
k = {k}
[train]
threads = 1
[train.set]
epochs = {epochs}
optimiser.step = {step}
tower.cells = 16
micro_batch = 32
minibatch = 64
[compare]
rows = ["random", "bm25", "lstm-pool-192-words", "hybrid"]
[compare.set]
epochs = {epochs}
optimiser.step = {step}
tower.cells = 16
micro_batch = 32
minibatch = 64
"""


def clicktower(*arguments: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "clicktower.flows.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def make_shop(folder: Path, *, searches: int = 2_000, seed: int = 3, days: int = 60) -> Path:
    """A simulated log with documents and judgments below `folder`/data, and its pipeline.toml; the folder."""
    done = clicktower("simulate", str(folder / "data"), "--searches", str(searches), "--seed", str(seed),
                      "--set", f"days={days}")  # fmt: skip
    assert done.returncode == 0, done.stderr
    write_pipeline(folder)
    return folder


def write_pipeline(folder: Path, *, k: int = 2, epochs: int = 2, step: float = 0.002) -> Path:
    path = folder / "pipeline.toml"
    path.write_text(PIPELINE.format(files=FILES.format(data="data"), k=k, epochs=epochs, step=step), encoding="utf-8")
    return path


def pipeline(place: str, *, data: str = "data", report: str = "report") -> str:
    """A configuration of the whole chain over the shop's files, small and fast. place: of the store and the release."""
    return f"""
title = "A shop at {place}"
store = "{place}/store"
report = "{report}.html"
{FILES.format(data=data)}
[build]
k = 2
[train]
threads = 1
[train.set]
epochs = 2
tower.cells = 16
[publish]
to = "{place}/release"
"""
