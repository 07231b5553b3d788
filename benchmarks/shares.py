"""Which shares words and terms have of a score (training/ranking/title_ranking.py), by queries that report nothing.

    CLICKTOWER_DATA=/path/to/data python benchmarks/shares.py --work /tmp/quality --wordllama DIR --record

The protocol of quality.py: a fifth of the train queries is left out of training and chooses, with the first seed.
Models are the recipes that have words, and what many shops use instead (peers/mean_bags.py, and with --minilm a
sentence transformer; --fine-tuned holds a folder for each data set, fine-tuned on the shards without the choosing
queries by peers/finetuned_minilm.py), which get the terms' help by the same rule.

The rule: one pair of shares for all data sets, words w and terms l. Of the pairs whose NDCG@10 of judged titles is not
below that of the same w without terms, that with the largest sum of NDCG@10 and recall@100 over all titles; figures
are means over the sets.

Prints the chosen pairs and, with --record, writes benchmarks/results/shares.json with the figures of every pair; of
rows and data sets that were not asked for it keeps what it has.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.peers import mean_bags  # noqa: E402
from benchmarks.peers.minilm import Transformer  # noqa: E402
from benchmarks.quality import (  # noqa: E402
    DATASETS,
    FIRST_WORDS,
    LEXICAL_SHARES,
    MAX_WORDS,
    RESULTS,
    Judges,
    bootstrap_interval,
    build_shards,
    train,
    write_choosing,
)
from benchmarks.shard_pairs import read_shard_pairs  # noqa: E402
from clicktower.schemas.documents import read_documents  # noqa: E402
from clicktower.training.model.embedding import TextEncoder, TitleEmbeddings  # noqa: E402
from clicktower.training.model.model import load_encoder  # noqa: E402
from clicktower.training.ranking.measure import Measured  # noqa: E402
from clicktower.training.ranking.title_ranking import WordMatches, mixed  # noqa: E402

# A recipe with words, and the same one without: shares are not trained, so one training serves both.
TRAINED_AS = {"lstm-pool-192-words": "lstm-pool-192", "bag-pool-512-words": "bag-pool-512"}
WORD_SHARES = (0.0, 0.2, 0.3, 0.375, 0.45, 0.5, 0.6)
PEERS_LEXICAL_SHARES = (*LEXICAL_SHARES, 0.6, 0.7, 0.8)  # some gain up to there
MEASURES = (
    "ndcg@1", "ndcg@3", "ndcg@10", "collection_ndcg@10", "collection_recall@10", "collection_recall@100",
)  # fmt: skip
JUDGED = MEASURES.index("ndcg@10")
ALL = [MEASURES.index(f"collection_{measure}") for measure in ("ndcg@10", "recall@100")]
SHARES = ("word_share", "lexical_share")
RECORD = RESULTS / "shares.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    curves: dict[str, dict[str, list]] = {}  # of each row and data set: w, l, measures
    if RECORD.exists():
        curves = json.loads(RECORD.read_text(encoding="utf-8"))["curves"]
    for dataset in options.datasets:
        data, work = Path(os.environ["CLICKTOWER_DATA"], dataset), Path(options.work, dataset)
        left_out, queries, qrels = write_choosing(data, work)
        shards = build_shards(data, DATASETS[dataset], work, left_out)
        judges = Judges(read_documents(str(data / "documents.tsv")), queries, qrels, DATASETS[dataset].language)
        for row, named in TRAINED_AS.items():
            if not options.rows or row in options.rows:
                given = f"{named}:{DATASETS[dataset].settings}"
                model = train(given, options.seed, shards["path"], work / "store", options.threads)
                scores = Scores(load_encoder(model["data"]), judges, words=True)
                curves.setdefault(row, {})[dataset] = curve(scores, judges, WORD_SHARES, LEXICAL_SHARES)
        for row, encoders in peers(options, dataset, shards["data"], [options.seed]):
            [(encoder, _)] = encoders
            curves.setdefault(row, {})[dataset] = curve(Scores(encoder, judges), judges, (0.0,), PEERS_LEXICAL_SHARES)
    chosen = {row: choose(list(of.values())) for row, of in curves.items()}
    for row, (word_share, lexical_share) in chosen.items():
        print(f"{row:<24} w = {word_share}, l = {lexical_share}, by {', '.join(curves[row])}")
    if options.record:
        value = {
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "columns": [*SHARES, *MEASURES],
            "chosen": {row: dict(zip(SHARES, of, strict=True)) for row, of in chosen.items()},
            "curves": curves,
        }
        RECORD.write_text(json.dumps(value) + "\n", encoding="utf-8")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those that default_recipe.py has too."""
    parser.add_argument("--work", required=True, help="folder for the stores, as quality.py's")
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=list(DATASETS))
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="some rows instead of all")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--wordllama", type=Path, help="where `pip install --no-deps --target` put wordllama 0.4")
    parser.add_argument("--minilm", type=Path, help="folder of all-MiniLM-L6-v2")
    parser.add_argument("--fine-tuned", type=Path, help="folder of the same, fine-tuned, for each data set")
    parser.add_argument("--record", action="store_true", help="write the record")


def choose(curves: Sequence[Sequence[Sequence[float]]]) -> tuple[float, float]:
    """(w, l) by the rule, from the curves of several data sets."""
    mean = {(words, terms): figures for words, terms, *figures in np.mean(curves, axis=0).round(6).tolist()}
    allowed = {pair: sum(of[at] for at in ALL) for pair, of in mean.items() if of[JUDGED] >= mean[pair[0], 0.0][JUDGED]}
    return max(allowed, key=allowed.__getitem__)


def curve(
    scores: "Scores", judges: Judges, word_shares: Sequence[float], lexical_shares: Sequence[float]
) -> list[list[float]]:
    """w, l and measures of each pair of shares."""
    rows = []
    for word_share, lexical_share in product(word_shares, lexical_shares):
        values_QM = values_of(judges.measure(scores.by(word_share, lexical_share)))
        rows.append([word_share, lexical_share, *values_QM.mean(axis=0).round(5).tolist()])
    return rows


def peers(
    options: argparse.Namespace, dataset: str, shards: str, seeds: Sequence[int]
) -> Iterator[tuple[str, list[tuple[TextEncoder, float]]]]:
    """(row, of each seed the encoder and the core-seconds of its training); untrained ones have one seed, and 0."""
    pairs = read_shard_pairs(shards).filter(~pl.col("dev"))
    clicks = list(zip(pairs["query"].to_list(), pairs["title"].to_list(), strict=True))
    max_words = MAX_WORDS if DATASETS[dataset].settings == FIRST_WORDS else None
    makers = {"bag-2019": partial(mean_bags.bag_2019, clicks, max_words=max_words)}
    untrained = {}
    if options.wordllama:
        folder = options.wordllama / "wordllama"
        makers["static-table-tuned"] = partial(mean_bags.tuned_table, folder, clicks, max_words=max_words)
        untrained["static-table"] = partial(mean_bags.static_table, folder, max_words)
    if options.minilm:
        untrained["minilm"] = partial(Transformer, str(options.minilm))
    if options.fine_tuned and (options.fine_tuned / dataset).exists():
        untrained["minilm-tuned"] = partial(Transformer, str(options.fine_tuned / dataset))
    for row, make in untrained.items():
        if not options.rows or row in options.rows:
            yield row, [(make(), 0)]
    for row, make in makers.items():
        if not options.rows or row in options.rows:
            yield row, [make(seed=seed) for seed in seeds]


class Scores:
    """R, M and L of the judged queries and all titles, computed once for any shares."""

    def __init__(self, encoder: TextEncoder, judges: Judges, *, words: bool = False) -> None:
        """words: whether M is needed."""
        titles, queries = judges.documents.titles, list(judges.collection.queries.values())
        self._row_of = {query: row for row, query in enumerate(queries)}
        self._nearness = TitleEmbeddings(encoder, titles).scores(queries)
        self._matches = WordMatches(encoder, titles).scores(queries) if words else None
        self._terms = judges.terms

    def by(self, word_share: float, lexical_share: float) -> "Shared":
        return Shared(self, word_share, lexical_share)

    def scores(self, queries: Sequence[str], word_share: float, lexical_share: float) -> np.ndarray:
        rows = [self._row_of[query] for query in queries]
        matches = None if self._matches is None else self._matches[rows]
        return mixed(self._nearness[rows], matches, self._terms[rows], word_share, lexical_share)


class Shared:
    """A system: the score by some shares."""

    def __init__(self, of: Scores, word_share: float, lexical_share: float) -> None:
        self._of, self._shares = of, (word_share, lexical_share)

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        return self._of.scores(queries, *self._shares)


def values_of(measured: Measured) -> np.ndarray:
    return np.stack([measured.per_query[name] for name in MEASURES], axis=1)


def named(values_M: np.ndarray, measures: Sequence[str] = MEASURES) -> dict[str, float]:
    return dict(zip(measures, np.round(values_M, 4).tolist(), strict=True))


def with_interval(values_QM: np.ndarray, measures: Sequence[str] = MEASURES) -> dict[str, dict[str, float]]:
    """The mean over queries, and its 95% interval."""
    ends = dict(zip(("low", "high"), bootstrap_interval(values_QM), strict=True))
    return {name: named(values_M, measures) for name, values_M in {"mean": values_QM.mean(axis=0), **ends}.items()}


if __name__ == "__main__":
    main()
