"""What Palangi et al. say of their cells (section V-A, Tables III, V to VIII) and baselines, measured on dev queries.

    CLICKTOWER_DATA=/path/to/data python benchmarks/claims.py --work /tmp/quality [--cells 32] [--seeds 1 2 3]

Trains an LSTM, an RNN and a bidirectional LSTM on Home Depot as benchmarks/quality.py does, and reads all dev queries
(and every 50th title) with them and with the same models before training: what those show too, training did not teach.
The LSTMs have the 96 cells of Table IV's best row, or the 32 of section V-A (in each direction, and without an RNN). A
bidirectional one has the printed rule: a keyword is declared in both directions.
The claims, and what is measured for each query:

attenuation   the input gate is less open at unimportant words: its mean over the cells at keywords minus that at other
              words, and at other words minus that at function words, which are unimportant whatever a model says
keywords      what many cells declare is what matters: inverse document frequency, the share of relevant titles that
              have the word, and how much of the cosine to them is lost without it, at keywords minus at other words
topics        a cell takes words of one topic: how like each other the relevant titles of two queries are whose keywords
              a cell takes, minus those of two queries without such a cell. The queries of a pair share no word, and of
              titles the words of their query are left out; TF-IDF, cosine
RNN and LSTM  the RNN declares unimportant words with more cells, and tells good from bad titles less: the share of the
              most active cells that move at function words, the cosine to relevant titles minus that to Bad ones
alike         PLSA and Doc2Vec rank alike with other settings (section VI): NDCG with these minus that with the paper's,
              on dev queries with five judgments

Every figure is a mean over queries (of topics, over pairs) with its 95% interval, by a bootstrap over queries; several
seeds are averaged for each query first. A claim is reproduced where the interval is above zero, and that of the
difference to the untrained model too. Prints a table and writes benchmarks/results/claims.json, or claims-32.json
without the last one. Fig. 7 is training_loss.py's.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.machine import machine  # noqa: E402
from benchmarks.quality import (  # noqa: E402
    DATASETS,
    RESULTS,
    ROWS,
    Judges,
    build_shards,
    differences,
    first_grades,
    of_measures,
    train,
)
from clicktower.schemas.documents import read_documents  # noqa: E402
from clicktower.schemas.judgments import read_queries  # noqa: E402
from clicktower.schemas.stage import silent  # noqa: E402
from clicktower.schemas.text_contract import words  # noqa: E402
from clicktower.training.analysis.explanation import CELLS  # noqa: E402
from clicktower.training.analysis.keywords import CountingRule, keywords  # noqa: E402
from clicktower.training.analysis.traces import Direction, trace  # noqa: E402
from clicktower.training.model.embedding import Side, unit  # noqa: E402
from clicktower.training.model.model import Model, load_model  # noqa: E402
from clicktower.training.model.parameters import initial_parameters  # noqa: E402
from clicktower.training.ranking.ndcg import percentiles, resample  # noqa: E402

DATASET, EVERY = "homedepot", 50
# By the cells of the LSTMs: an LSTM, an RNN with as many parameters, a bidirectional LSTM.
RECIPES: Mapping[int, tuple[str, ...]] = {
    96: ("paper-lstm-96", "paper-rnn-288", "paper-bilstm-96"),
    32: ("paper-lstm-32", "paper-bilstm-96:tower.cells=32"),
}
RELEVANT, BAD = 2, 0  # Good and Excellent; Bad
FUNCTION_WORDS = frozenset(
    words(
        "a an and are as at be by can do does for from how i in is it its my of on or that the this to what which with"
        " you your"
    )
)
CONFIDENCE, RESAMPLES = 0.95, 2_000
ALIKE: Mapping[str, tuple[dict[str, int], ...]] = {  # with which the paper saw about the same, beside its own
    "plsa-printed": ({"topics": 100}, {"topics": 300}),
    "doc2vec-printed": ({"dimensions": 400}, {"epochs": 100}, {"window": 2}, {"window": 10}),
}


class Claim(NamedTuple):
    claim: str
    measure: str
    model: str


Statistic = Callable[[np.ndarray], np.ndarray]  # from how often each query was drawn [S, Q] to a value each [S]


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """A text as a model reads it; arrays have a value for each word, means over the directions that count it."""

    words: tuple[str, ...]
    has_count: np.ndarray  # bool
    keyword: np.ndarray  # bool
    gate: np.ndarray  # of an RNN nan
    moved: np.ndarray  # share of the most active cells
    cells: frozenset[tuple[Direction, int]]  # that take a keyword

    @property
    def function(self) -> np.ndarray:
        return np.array([word in FUNCTION_WORDS for word in self.words])

    def contrast(self, values: np.ndarray, these: np.ndarray) -> float:
        """The mean at these words minus that at all others with a count; nan without one of a kind."""
        one, other = values[these & self.has_count], values[~these & self.has_count]
        return float(one.mean() - other.mean()) if len(one) and len(other) else np.nan


def read(model: Model, text: str, side: Side) -> Read:
    traced = trace(model, text, side)
    found = keywords(traced.traces, CountingRule())
    counts = np.array([[np.nan if n is None else n / len(of.cells) for n in of.counts] for of in found.counted])
    gates = np.array([of.states["i"].mean(axis=1) if "i" in of.states else counts[0] * np.nan for of in traced.traces])
    known, keyword = ~np.isnan(counts), np.isin(np.arange(len(traced.words)), found.keywords)
    times = np.maximum(known.sum(axis=0), 1)
    return Read(
        words=traced.words,
        has_count=known.any(axis=0),
        keyword=keyword,
        gate=np.where(known, gates, 0).sum(axis=0) / times,
        moved=np.where(known, counts, 0).sum(axis=0) / times,
        cells=frozenset(
            (of.direction, cell)
            for of in found.counted
            for column, cell in enumerate(of.cells[:CELLS])
            if of.declared[keyword, column].any()
        ),
    )


class Judged:
    """Queries with their judged titles, and how many titles of the collection have each word."""

    def __init__(self, queries: Sequence[str], grades: Sequence[Mapping[str, int]], titles: Mapping[str, str]) -> None:
        self.queries = queries
        self.relevant = [[titles[id] for id, grade in of.items() if grade >= RELEVANT] for of in grades]
        self.bad = [[titles[id] for id, grade in of.items() if grade == BAD] for of in grades]
        self.sample = [title for title in [*titles.values()][::EVERY] if len(words(title)) > 1]
        self._titles_with = Counter(word for title in titles.values() for word in set(words(title)))
        self._num_titles = len(titles)

    def idf(self, word: str) -> float:
        of = self._titles_with[word]
        return float(np.log(1 + (self._num_titles - of + 0.5) / (of + 0.5)))

    def profiles(self) -> np.ndarray:
        """TF-IDF of the words of each query's relevant titles but its own, of length 1 (0 without any), [Q, words]."""
        counted = [Counter(word for title in of for word in words(title)) for of in self.relevant]
        column = {word: at for at, word in enumerate(sorted(set().union(*counted)))}
        made = np.zeros((len(counted), len(column)), np.float32)
        for row, of, query in zip(made, counted, self.queries, strict=True):
            own = set(words(query))
            for word, count in of.items():
                row[column[word]] = 0 if word in own else count * self.idf(word)
        return made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-9)

    def strangers(self) -> np.ndarray:
        """Which pairs of queries have no word in common, bool [Q, Q]."""
        sets = [set(words(query)) for query in self.queries]
        column = {word: at for at, word in enumerate(sorted(set().union(*sets)))}
        has = np.zeros((len(sets), len(column)), np.float32)
        for row, of in zip(has, sets, strict=True):
            row[[column[word] for word in of]] = 1
        return has @ has.T == 0


def of_words(judged: Judged, name: str, model: Model, reads: Sequence[Read]) -> dict[Claim, np.ndarray]:
    """What is measured of a model alone, a value for each query; nan where there is none."""
    has_gate = model.recipe.tower.kind != "rnn"
    titles = [read(model, title, "document") for title in judged.sample] if has_gate else []
    found = {}
    for what, texts in (("queries", reads), ("titles", titles)) if has_gate else ():
        at_keywords = [of.contrast(of.gate, of.keyword) for of in texts]
        found[Claim("attenuation", f"{what}: gate, keywords - others", name)] = at_keywords
        at_others = [of.contrast(of.gate, ~of.function) for of in texts]
        found[Claim("attenuation", f"{what}: gate, others - function words", name)] = at_others
    idf = [of.contrast(np.array([judged.idf(word) for word in of.words]), of.keyword) for of in reads]
    found[Claim("keywords", "inverse document frequency", name)] = idf
    share, lost = [], []
    for query, of, relevant in zip(judged.queries, reads, judged.relevant, strict=True):
        if not relevant or len(of.words) < 2:
            share.append(np.nan)
            lost.append(np.nan)
            continue
        in_titles = [set(words(title)) for title in relevant]
        share.append(
            of.contrast(np.array([np.mean([word in has for has in in_titles]) for word in of.words]), of.keyword)
        )
        without = [" ".join(of.words[:at] + of.words[at + 1 :]) for at in range(len(of.words))]
        vectors = unit(model.encode([query, *without], "query")) @ unit(model.encode(relevant, "document")).mean(axis=0)
        lost.append(of.contrast(vectors[0] - vectors[1:], of.keyword))
    found[Claim("keywords", "share of relevant titles with the word", name)] = share
    found[Claim("keywords", "cosine to them lost without the word", name)] = lost
    return {claim: np.array(values) for claim, values in found.items()}


def of_two(
    judged: Judged, names: tuple[str, str], models: tuple[Model, Model], reads: Sequence[Sequence[Read]]
) -> dict[Claim, np.ndarray]:
    """The LSTM and the RNN side by side; positive where the paper's claim holds."""
    lstm, rnn = (
        np.array([at.mean() if len(at := one.moved[one.function & one.has_count]) else np.nan for one in of])
        for of in reads
    )
    gaps = []
    for model in models:
        gap = np.full(len(judged.queries), np.nan)
        for at, (query, good, bad) in enumerate(zip(judged.queries, judged.relevant, judged.bad, strict=True)):
            if good and bad:
                cosines = unit(model.encode([*good, *bad], "document")) @ unit(model.encode([query], "query"))[0]
                gap[at] = cosines[: len(good)].mean() - cosines[len(good) :].mean()
        gaps.append(gap)
    both = " and ".join(names)
    return {
        Claim("RNN and LSTM", "cells at function words, RNN - LSTM", both): rnn - lstm,
        Claim("RNN and LSTM", "cosine of good - bad titles, LSTM - RNN", both): gaps[0] - gaps[1],
    }


def mean_of(values: np.ndarray) -> Statistic:
    """The mean over the queries that have a value."""
    known = ~np.isnan(values)
    return lambda times_SQ: times_SQ[:, known] @ values[known] / np.maximum(times_SQ[:, known].sum(axis=1), 1)


def topics_of(likeness: np.ndarray, strangers: np.ndarray, seeds: Sequence[Sequence[Read]]) -> Statistic:
    """The mean likeness of pairs that share a cell minus that of those that do not, mean over the seeds."""
    pairs = []
    for reads in seeds:
        takers = {cell: at for at, cell in enumerate(sorted(set().union(*(of.cells for of in reads))))}
        takes = np.zeros((len(reads), len(takers)), np.float32)
        for row, of in zip(takes, reads, strict=True):
            row[[takers[cell] for cell in of.cells]] = 1
        some = takes.any(axis=1) & (np.diag(likeness) > 0)
        inside = strangers & some & some[:, None]
        shares = takes @ takes.T > 0
        pairs += [inside & shares, inside & ~shares]

    def over(times_SQ: np.ndarray, values_QQ: np.ndarray) -> np.ndarray:
        return np.einsum("sq,sq->s", times_SQ @ values_QQ, times_SQ)

    def statistic(times_SQ: np.ndarray) -> np.ndarray:
        times_SQ = times_SQ.astype(np.float32)
        with np.errstate(invalid="ignore"):  # nan where no pair of a kind was drawn
            means = [over(times_SQ, of * likeness) / over(times_SQ, of.astype(np.float32)) for of in pairs]
        return np.mean(means[::2], axis=0) - np.mean(means[1::2], axis=0)

    return statistic


def interval(statistic: Statistic, num_queries: int) -> dict[str, float]:
    """{"mean", "low", "high"}, by the same draws for every statistic of as many queries."""
    low, high = percentiles(
        resample(lambda times_SQ: statistic(times_SQ)[:, None], num_queries, num_resamples=RESAMPLES), CONFIDENCE
    )
    return {"mean": float(statistic(np.ones((1, num_queries)))[0]), "low": float(low[0]), "high": float(high[0])}


def verdict(trained: Mapping[str, float], difference: Mapping[str, float]) -> str:
    if trained["high"] < 0:
        return "the opposite"
    if trained["low"] <= 0:
        return "cannot be said"
    return "reproduced" if difference["low"] > 0 else "cannot be told from before training"


def row_of(claim: Claim, trained: Statistic, untrained: Statistic, num_queries: int, n: int) -> dict:
    measured = {
        "trained": interval(trained, num_queries),
        "untrained": interval(untrained, num_queries),
        "difference": interval(lambda times_SQ: trained(times_SQ) - untrained(times_SQ), num_queries),
    }
    said = verdict(measured["trained"], measured["difference"])
    return {**claim._asdict(), "n": n, **measured, "verdict": said}


def mean_over(seeds: Sequence[Mapping[Claim, np.ndarray]]) -> dict[Claim, np.ndarray]:
    """Of each query the mean over the seeds in which it has a value."""
    made = {}
    for claim in seeds[0]:
        values = np.stack([of[claim] for of in seeds])
        known = ~np.isnan(values)
        sums = np.where(known, values, 0).sum(axis=0)
        made[claim] = np.where(known.any(axis=0), sums / np.maximum(known.sum(axis=0), 1), np.nan)
    return made


def measure(judged: Judged, seeds: Sequence[Mapping[str, Model]]) -> list[dict]:
    """The rows of the table. seeds: of each the models of RECIPES, by their recipes' names."""
    names = list(seeds[0])
    values: dict[bool, list[dict[Claim, np.ndarray]]] = {True: [], False: []}
    reads: dict[tuple[bool, str], list[list[Read]]] = {}
    for is_trained, made in values.items():
        for models in seeds:
            models = models if is_trained else {name: before_training(model) for name, model in models.items()}
            of_seed = {
                name: [read(model, query, "query") for query in judged.queries] for name, model in models.items()
            }
            found: dict[Claim, np.ndarray] = {}
            for name, model in models.items():
                found |= of_words(judged, name, model, of_seed[name])
                reads.setdefault((is_trained, name), []).append(of_seed[name])
            for rnn in (name for name, model in models.items() if model.recipe.tower.kind == "rnn"):
                lstm = names[0]
                found |= of_two(judged, (lstm, rnn), (models[lstm], models[rnn]), (of_seed[lstm], of_seed[rnn]))
            made.append(found)
            print("trained" if is_trained else "untrained", "models of a seed are read", file=sys.stderr)
    rows = []
    trained, untrained = mean_over(values[True]), mean_over(values[False])
    for claim, of in trained.items():
        known, n = len(of), int((~np.isnan(of)).sum())
        rows.append(row_of(claim, mean_of(of), mean_of(untrained[claim]), known, n))
    likeness, strangers = (lambda profiles: profiles @ profiles.T)(judged.profiles()), judged.strangers()
    for name in names:
        after, before = (topics_of(likeness, strangers, reads[is_trained, name]) for is_trained in (True, False))
        claim = Claim("topics", "likeness of titles, same cell - no cell in common", name)
        n = sum(bool(of.cells) for of in reads[True, name][0])
        rows.append(row_of(claim, after, before, len(judged.queries), n))
    return sorted(rows, key=lambda row: ("attenuation", "keywords", "topics", "RNN and LSTM").index(row["claim"]))


def alike(dev: Judges, shards: str) -> dict:
    """Of baselines with each of the settings in ALIKE what they rank better than with their own."""
    inputs, found = dev.inputs(shards), {}
    for name, others in ALIKE.items():
        make = ROWS[name].make
        assert make
        own, *rest = (of_measures(dev.measure(make(inputs, silent, **settings))) for settings in ({}, *others))
        for settings, of in zip(others, rest, strict=True):
            ((field, given),) = settings.items()
            found[f"{name}: {field}={given}"] = of - own
    return differences(found)


def before_training(model: Model) -> Model:
    """With parameters that are uniform as the recipe says (not by rarity)."""
    towers = {name: initial_parameters(model.layout, name) for name in model.towers}
    return Model.of(model.layout, towers)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True, help="folder for the store")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="training seeds")
    parser.add_argument("--cells", type=int, default=96, choices=RECIPES, help="of the LSTMs, in each direction")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    data, work = Path(os.environ["CLICKTOWER_DATA"]) / DATASET, Path(options.work) / DATASET

    shards = build_shards(data, DATASETS[DATASET], work)
    documents, qrels = read_documents(str(data / "documents.tsv")), first_grades(data / "qrels.dev.txt")
    queries = {id: text for id, text in read_queries(str(data / "queries.dev.tsv")).items() if words(text)}
    titles = dict(zip(documents.ids, documents.titles, strict=True))
    judged = Judged(list(queries.values()), [qrels.get(id, {}) for id in queries], titles)
    seeds = [
        {
            given: load_model(train(given, seed, shards["path"], work / "store", options.threads)["data"])
            for given in RECIPES[options.cells]
        }
        for seed in options.seeds
    ]
    rows = measure(judged, seeds)
    for row in rows:
        shown = " ".join("{mean:+.4f} ({low:+.4f} to {high:+.4f})".format(**row[of]) for of in ("trained", "untrained"))
        print(f"{row['claim']:<13} {row['model']:<31} {row['measure']:<50} {row['n']:>5}  {shown}  {row['verdict']}")
    value = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"python benchmarks/claims.py {' '.join(sys.argv[1:])}",
        "machine": machine(),
        "dataset": DATASET,
        "train_pairs": shards["counts"]["train_pairs"],
        "queries": len(queries),
        "titles": len(judged.sample),
        "seeds": options.seeds,
        "rule": CountingRule().to_json(),
        "confidence": CONFIDENCE,
        "claims": rows,
    }
    if options.cells == 96:
        judges = Judges(documents, data / "queries.dev.tsv", data / "qrels.dev.txt")
        value["alike"] = alike(judges, shards["path"])
    name = "claims.json" if options.cells == 96 else f"claims-{options.cells}.json"
    (RESULTS / name).write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
