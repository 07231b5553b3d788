"""How many true duplicates are found among all questions of question_pairs, and how far up they stand.

    CLICKTOWER_DATA=/path/to/data python benchmarks/duplicates_found.py --work /tmp/found
        [--model var-siamese=STORE/train/DIGEST ...] [--record]

Each held-out pair of duplicates (dev.tsv) is asked for both ways: one question is the query, and the other is to be
found among the 53,577 distinct questions of both files. The query itself and other questions that are labelled as its
duplicates are left out, so that a right answer never stands before another. Models must not have been trained on dev:
those of benchmarks/classifiers.py were not. Ways: BM25, the nearest by the model's own similarity (all compared), and
the first 100 of either ordered again by how sure the model's head is. Several models of one name are seeds of it.

Beside the given models stands one that learnt the duplicates of train.tsv as if they were clicks, but for those with a
question of dev: CLICKED, trained in WORK with three seeds by the commands a user types. With --record the figures are
kept in benchmarks/results/duplicates_found.json.
"""

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.duplicates import lines_of, read_questions  # noqa: E402
from benchmarks.labelled import command  # noqa: E402
from clicktower.schemas.stage import open_result  # noqa: E402
from clicktower.schemas.text_contract import normalise, words  # noqa: E402
from clicktower.training.analysis.classifying import classify_vectors  # noqa: E402
from clicktower.training.model.model import Model, load_model  # noqa: E402
from clicktower.training.ranking.bm25 import TitleBM25  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "duplicates_found.json"
CLICKED, SEEDS = "bag-512", (1, 2, 3)
DEPTH, DUPLICATE = 100, "1"
CUTOFFS = (1, 10, 100)
Standing = tuple[float, np.ndarray]  # the place of what is wanted, from 1; the DEPTH questions that stand first


def read_duplicates(data: Path, split: str) -> list[tuple[str, str]]:
    """The pairs of a file that are labelled as duplicates, normalised."""
    lines = lines_of(data / "question_pairs" / f"{split}.tsv")
    pairs = [tuple(map(normalise, line.split("\t")[1:3])) for line in lines if line.startswith(f"{DUPLICATE}\t")]
    return [(a, b) for a, b in pairs if words(a) and words(b) and a != b]


class Asked:
    """What is asked for: (query, its duplicate, its other known duplicates) as places among the questions."""

    def __init__(self, data: Path, questions: list[str]) -> None:
        place = {question: at for at, question in enumerate(questions)}
        held_out = [(place[a], place[b]) for a, b in read_duplicates(data, "dev")]
        self._known = defaultdict[int, set[int]](set)
        for a, b in held_out + [(place[a], place[b]) for a, b in read_duplicates(data, "train")]:
            self._known[a].add(b)
            self._known[b].add(a)
        self._pairs = list(dict.fromkeys(held_out + [(b, a) for a, b in held_out]))

    def __iter__(self) -> Iterator[tuple[int, int, list[int]]]:
        for query, wanted in self._pairs:
            yield query, wanted, [query, *sorted(self._known[query] - {wanted})]


def rank(scores_N: np.ndarray, wanted: int, left_out: list[int]) -> float:
    """The place of a question, from 1; of equally high ones the mean."""
    above = scores_N > scores_N[wanted]
    like = scores_N == scores_N[wanted]
    above[left_out] = like[left_out] = False
    return 1 + int(above.sum()) + (int(like.sum()) - 1) / 2


def measure(ranks: list[float]) -> dict[str, float]:
    found = np.array(ranks)
    shares = {f"recall@{k}": float((found <= k).mean()) for k in CUTOFFS}
    return {name: round(value, 4) for name, value in {**shares, "mrr": float((1 / found).mean())}.items()}


def standing(scores_N: np.ndarray, wanted: int, left_out: list[int]) -> Standing:
    place = rank(scores_N, wanted, left_out)
    scores_N[left_out] = -np.inf
    return place, np.argpartition(-scores_N, DEPTH)[:DEPTH]


def by_model(model: Model, questions: list[str], asked: Asked, by_words: list[Standing]) -> dict[str, dict[str, float]]:
    """The nearest by the model, and what its head makes of the nearest by the model and by BM25."""
    queries_ND, vectors_ND = (model.encode(questions, side) for side in ("query", "document"))
    units_ND = vectors_ND / np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    half_square_N = (vectors_ND**2).sum(axis=1) / 2

    def near(query: int) -> np.ndarray:
        if model.similarity == "euclidean":
            return vectors_ND @ queries_ND[query] - half_square_N
        return units_ND @ queries_ND[query]

    def sure(query: int, others_K: np.ndarray) -> np.ndarray:
        pairs = (np.repeat(queries_ND[[query]], len(others_K), axis=0), vectors_ND[others_K])
        return classify_vectors(model, pairs)[:, model.outputs.classes.index(DUPLICATE)]

    ranks = defaultdict[str, list[float]](list)
    for (query, wanted, left_out), of_words in zip(asked, by_words, strict=True):
        nearest = standing(near(query), wanted, left_out)
        ranks["nearest"].append(nearest[0])
        if model.outputs.unit == "pairs":
            for way, found in (("the nearest", nearest), ("BM25", of_words)):
                ranks[f"surest of {DEPTH} of {way}"].append(again(found, wanted, partial(sure, query)))
    return {way: measure(of_way) for way, of_way in ranks.items()}


def again(found: Standing, wanted: int, sure: Callable[[np.ndarray], np.ndarray]) -> float:
    """The place of a question once the highest DEPTH are ordered by other scores; what is below stays where it is."""
    place, top = found
    if wanted not in top:
        return place
    return rank(sure(top), int(np.flatnonzero(top == wanted)[0]), [])


def learnt_as_clicks(data: Path, questions: list[str], work: Path) -> Iterator[str]:
    """The folder of each seed's training."""
    place = {question: at for at, question in enumerate(questions)}
    dev = {normalise(text) for line in lines_of(data / "question_pairs" / "dev.tsv") for text in line.split("\t")[1:]}
    pairs = [(a, b) for a, b in read_duplicates(data, "train") if not dev & {a, b}]
    work.mkdir(parents=True, exist_ok=True)
    documents, clicks, store = (str(work / name) for name in ("questions.tsv", "clicks.tsv", "store"))
    both_ways = [f"{place[a]}\t{a}\t{place[b]}\t-\n" for pair in pairs for a, b in (pair, pair[::-1])]
    Path(clicks).write_text("".join(both_ways), encoding="utf-8")
    Path(documents).write_text("".join(f"{at}\t{text}\n" for at, text in enumerate(questions)), encoding="utf-8")
    day = command("ingest", clicks, "--format", "orcas", "--into", store)
    built = command("build", "--days", day["path"], "--documents", documents, "--k", "0", "--into", store)
    for seed in SEEDS:
        given = ["--shards", built["path"], "--recipe", CLICKED, "--set", f"seed={seed}", "--into", store]
        yield command("train", *given)["path"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True)
    parser.add_argument("--model", action="append", default=[], help="NAME=FOLDER")
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    data = Path(os.environ["CLICKTOWER_DATA"])
    questions = read_questions(data)
    asked = Asked(data, questions)
    bm25 = TitleBM25(questions)
    seeds = defaultdict[str, list[dict[str, Any]]](list)
    by_words = [standing(bm25.scores([questions[query]])[0], wanted, out) for query, wanted, out in asked]
    seeds["BM25"].append(measure([place for place, _ in by_words]))
    clicked = [
        (f"{CLICKED}, duplicates as clicks", path) for path in learnt_as_clicks(data, questions, Path(given.work))
    ]
    for name, folder in [*clicked, *(model.split("=", 1) for model in given.model)]:
        for way, measures in by_model(load_model(open_result(folder).data), questions, asked, by_words).items():
            seeds[f"{name}, {way}"].append(measures)
            print(f"{name}, {way}", measures, file=sys.stderr)
    result = {
        "questions": len(questions),
        "asked": len(list(asked)),
        "systems": {
            name: {"seeds": rows, "mean": {m: round(float(np.mean([row[m] for row in rows])), 4) for m in rows[0]}}
            for name, rows in seeds.items()
        },
    }
    print(json.dumps(result, indent=1))
    if given.record:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
