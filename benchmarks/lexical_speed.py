"""The search by words alone: indexing titles, opening the index and finding the best, beside tantivy and bm25s.

    CLICKTOWER_DATA=/path/to/data python benchmarks/lexical_speed.py --work /tmp/lexical
        [--documents 1000000] [--queries 2000] [--without tantivy bm25s] [--record]

Titles and queries as in serving.py. All three get the terms of our analyser: tantivy (pip install tantivy) as text of
white space, bm25s as lists; our seconds alone include the analysis. Seconds and milliseconds are of the processor, in
one thread; a search begins with the typed query, whose analysis each includes. Ours and tantivy's are opened from their
files, bm25s is searched as it was made. With --record the run is kept in
benchmarks/results/lexical_speed.json, beside those of other numbers of titles.
"""

import argparse
import json
import os
import sys
import time
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
from benchmarks.real_pairs import read_queries, read_titles  # noqa: E402
from benchmarks.serving import tell, write_documents  # noqa: E402
from clicktower.schemas.lexical_contract import Analyser  # noqa: E402
from clicktower.training.ranking.bm25 import INDEX, TitleBM25  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "lexical_speed.json"
DEPTHS = (10, 50, 200)
TERMS = Analyser().terms
BM25S_QUERIES = 50  # each scores every title


def ours(titles: list[str], queries: list[str], work: Path) -> dict[str, Any]:
    index, seconds = _timed(lambda: TitleBM25(titles))
    path = work / INDEX
    index.write(str(path))
    TitleBM25.open(str(path))  # what is loaded once
    opened, open_seconds = _timed(lambda: TitleBM25.open(str(path)))
    assert opened is not None
    row = {"build_seconds": seconds, "megabytes": path.stat().st_size / 1e6, "open_ms": 1e3 * open_seconds}
    row |= _searches(opened.best, queries)
    # What a hybrid asks: the scores of the candidates of another method, and the score that normalises.
    rows = np.sort(np.random.default_rng(0).choice(len(titles), 400, replace=False))
    row |= _percentiles("scores_of_400", lambda query: opened.scores_of(query, rows), queries)
    return row | _percentiles("self_score", opened.self_score, queries)


def tantivy(titles: list[str], queries: list[str], work: Path) -> dict[str, Any]:
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("title", tokenizer_name="whitespace", index_option="freq")
    schema, folder = builder.build(), work / "tantivy"
    folder.mkdir(exist_ok=True)
    texts, analysis_seconds = _timed(lambda: [" ".join(TERMS(title)) for title in titles])

    def build() -> None:
        writer = tantivy.Index(schema, path=str(folder), reuse=False).writer(1_000_000_000, num_threads=1)
        for text in texts:
            writer.add_document(tantivy.Document(title=text))
        writer.commit()
        writer.wait_merging_threads()

    _, seconds = _timed(build)
    size = sum(file.stat().st_size for file in folder.iterdir())
    searcher, open_seconds = _timed(lambda: tantivy.Index.open(str(folder)).searcher())
    row = {"build_seconds": seconds, "analysis_seconds": analysis_seconds, "megabytes": size / 1e6}
    row |= {"open_ms": 1e3 * open_seconds, "segments": searcher.num_segments}

    def search(query: str, k: int) -> Any:
        terms = [tantivy.Query.term_query(schema, "title", term, index_option="freq") for term in TERMS(query)]
        any_term = tantivy.Query.boolean_query([(tantivy.Occur.Should, term) for term in terms])
        return searcher.search(any_term, k, count=False)

    return row | _searches(search, queries)


def bm25s(titles: list[str], queries: list[str], work: Path) -> dict[str, Any]:
    import bm25s

    terms, index = [TERMS(title) for title in titles], bm25s.BM25(k1=0.9, b=0.4, method="lucene", backend="numpy")
    _, seconds = _timed(lambda: index.index(terms, show_progress=False))
    index.save(work / "bm25s")
    size = sum(file.stat().st_size for file in (work / "bm25s").iterdir())
    _, open_seconds = _timed(lambda: bm25s.BM25.load(work / "bm25s", mmap=True))
    row = {"build_seconds": seconds, "megabytes": size / 1e6, "open_ms": 1e3 * open_seconds}

    def search(query: str, k: int) -> Any:
        return index.retrieve([TERMS(query)], k=min(k, len(titles)), show_progress=False)

    return row | _searches(search, queries[:BM25S_QUERIES])


SYSTEMS = {"ours": ours, "tantivy": tantivy, "bm25s": bm25s}


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    value = call()
    return value, time.process_time() - began


def _searches(search: Callable[[str, int], Any], queries: list[str]) -> dict[str, float]:
    row = {}
    for depth in DEPTHS:
        row |= _percentiles(f"top_{depth}", partial(search, k=depth), queries)
    return row


def _percentiles(name: str, call: Callable[[str], Any], queries: list[str]) -> dict[str, float]:
    """Milliseconds of a call for each query, which was made once before."""
    for query in queries:
        call(query)
    milliseconds = [1e3 * _timed(partial(call, query))[1] for query in queries]
    return {f"{name}_p{share}_ms": float(np.percentile(milliseconds, share)) for share in (50, 99)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--documents", type=int, help="by default the catalogue's titles")
    parser.add_argument("--queries", type=int, default=2_000)
    parser.add_argument("--without", nargs="*", choices=SYSTEMS, default=[])
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    if "CLICKTOWER_DATA" not in os.environ:
        parser.error("set CLICKTOWER_DATA to the folder that holds homedepot/")
    options.work.mkdir(parents=True, exist_ok=True)
    data, documents = Path(os.environ["CLICKTOWER_DATA"]), options.work / "documents.tsv"
    titles = read_titles(data)
    if options.documents:
        write_documents(documents, titles, options.documents)
        titles = [line.split("\t")[1] for line in documents.read_text(encoding="utf-8").splitlines()]
    queries = [query for query in read_queries(data)[: options.queries] if TERMS(query)]
    rows = {}
    for name, measure in SYSTEMS.items():
        if name not in options.without:
            row = {key: float(f"{value:.3g}") for key, value in measure(titles, queries, options.work).items()}
            rows[name] = row
            tell(f"{name}: {row}")
    if options.record:
        recorded = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
        recorded[str(len(titles))] = {
            "when": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine(),
            "command": " ".join(["python", "benchmarks/lexical_speed.py", *sys.argv[1:]]),
            "queries": len(queries), "load": os.getloadavg()[0], "systems": rows,
        }  # fmt: skip
        RESULTS.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
        print(f"written to {RESULTS.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
