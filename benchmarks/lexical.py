"""Seconds to index real titles and to score all of them for real queries: BM25, ULM and PLSA beside plain SciPy.

    CLICKTOWER_DATA=/path/to/data python benchmarks/lexical.py [--queries 2000] [--topics 100] [--record]

Homedepot's 54,667 titles; seconds of processor time of one thread. Ours and the plain form get the same texts and cut
them into the same terms, and how far their scores are apart is told. A query is scored for every title; the scores of a
block of queries are held at once. With --record benchmarks/results/lexical.json is written.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.machine import machine  # noqa: E402
from benchmarks.peers import scipy_lexical  # noqa: E402
from benchmarks.real_pairs import read_queries, read_titles  # noqa: E402
from clicktower.schemas.lexical_contract import DEFAULT_LANGUAGE  # noqa: E402
from clicktower.training.ranking.bm25 import K1, B, TitleBM25, count_terms  # noqa: E402
from clicktower.training.ranking.measure import score_blocks  # noqa: E402
from clicktower.training.ranking.plsa import (  # noqa: E402  # noqa: E402
    BACKGROUND,
    ITERATIONS,
    MU,
    TITLE_PRIOR,
    TitleLanguageModel,
    TitlePLSA,
    train_topics,
)

RESULTS = ROOT / "benchmarks" / "results"
Scores = Callable[[Sequence[str]], np.ndarray]


def contest(titles: list[str], queries: list[str], topics: int) -> Iterator[dict]:
    """One row per system: seconds to index and to score, ours and plain, and how far the scores are apart."""
    yield _row("BM25", lambda: TitleBM25(titles).scores, lambda: scipy_lexical.bm25(titles, K1, B), titles, queries)
    yield _row(
        "ULM",
        lambda: TitleLanguageModel(titles).scores,
        lambda: scipy_lexical.language_model(titles, MU),
        titles,
        queries,
    )
    first_VZ, _ = train_topics(count_terms(titles, DEFAULT_LANGUAGE), topics, iterations=0, seed=0)
    yield _row(
        f"PLSA, {topics} topics, {ITERATIONS} steps",
        lambda: TitlePLSA(titles, topics=topics).scores,
        lambda: scipy_lexical.plsa(titles, first_VZ, ITERATIONS, TITLE_PRIOR, BACKGROUND)[0],
        titles,
        queries,
    )


def _row(
    name: str, ours: Callable[[], Scores], plain: Callable[[], Scores], titles: list[str], queries: list[str]
) -> dict:
    made = {kind: _timed(make) for kind, make in (("ours", ours), ("plain", plain))}
    sample = queries[:50]
    found, expected = (made[kind][0](sample) for kind in ("ours", "plain"))
    apart = float(np.abs(found - expected).max() / np.abs(expected).max())
    row = {"system": name, "apart": float(f"{apart:.2g}")}
    for kind, (scores, seconds) in made.items():
        row[f"{kind}_index_seconds"] = round(seconds, 2)
        row[f"{kind}_score_seconds"] = round(_score_all(scores, titles, queries), 2)
    return row


def _score_all(scores: Scores, titles: list[str], queries: list[str]) -> float:
    began = time.process_time()
    for _ in score_blocks(len(queries), len(titles), lambda block: scores(queries[block])):
        pass
    return time.process_time() - began


def _timed(make: Callable[[], Scores]) -> tuple[Scores, float]:
    began = time.process_time()
    made = make()
    return made, time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=2_000)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    if "CLICKTOWER_DATA" not in os.environ:
        parser.error("set CLICKTOWER_DATA to the folder that holds homedepot/")
    data = Path(os.environ["CLICKTOWER_DATA"])
    import torch

    torch.set_num_threads(1)
    titles, queries, rows = read_titles(data), read_queries(data)[: options.queries], []
    list(contest(titles[:1000], queries[:10], topics=2))  # loads what is loaded once
    for row in contest(titles, queries, options.topics):
        if not rows:
            print("  ".join(row))
        print("  ".join(str(value) for value in row.values()), flush=True)
        rows.append(row)
    if options.record:
        file = RESULTS / "lexical.json"
        value = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine(),
                 "command": " ".join(["python", "benchmarks/lexical.py", *sys.argv[1:]]), "rows": rows,
                 "titles": len(titles), "queries": len(queries), "load": os.getloadavg()[0]}  # fmt: skip
        file.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"written to {file.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
