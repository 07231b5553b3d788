"""Seconds to index real titles and to score all of them for real queries: BM25, ULM and PLSA beside plain SciPy.

    CLICKTOWER_DATA=/path/to/data python benchmarks/lexical.py [--queries 2000] [--topics 100] [--record]
    CLICKTOWER_DATA=/path/to/data python benchmarks/lexical.py --dev      NDCG of several settings on dev queries

Homedepot's 54,667 titles; seconds of processor time of one thread. Ours and the plain form get the same texts, and how
far their scores are apart is told. A query is scored for every title; the scores of a block of queries are held at
once. With --record benchmarks/results/lexical.json is written (with --dev, lexical-dev.json).
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.peers import scipy_lexical  # noqa: E402
from benchmarks.real_pairs import read_queries, read_titles  # noqa: E402
from schemas.documents import read_documents  # noqa: E402
from schemas.judgments import read_qrels  # noqa: E402
from schemas.judgments import read_queries as read_judged_queries  # noqa: E402
from training.ranking.bm25 import TitleBM25  # noqa: E402
from training.ranking.doc2vec import TitleDoc2Vec  # noqa: E402
from training.ranking.language_model import MU, TitleLanguageModel  # noqa: E402
from training.ranking.measure import (  # noqa: E402  # noqa: E402
    JudgedCollection,
    System,
    judged_collection,
    measure,
    score_blocks,
)
from training.ranking.plsa import BACKGROUND, ITERATIONS, TITLE_PRIOR, TitlePLSA, train_topics  # noqa: E402
from training.ranking.term_counts import count_terms  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
Scores = Callable[[Sequence[str]], np.ndarray]


def contest(titles: list[str], queries: list[str], topics: int) -> Iterator[dict]:
    """One row per system: seconds to index and to score, ours and plain, and how far the scores are apart."""
    yield _row("BM25", lambda: TitleBM25(titles).scores, lambda: scipy_lexical.bm25(titles), titles, queries)
    yield _row(
        "ULM",
        lambda: TitleLanguageModel(titles).scores,
        lambda: scipy_lexical.language_model(titles, MU),
        titles,
        queries,
    )
    first_VZ, _ = train_topics(count_terms(titles), topics, iterations=0, seed=0)
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


def dev_table(data: Path) -> Iterator[dict]:
    """NDCG of each setting over the dev queries with at least five judged titles, and the seconds it took."""
    folder = data / "homedepot"
    documents = read_documents(str(folder / "documents.tsv"))
    queries = read_judged_queries(str(folder / "queries.dev.tsv"))
    collection = judged_collection(documents, queries, read_qrels(str(folder / "qrels.dev.txt")), min_judged=5)
    texts = [*read_judged_queries(str(folder / "queries.train.tsv")).values(), *queries.values()]
    titles = documents.titles
    yield _of_dev("BM25", lambda: TitleBM25(titles), collection)
    for mu in (2, 10, 50, 200, 1000):
        yield _of_dev(f"ULM, mu {mu:g}", lambda mu=mu: TitleLanguageModel(titles, mu=mu), collection)
    yield _of_dev("Doc2Vec", lambda: TitleDoc2Vec(titles, texts), collection)
    for topics in (100, 300, 500):
        yield _of_dev(f"PLSA, {topics} topics", lambda topics=topics: TitlePLSA(titles, topics=topics), collection)


def _of_dev(name: str, make: Callable[[], System], collection: JudgedCollection) -> dict:
    began = time.process_time()
    system = make()
    made = time.process_time() - began
    values = {at: round(float(found.mean()), 4) for at, found in measure(system, collection).per_query.items()}
    return {"system": name, **values, "make_seconds": round(made, 1),
            "measure_seconds": round(time.process_time() - began - made, 1)}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=2_000)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--dev", action="store_true", help="NDCG of several settings instead")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    if "CLICKTOWER_DATA" not in os.environ:
        parser.error("set CLICKTOWER_DATA to the folder that holds homedepot/")
    data = Path(os.environ["CLICKTOWER_DATA"])
    import torch

    torch.set_num_threads(1)
    if options.dev:
        made = dev_table(data)
    else:
        made = contest(read_titles(data), read_queries(data)[: options.queries], options.topics)
    rows = []
    for row in made:
        if not rows:
            print("  ".join(row))
        print("  ".join(str(value) for value in row.values()), flush=True)
        rows.append(row)
    if options.record:
        file = RESULTS / ("lexical-dev.json" if options.dev else "lexical.json")
        value = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "machine": platform.machine(),
                 "command": " ".join(["python", "benchmarks/lexical.py", *sys.argv[1:]]), "rows": rows}  # fmt: skip
        if not options.dev:
            value |= {"titles": len(read_titles(data)), "queries": options.queries, "load": os.getloadavg()[0]}
        file.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"written to {file.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
