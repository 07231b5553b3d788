"""Serving a release: a query's vector, a search among all documents, and both over HTTP, beside what else there is.

    CLICKTOWER_DATA=/path/to/data python benchmarks/serving.py --model store/train/DIGEST --work /tmp/serving
        [--documents 1000000] [--queries 2000] [--seconds 60] [--per-second 500] [--without usearch bm25s http]
        [--record]

The documents are real product titles and, beyond those, the first half of one with the second half of another; the
queries are real. They are published to WORK/release by `clicktower publish`, with a small model trained on the real
pairs. Everything in process is of one thread, and its variants take turns query by query, so that what else the machine
does falls on all of them alike. HTTP is an open loop: requests are due at a fixed rate, and a late answer counts from
when it was due. With --record the run is kept in benchmarks/results/serving.json, beside those of other numbers of
documents and dimensions.
"""

import argparse
import asyncio
import contextlib
import copy
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.machine import machine  # noqa: E402
from benchmarks.open_loop import open_loop  # noqa: E402
from benchmarks.peers.searching import Bm25sTitles, FaissIvf, OnnxQueries, Peer, UsearchGraph  # noqa: E402
from benchmarks.real_pairs import read_queries, read_titles  # noqa: E402
from clicktower.flows.releases.search import OpenRelease  # noqa: E402
from clicktower.training.ranking.title_ranking import mixed  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "serving.json"
K = 10
WARM_UP = 100
RECALL_QUERIES = 200  # of the whole score, for which every document is compared
CHOOSING_QUERIES = 100
PEERS = {"faiss": FaissIvf, "usearch": UsearchGraph}


def tell(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def write_documents(path: Path, titles: list[str], num_documents: int) -> None:
    """Real titles, then halves of two of them, each text once."""
    rng = np.random.default_rng(0)
    cut = [title.split() for title in titles]
    made = dict.fromkeys(titles)
    while len(made) < num_documents:
        for a, b in rng.integers(0, len(titles), (100_000, 2)).tolist():
            made[" ".join(cut[a][: (len(cut[a]) + 1) // 2] + cut[b][len(cut[b]) // 2 :])] = None
    lines = (f"d{row:08d}\t{title}\n" for row, title in enumerate(list(made)[:num_documents]))
    path.write_text("".join(lines), encoding="utf-8")


def publish(model: str, documents: Path, to: Path) -> dict:
    command = [sys.executable, "-m", "clicktower.flows.cli", "publish", "--model", model, "--documents", str(documents)]
    done = subprocess.run([*command, "--to", str(to), "--json"], cwd=ROOT, check=True, stdout=subprocess.PIPE)
    found = json.loads(done.stdout)
    return {"seconds": found["duration_seconds"], "reused": found["reused"], "index": found["metrics"]["index"]}


def in_turns(ways: dict[str, Callable[[Any], Any]], queries: list) -> tuple[dict[str, dict], dict[str, list]]:
    """(milliseconds of each way, what each answered), one query after the other, another way first each time."""
    names = list(ways)
    took = {name: np.empty(len(queries)) for name in names}
    answers: dict[str, list] = {name: [] for name in names}
    for query in queries[:WARM_UP]:
        for way in ways.values():
            way(query)
    for number, query in enumerate(queries):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            started = time.perf_counter()
            found = ways[name](query)
            took[name][number] = time.perf_counter() - started
            answers[name].append(found)
    return {name: quantiles(times) for name, times in took.items()}, answers


def quantiles(seconds: np.ndarray) -> dict:
    p50, p99 = np.percentile(seconds, [50, 99]) * 1e3
    return {"p50_ms": float(f"{p50:.4g}"), "p99_ms": float(f"{p99:.4g}")}


def embedding(opened: OpenRelease, queries: list[str]) -> dict:
    """One query's vector, from its text."""
    ways: dict[str, Callable[[str], np.ndarray]] = {"ours": opened.vector}
    if OnnxQueries.available(opened):
        ways["onnxruntime, query.onnx"] = OnnxQueries(opened)
    found, answers = in_turns(ways, queries)
    for name, vectors in answers.items():
        worst = max(float(np.abs(a - b).max()) for a, b in zip(vectors, answers["ours"], strict=True))
        if worst > 1e-4:
            raise SystemExit(f"{name} gives other vectors: they differ by up to {worst:.2g}")
    return found


def searching(opened: OpenRelease, queries: list[str], chosen_on: list[str], *, peers: list[str], bm25s: bool) -> dict:
    """The nearest ten to a vector, with recall against all compared; the best ten by BM25; whole searches by text, with
    the candidates of ours and of each peer, whose setting is chosen on other queries.
    """
    tell("search: reading the release")
    started = time.perf_counter()
    opened.load()
    found: dict[str, Any] = {"open_seconds": round(time.perf_counter() - started, 1)}
    vectors = [opened.vector(query) for query in queries]
    search = opened.documents_search
    ways: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "ours": lambda vector: search.best(vector, K)[1],
        "all compared": lambda vector: search.exact(vector, K)[1],
    }
    limits = limits_of_the_whole_score(opened, chosen_on) if peers else []
    in_place: dict[str, OpenRelease] = {}
    for name in peers:
        tell(f"search: the index of {name}")
        in_place[name] = replaced = copy.copy(opened)
        peer: Peer = PEERS[name](opened)
        replaced.documents_search = peer  # type: ignore[misc]
        peer.choose(partial(recall_of_the_whole_score, replaced, chosen_on, limits))
        found[name] = peer.facts
    tell("search: nearest vectors, in turns")
    by_vector, answers = in_turns(ways, vectors)
    for name, cosines in answers.items():
        by_vector[name]["recall_at_10"] = recall(cosines, answers["all compared"])
    lexical: dict[str, Callable[[str], Any]] = {"ours": lambda query: opened.bm25.best(query, K)}
    if bm25s:
        tell("search: bm25s, which takes half a minute to index a million titles")
        reference = Bm25sTitles(opened.titles.to_pylist())
        lexical["bm25s"] = lambda query: reference.best(query, K)
        found["bm25s"] = {"index_seconds": reference.index_seconds}
    tell("search: BM25, and whole searches")
    by_words, _ = in_turns(lexical, queries)
    modes: dict[str, Callable[[str], Any]] = {
        mode: lambda query, mode=mode: opened.search(query, K, mode, details=True)  # type: ignore[misc]
        for mode in ("vector", "bm25", "hybrid")
    }
    modes |= {
        f"hybrid, {name}": lambda query, of=of: of.search(query, K, details=True) for name, of in in_place.items()
    }
    whole, _ = in_turns(modes, queries)
    tell("search: recall of the whole score")
    limits = limits_of_the_whole_score(opened, queries[:RECALL_QUERIES])
    for name, of in {"hybrid": opened, **{f"hybrid, {name}": of for name, of in in_place.items()}}.items():
        whole[name]["recall_at_10"] = recall_of_the_whole_score(of, queries[:RECALL_QUERIES], limits)
    return found | {"nearest": by_vector, "bm25": by_words, "from_text": whole}


def limits_of_the_whole_score(opened: OpenRelease, queries: list[str]) -> list[float]:
    """The tenth best whole score of all documents for each query."""
    every_row, limits = np.arange(len(opened.ids)), []
    for query in queries:
        near = opened.documents_search.scores_of(opened.vector(query), every_row)
        of_words = opened.word_matches.scores([query])[0] if opened.word_matches else None
        of_terms = opened.bm25.relative_scores([query])[0] if opened.encoder.lexical_share else None
        scores = mixed(near, of_words, of_terms, opened.encoder.word_share, opened.encoder.lexical_share)
        limits.append(float(np.partition(scores, -K)[-K]))
    return limits


def recall_of_the_whole_score(opened: OpenRelease, queries: list[str], limits: list[float]) -> float:
    """The share of the ten best of all documents by the whole score that a search finds."""
    found = [
        min(K, sum(hit.score >= limit - 1e-5 for hit in opened.search(query, K)))
        for query, limit in zip(queries, limits, strict=True)
    ]
    return round(sum(found) / (K * len(found)), 4)


def recall(cosines: list[np.ndarray], exact: list[np.ndarray]) -> float:
    hits = [min(K, int((a >= np.sort(b)[-K] - 1e-5).sum())) for a, b in zip(cosines, exact, strict=True)]
    return round(sum(hits) / (K * len(hits)), 4)


def over_http(release: str, queries: list[str], *, per_second: float, seconds: float, workers: int) -> dict:
    """`clicktower serve` and the load generator on the same cores."""
    command = [sys.executable, "-m", "clicktower.flows.cli", "serve", "--release", release, "--port", "0", "--json"]
    found = {}
    with subprocess.Popen([*command, "--workers", str(workers)], cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            url = json.loads(server.stdout.readline())["url"]
            port = int(url.rsplit(":", 1)[1])
            wait_for(workers, url)
            for mode in ("vector", "bm25", "hybrid"):
                bodies = [json.dumps({"query": query, "k": K, "mode": mode}).encode() for query in queries]
                asyncio.run(open_loop("127.0.0.1", port, "/v1/search", bodies, per_second=20, seconds=3))
                tell(f"HTTP: {mode}, {per_second:g} a second for {seconds:g} s")
                before, started = _cpu_seconds(server.pid), time.process_time()
                load = asyncio.run(
                    open_loop("127.0.0.1", port, "/v1/search", bodies, per_second=per_second, seconds=seconds)
                )
                asked = len(load.seconds)
                found[mode] = quantiles(np.array(load.seconds)) | {
                    "max_ms": round(max(load.seconds) * 1e3, 1),
                    "requests": asked,
                    "answered": load.statuses[200],
                    "errors": dict(load.errors),
                    "connections": load.connections,
                    "server_cpu_ms_a_request": round((_cpu_seconds(server.pid) - before) / asked * 1e3, 3),
                    "asker_cpu_ms_a_request": round((time.process_time() - started) / asked * 1e3, 3),
                }
        finally:
            server.terminate()
    return found


def wait_for(workers: int, url: str) -> None:
    """Until every worker has the release in memory: reading it would be counted as answering."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/metrics", timeout=60) as output:
            if any(
                line.startswith(b"clicktower_release_info") and float(line.split()[-1]) == workers for line in output
            ):
                return
        time.sleep(0.5)
    raise SystemExit("not every worker could read the release within 300 s")


def _cpu_seconds(pid: int) -> float:
    """Of a process and its children."""
    import psutil

    process = psutil.Process(pid)
    times = [one.cpu_times() for one in [process, *process.children(recursive=True)]]
    return sum(used.user + used.system for used in times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--per-second", type=float, default=500)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--without", nargs="*", default=[], choices=[*PEERS, "bm25s", "http"])
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    data, work = Path(os.environ["CLICKTOWER_DATA"]), Path(asked.work)
    work.mkdir(parents=True, exist_ok=True)
    documents = work / f"documents-{asked.documents}.tsv"
    if not documents.exists():
        tell(f"writing {asked.documents:,} documents")
        write_documents(documents, read_titles(data), asked.documents)
    tell("publishing")
    published = publish(asked.model, documents, work / "release")
    every = read_queries(data)
    drawn = np.random.default_rng(1).permutation(len(every))[: asked.queries + CHOOSING_QUERIES]
    queries = [every[row] for row in drawn[: asked.queries]]
    chosen_on = [every[row] for row in drawn[asked.queries :]]
    opened = OpenRelease(str(work / "release"))
    result: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "load_at_start": round(os.getloadavg()[0], 1),
        "documents": opened.release.num_documents,
        "dimensions": opened.release.dimensions,
        "publish": published,
    }
    tell("embedding: one query at a time")
    result["embedding"] = embedding(opened, queries)
    result["search"] = searching(
        opened, queries, chosen_on,
        peers=[name for name in PEERS if name not in asked.without], bm25s="bm25s" not in asked.without,
    )  # fmt: skip
    if "http" not in asked.without:
        result["http"] = {
            "per_second": asked.per_second,
            "seconds": asked.seconds,
            "workers": asked.workers,
        } | over_http(
            str(work / "release"), queries, per_second=asked.per_second, seconds=asked.seconds, workers=asked.workers
        )
    result["load_at_end"] = round(os.getloadavg()[0], 1)
    print(json.dumps(result, indent=1))
    if asked.record:
        recorded = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
        recorded[f"{opened.release.num_documents} documents x {opened.release.dimensions}"] = result
        RESULTS.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
