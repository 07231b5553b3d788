"""The demonstration: a simulated log, a pipeline.toml for it, and the whole pipeline on embedded defaults."""

from pathlib import Path

from flows.run_by_hand import run_locally
from flows.show import present
from flows.submit import run_stage_command

PIPELINE = """# Written by `clicktower demo`. Everything here comes from a simulated log.
title = "Demonstration on a simulated log"
store = "store"
report = "report.html"

[log]
files = ["data/log/*.ndjson.gz"]

[documents]
file = "data/documents.tsv"

[judgments]
queries = "data/judgments/queries.dev.tsv"
qrels = "data/judgments/qrels.dev.txt"

[build]
k = 5

[train]
recipe = "lstm-96"

[train.set]
epochs = 5

[publish]
to = "release"
"""


def run_demo(work: str, *, searches: int, seed: int) -> dict:
    """The JSON result of every stage of a demonstration below `work`. Raises StageError."""
    folder = Path(work)
    folder.mkdir(parents=True, exist_ok=True)
    simulated = run_stage_command(["simulate", str(folder / "data"), "--searches", str(searches), "--seed", str(seed)])
    present.stage_result(simulated)
    config = folder / "pipeline.toml"
    config.write_text(PIPELINE, encoding="utf-8")
    return {"simulate": simulated, **run_locally(str(config))}
