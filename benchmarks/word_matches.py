"""What a tower's own words add to its cosine: late interaction (training/ranking/word_matches.py) on real judgments.

    CLICKTOWER_DATA=/path/to/data python benchmarks/word_matches.py --dataset homedepot --work /tmp/quality

The protocol of quality.py: a fifth of the train queries, left out of training, chooses the share that words have of a
score, with the first seed; then models of all pairs and every seed are measured once on dev. Rows: the tower; its words
alone; both by the chosen share, and by the recipe's, of all titles, and of those that are nearest by the cosine alone,
as `clicktower search` does; two seeds side by side, to see what any second opinion adds; BM25. Means over seeds of each
query, paired intervals over queries.

Prints a table and writes benchmarks/results/word-matches-DATASET.json, with the curve that chose.
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.quality import (  # noqa: E402
    DATASETS,
    FIRST_WORDS,
    RESULTS,
    Judges,
    bootstrap_interval,
    build_shards,
    train,
    write_choosing,
)
from clicktower.flows.releases.search import WORDS_RANK  # noqa: E402
from clicktower.schemas.documents import read_documents  # noqa: E402
from clicktower.training.model.embedding import TextEncoder, TitleEmbeddings  # noqa: E402
from clicktower.training.model.ensemble import Ensemble  # noqa: E402
from clicktower.training.model.model import load_model  # noqa: E402
from clicktower.training.model.named_recipes import recipe  # noqa: E402
from clicktower.training.ranking.hybrid import scores_of_pairs  # noqa: E402
from clicktower.training.ranking.measure import Measured  # noqa: E402
from clicktower.training.ranking.ndcg import judged_pairs, ndcg_of_judged  # noqa: E402
from clicktower.training.ranking.word_matches import WordMatches, title_ranking, with_words  # noqa: E402

TOWER = "lstm-pool-192"
SETTINGS = {"homedepot": "optimiser.step=0.008,epochs=10", "nfcorpus": FIRST_WORDS}  # homedepot's as quality.py chose
MEASURES = (
    "ndcg@1", "ndcg@3", "ndcg@10", "collection_recall@10", "collection_recall@100", "collection_ndcg@10",
)  # fmt: skip
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.35, 0.375, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8)
RECIPES_SHARE = recipe(f"{TOWER}-words").clicks.word_share
TIMED_QUERIES = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True, choices=DATASETS)
    parser.add_argument("--work", required=True, help="folder for the store, as quality.py's")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="training seeds; the first chooses")
    parser.add_argument("--also", help="another recipe, whose models are combined with the tower's: rows more")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    data, work = Path(os.environ["CLICKTOWER_DATA"]) / options.dataset, Path(options.work) / options.dataset
    documents, store = read_documents(str(data / "documents.tsv")), work / "store"
    given = f"{TOWER}:{SETTINGS.get(options.dataset, '')}"

    left_out, queries, qrels = write_choosing(data, work)
    shards = build_shards(data, DATASETS[options.dataset], work, left_out)
    chosen_by = Judges(documents, queries, qrels)
    alone = load_model(train(given, options.seeds[0], shards["path"], store, options.threads)["data"])
    curve = by_share(alone, chosen_by)
    curve_also = []
    if options.also:
        other = load_model(train(options.also, options.seeds[0], shards["path"], store, options.threads)["data"])
        curve_also = by_share(Ensemble(members=(alone, other)), chosen_by)
    share = SHARES[int(np.argmax(np.round([value for _, value in curve], 12)))]

    dev = Judges(documents, data / "queries.dev.tsv", data / "qrels.dev.txt")
    shards = build_shards(data, DATASETS[options.dataset], work, dev.queries)
    models = [load_model(train(given, seed, shards["path"], store, options.threads)["data"]) for seed in options.seeds]
    table = {TOWER: [dev.measure(TitleEmbeddings(model, documents.titles)) for model in models]}
    table["words alone"] = [dev.measure(WordMatches(model, documents.titles)) for model in models]
    for name, of_words in ("words, chosen share", share), ("words, the recipe's share", RECIPES_SHARE):
        table[name] = [dev.measure(title_ranking(model, documents.titles, of_words)) for model in models]
    table["nearest, the recipe's share"] = [dev.measure(NearestAgain(model, documents.titles)) for model in models]
    pairs = [Ensemble(members=members) for members in combinations(models, 2)]
    table["two seeds side by side"] = [dev.measure(TitleEmbeddings(pair, documents.titles)) for pair in pairs]
    if options.also:
        others = [train(options.also, seed, shards["path"], store, options.threads)["data"] for seed in options.seeds]
        both = [Ensemble(members=(model, load_model(other))) for model, other in zip(models, others, strict=True)]
        for name, of_words in (f"and {options.also}", 0.0), (f"and {options.also}, words", RECIPES_SHARE):
            table[name] = [dev.measure(title_ranking(model, documents.titles, of_words)) for model in both]
    table["bm25"] = [dev.measure(dev.bm25)]
    means = {name: np.mean([values_of(one) for one in seeds], axis=0) for name, seeds in table.items()}
    minus = {name: values_QM - means[TOWER] for name, values_QM in means.items() if name != TOWER}
    value = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"python benchmarks/word_matches.py {' '.join(sys.argv[1:])}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, no accelerator",
        "dataset": options.dataset,
        "tower": given,
        "seeds": options.seeds,
        "chosen_on": f"{len(chosen_by.collection.qrels)} train queries left out of training, by ndcg@10",
        "share": share,
        "recipes_share": RECIPES_SHARE,
        "chose": [{"share": tried, "ndcg@10": round(found, 4)} for tried, found in curve],
        "chose_also": [{"share": tried, "ndcg@10": round(found, 4)} for tried, found in curve_also],
        "n": len(dev.collection.qrels),
        "systems": {name: named(values_QM.mean(axis=0)) for name, values_QM in means.items()},
        f"minus {TOWER}": {name: with_interval(values_QM) for name, values_QM in minus.items()},
        **costs(models[0], documents.titles, list(dev.collection.queries.values())),
    }
    (RESULTS / f"word-matches-{options.dataset}.json").write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    for name, of in value["systems"].items():
        print(f"{name:<32}" + "".join(f"{figure:>9.4f}" for figure in of.values()))


def values_of(measured: Measured) -> np.ndarray:
    return np.stack([measured.per_query[name] for name in MEASURES], axis=1)


def named(values_M: np.ndarray, measures: Sequence[str] = MEASURES) -> dict[str, float]:
    return dict(zip(measures, np.round(values_M, 4).tolist(), strict=True))


def with_interval(values_QM: np.ndarray, measures: Sequence[str] = MEASURES) -> dict[str, dict[str, float]]:
    """The mean over queries, and its 95% interval."""
    found = {"mean": values_QM.mean(axis=0), **dict(zip(("low", "high"), bootstrap_interval(values_QM), strict=True))}
    return {name: named(values_M, measures) for name, values_M in found.items()}


class NearestAgain:
    """What search ranks: the nearest titles by texts and words, and after them all others by the cosine."""

    def __init__(self, encoder: TextEncoder, titles: Sequence[str]) -> None:
        self._cosines, self._both = (title_ranking(encoder, titles, share) for share in (0.0, RECIPES_SHARE))

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        cosines = self._cosines.scores(queries)
        last = np.sort(cosines, axis=1)[:, -min(WORDS_RANK, cosines.shape[1])]
        return np.where(cosines >= last[:, None], self._both.scores(queries), cosines - 2)


def by_share(encoder: TextEncoder, judges: Judges) -> list[tuple[float, float]]:
    """NDCG@10 of each share."""
    titles = judges.documents.titles
    judged = judged_pairs(judges.collection.qrels)
    cosines, matches = (
        np.nan_to_num(scores_of_pairs(judges.measure(system).judged, judged), neginf=-9)
        for system in (TitleEmbeddings(encoder, titles), WordMatches(encoder, titles))
    )
    ndcg = (ndcg_of_judged(judged, with_words(cosines, matches, share), (10,))[10].mean() for share in SHARES)
    return list(zip(SHARES, map(float, ndcg), strict=True))


def costs(model: TextEncoder, titles: Sequence[str], queries: Sequence[str]) -> dict[str, float]:
    """What it takes to prepare the titles' words, in seconds of a core, and to rank again as many as search does."""
    began = time.process_time()
    matches = WordMatches(model, titles)
    prepared = time.process_time() - began
    rows = np.random.default_rng(0).choice(len(titles), (TIMED_QUERIES, WORDS_RANK))
    began = time.process_time()
    for query, of_query in zip(queries, rows, strict=False):
        matches.scores_of(query, of_query)
    took = (time.process_time() - began) / min(len(queries), TIMED_QUERIES)
    return {"prepare_core_seconds": round(prepared, 2), "again_core_milliseconds": round(took * 1_000, 3)}


if __name__ == "__main__":
    main()
