"""How many requests and bytes each stage costs with its store on S3: the table of docs/running.md.

    python -m benchmarks.object_store [--searches 50000]

Counts between the commands and a real server on this machine (`make engines`), with a simulated log on a local disk.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bad_line import BadLine
from tests.s3_server import S3Server

STORE, RELEASE = "s3://bucket/store", "s3://bucket/release"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=50_000)
    searches = parser.parse_args().searches
    with tempfile.TemporaryDirectory(prefix="clicktower-s3-") as work, S3Server(Path(work, "s3")) as server:
        made = command(["simulate", f"{work}/data", "--searches", str(searches)], {})
        print(f"{made['counts']['lines']:,} lines, {made['counts']['documents']:,} documents\n")
        print("| stage | requests | of which write | MB | its output, MB |\n|---|---|---|---|---|")
        documents, judgments = f"{work}/data/documents.tsv", f"{work}/data/judgments"
        queries = ["--queries", f"{judgments}/queries.dev.tsv"]
        judged = ["--documents", documents, *queries, "--qrels", f"{judgments}/qrels.dev.txt"]
        into, ingest = ["--into", STORE], ["ingest", f"{work}/data/log", "--into", STORE]
        measured(server, "ingest", ingest)
        measured(server, "ingest again, reused", ingest)
        kept_aside = ["--judged-queries", queries[1]]
        shards = measured(server, "build", ["build", "--days", STORE, "--documents", documents, *kept_aside, *into])
        model = measured(server, "train", ["train", "--shards", shards, "--recipe", "lstm-96", *into])
        evaluation = measured(server, "evaluate", ["evaluate", "--model", model, *judged, *into])
        publish = ["publish", "--model", model, "--documents", documents, "--evaluation", evaluation, "--to", RELEASE]
        measured(server, "publish", publish)
        measured(server, "search, one query from a cold start", ["search", "--release", RELEASE, "garden hose"])


def measured(server: S3Server, what: str, words: list[str]) -> str:
    """The path of a command's output; prints what it cost."""
    before = sum(path.stat().st_size for path in server.files())
    with BadLine(server=server.address) as line:
        made = command(words, server.environment | {"AWS_ENDPOINT_URL": f"http://{line.address}"})
    written = (sum(path.stat().st_size for path in server.files()) - before) / 1e6
    writes = line.requests.total() - line.requests["GET"] - line.requests["HEAD"]
    output = f"{written:,.0f}" if written >= 0.5 else ""
    print(f"| {what} | {line.requests.total():,} | {writes:,} | {line.num_bytes / 1e6:,.0f} | {output} |", flush=True)
    return made.get("path", "")


def command(words: list[str], environment: dict[str, str]) -> dict:
    """The JSON result of a command."""
    done = subprocess.run(
        [sys.executable, "-m", "clicktower.flows.cli", *words, "--json"],
        env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
