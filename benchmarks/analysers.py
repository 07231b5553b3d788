"""What the words of BM25 are worth: white space, ours by language, and Lucene's analysers, on a judged collection.

    CLICKTOWER_DATA=/path/to/data python benchmarks/analysers.py --dataset homedepot

Rows are measured on dev with the settings PAIRS of k1 and b. Which pair is the project's own was chosen on the choosing
queries of quality.py, a fifth of the train queries: of the grid K1S x BS, the pair with the highest mean over the data
sets of NDCG@10 over all titles. Lucene's rows have its own tokens (`make engines` brings it) and its formula, which
tests/training/ranking/test_bm25_beside_lucene.py compares with its rankings. Its EnglishAnalyzer leaves out stop words,
its CJKAnalyzer here does not. A title is relevant for recall from grade 1 on, a product title from grade 2 on.

Prints each row and writes benchmarks/results/analysers-DATASET.json, with the curves that chose; then says which pair
they choose over all data sets that are there.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.machine import machine  # noqa: E402
from benchmarks.peers import lucene, scipy_lexical  # noqa: E402
from benchmarks.quality import MIN_JUDGED, first_grades, write_choosing  # noqa: E402
from clicktower.schemas.documents import Documents, read_documents  # noqa: E402
from clicktower.schemas.judgments import read_queries  # noqa: E402
from clicktower.schemas.lexical_contract import Language  # noqa: E402
from clicktower.schemas.text_contract import normalise  # noqa: E402
from clicktower.training.ranking.bm25 import K1, B, TitleBM25  # noqa: E402
from clicktower.training.ranking.measure import JudgedCollection, Rules, System, judged_collection, measure  # noqa: E402
from clicktower.training.ranking.ndcg import bootstrap_interval  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
MEASURES = (
    "ndcg@1", "ndcg@3", "ndcg@10", "collection_ndcg@10", "collection_recall@10", "collection_recall@100",
)  # fmt: skip
CHOOSES = "collection_ndcg@10"
K1S, BS = (0.6, 0.9, 1.2, 1.6), (0.2, 0.4, 0.6, 0.75)
PAIRS = ((K1, B), (1.2, 0.75), (0.9, 0.4))  # the project's, Lucene's, and that of most papers
RELEVANT = {"homedepot": 2}  # elsewhere 1
Pair = tuple[float, float]
LUCENE = {"Lucene StandardAnalyzer": "standard", "Lucene EnglishAnalyzer": "english", "Lucene CJKAnalyzer": "cjk"}
# The language whose terms are the project's row of a data set, and the rows that do not fit its language.
OURS: dict[str, Language] = {"homedepot": "english", "dbpedia_entity": "english", "nfcorpus": "english",
                             "sogou_qt": "none"}  # fmt: skip
UNFIT = {"english": ("Lucene CJKAnalyzer",), "none": ("english", "Lucene EnglishAnalyzer")}


class Collection:
    """A data set's judged queries of one part."""

    def __init__(self, name: str, documents: Documents, queries: Path, qrels: Path) -> None:
        self.name, grades = name, first_grades(qrels)
        self.judged: JudgedCollection = judged_collection(
            documents, read_queries(str(queries)), grades, min_judged=MIN_JUDGED
        )
        self._rules = Rules(relevant_grade=RELEVANT.get(name, 1))

    def measure(self, system: System) -> np.ndarray:
        """MEASURES of each query, float64 [queries, measures]."""
        measured = measure(system, self.judged, self._rules)
        return np.stack([measured.per_query[name] for name in MEASURES], axis=1)

    def rows(self) -> Iterator[tuple[str, Callable[[Pair], System]]]:
        """(name, the system at a pair of k1 and b) of each row that fits the data set."""
        titles, queries = self.judged.titles, list(self.judged.queries.values())
        languages: dict[str, Language | None] = {"white space": None, "none": "none", "english": "english"}
        for name, language in languages.items():
            if name not in UNFIT[OURS[self.name]]:
                yield name, lambda pair, of=language: TitleBM25(titles, of, k1=pair[0], b=pair[1])
        texts = list(dict.fromkeys((*titles, *queries)))
        for name, analyser in LUCENE.items():
            if name not in UNFIT[OURS[self.name]]:
                tokens = lucene.tokens((analyser, normalise(text)) for text in texts)
                terms = dict(zip(texts, tokens, strict=True)).__getitem__
                yield name, lambda pair, of=terms: Plain(scipy_lexical.bm25(titles, *pair, of))


@dataclass(frozen=True)
class Plain:
    """A system of given scores."""

    scores: scipy_lexical.Scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True, choices=OURS)
    parser.add_argument("--record", type=Path, default=RESULTS, help="folder for analysers-DATASET.json")
    options = parser.parse_args()
    name, data = options.dataset, Path(os.environ["CLICKTOWER_DATA"]) / options.dataset
    documents = read_documents(str(data / "documents.tsv"))
    dev = Collection(name, documents, data / "queries.dev.tsv", data / "qrels.dev.txt")
    rows = {}
    for row, make in dev.rows():
        for pair in PAIRS:
            rows[row, pair] = dev.measure(make(pair))
            print_row(row, pair, rows[row, pair])
    with TemporaryDirectory() as folder:
        _, queries, qrels = write_choosing(data, Path(folder))
        choosing = Collection(name, documents, queries, qrels)
    make = next(make for row, make in choosing.rows() if row == OURS[name])
    curve = []
    for pair in product(K1S, BS):
        values_QM = choosing.measure(make(pair))
        print_row("choosing", pair, values_QM)
        curve.append({"k1": pair[0], "b": pair[1], **named(values_QM.mean(axis=0))})
    value = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"python benchmarks/analysers.py --dataset {name}",
        "machine": machine(),
        "dataset": name,
        "titles": len(documents),
        "relevant_grade": RELEVANT.get(name, 1),
        "n": len(dev.judged.qrels),
        "ours": OURS[name],
        "systems": described(rows, OURS[name]),
        "chosen_on": f"{len(choosing.judged.qrels)} train queries, by {CHOOSES}, words: {OURS[name]}",
        "choosing": curve,
    }
    file = options.record / f"analysers-{name}.json"
    file.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    curves = [json.loads(file.read_text(encoding="utf-8"))["choosing"] for file in options.record.glob("analysers-*")]
    k1, b = choice(curves)
    print(f"chosen on {len(curves)} data sets: k1 {k1}, b {b}; the project's are {K1}, {B}")


def choice(curves: Sequence[Sequence[Mapping[str, float]]]) -> Pair:
    """The pair of the highest mean over data sets."""
    values: dict[Pair, list[float]] = {}
    for curve in curves:
        for row in curve:
            values.setdefault((row["k1"], row["b"]), []).append(row[CHOOSES])
    return max(values, key=lambda pair: np.mean(values[pair]))


def described(rows: Mapping[tuple[str, Pair], np.ndarray], ours: str) -> dict[str, dict]:
    """By row and "k1 b" the means and, at that pair, ours minus them with the 95% interval over queries."""
    systems: dict[str, dict] = {}
    for (name, pair), values_QM in rows.items():
        figures = named(values_QM.mean(axis=0))
        if name != ours:
            difference_QM = rows[ours, pair] - values_QM
            low, high = bootstrap_interval(difference_QM)
            parts = {"mean": difference_QM.mean(axis=0), "low": low, "high": high}
            figures["ours_minus"] = {part: named(values_M) for part, values_M in parts.items()}
        systems.setdefault(name, {})[f"{pair[0]} {pair[1]}"] = figures
    return systems


def print_row(row: str, pair: Pair, values_QM: np.ndarray) -> None:
    figures = "  ".join(f"{name} {mean:.4f}" for name, mean in named(values_QM.mean(axis=0)).items())
    print(f"{row:<26}k1 {pair[0]:<5}b {pair[1]:<6}{figures}", flush=True)


def named(values_M: np.ndarray) -> dict:
    return dict(zip(MEASURES, np.round(values_M, 4).tolist(), strict=True))


if __name__ == "__main__":
    main()
