"""How well recipes rank on real judgments, by settings that other queries chose; alone, side by side, and with BM25.

    CLICKTOWER_DATA=/path/to/data python benchmarks/quality.py --dataset homedepot --work /tmp/quality [--seeds 1 2 3]

Trains on what stands for clicks: homedepot's clicks.orcas.tsv, elsewhere the train judgments of high grades, written as
such a log. Everything goes through the commands a user types (ingest, build, train, combine).

Choosing and reporting are apart. A fifth of the train queries, by a keyed hash of their text, is left out of training
and chooses: of each recipe the step (half of it, itself, twice), the epochs, and the weight of BM25 beside it, with the
first seed. The same budget for each recipe. Then it is trained on all train queries with every seed, and dev, which
nothing here has looked at, is measured once. What the recipes bring with them was chosen earlier, with dev in sight
(docs/quality.md).

Prints a table and writes benchmarks/results/quality-DATASET.json, with every trial, after each row. A command that was
killed is given again and continues: what is in the store below --work is not made again. Values are means over the
seeds of each query, intervals a bootstrap over queries; p is by paired randomisation, corrected by Holm over the rows.
Times are seconds of one core (the processor time of all threads), so that other work on the machine does not show.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from beam_jobs.build.click_shards import held_out  # noqa: E402
from schemas.documents import Documents, read_documents  # noqa: E402
from schemas.judgments import read_queries  # noqa: E402
from schemas.text_contract import normalise  # noqa: E402
from training.models.model import load_encoder  # noqa: E402
from training.ranking.bm25 import TitleBM25  # noqa: E402
from training.ranking.hybrid import WEIGHTS, CrossFitted, Hybrid, scores_of_pairs  # noqa: E402
from training.ranking.measure import (  # noqa: E402
    Measured,
    RandomOrder,
    System,
    judged_collection,
    measure,
)
from training.ranking.ndcg import judged_pairs, ndcg_of_judged  # noqa: E402
from training.ranking.significance import bootstrap_interval, holm, randomisation_p  # noqa: E402
from training.ranking.word_matches import title_ranking  # noqa: E402
from training.recipes.named_recipes import recipe  # noqa: E402

RESULTS = Path(__file__).parent / "results"
MEASURES = ("ndcg@1", "ndcg@3", "ndcg@10", "collection_recall@100")
CHOOSES = "ndcg@10"
MIN_JUDGED = 5
CHOOSE_SHARE, CHOOSE_SALT = 0.2, "choose"
STEPS, MIN_EPOCHS = (0.5, 1, 2), 10  # of the recipe's step; epochs are chosen up to the recipe's own, or up to ten


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    """What stands for clicks, and which recipes are tried, each as `name` or `name:field=value,field=value`.

    Clicks are judgments of `grade` and above, at most `most` of a query; with grade 0, the data's own file of clicks.
    """

    recipes: tuple[str, ...]
    grade: int = 0
    most: int = 0
    table_rows: int = 65_536


TOWERS = ("lstm-96", "lstm-pool-192", "dssm", "paper-lstm-96", "lstm-pool-96", "bag-pool-512", "clsm-3")

# Documents of some 150 words: the first 32 of them (docs/quality.md).
FIRST_WORDS = "max_words=32,overflow=truncate"

DATASETS = {
    "homedepot": Dataset(recipes=TOWERS),
    "dbpedia_entity": Dataset(recipes=TOWERS, grade=1, most=100),
    "nfcorpus": Dataset(recipes=tuple(f"{name}:{FIRST_WORDS}" for name in TOWERS), grade=2, most=8),
    # Pairs of characters fall outside a-z and 0-9: each distinct one needs a row of the hashed part of the table.
    "sogou_qt": Dataset(recipes=(*TOWERS, "lstm-long-96"), grade=2, most=100, table_rows=400_000),
}
SIDE_BY_SIDE = ("lstm-pool-96", "lstm-pool-192")  # combined, all seeds of both, where both are among the recipes


def clicktower(*arguments: str) -> tuple[dict, float]:
    """(the JSON result of a command, the seconds of a core that it took)."""
    print("clicktower", *arguments, file=sys.stderr)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "flows.cli", *arguments, "--json"]
    value = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return value, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True, choices=DATASETS)
    parser.add_argument("--work", required=True, help="folder for the store")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="training seeds; the first chooses")
    parser.add_argument("--recipes", nargs="+", help="instead of the data set's: name or name:field=value,...")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    dataset = DATASETS[options.dataset]
    data, work = Path(os.environ["CLICKTOWER_DATA"]) / options.dataset, Path(options.work) / options.dataset
    store, documents = work / "store", read_documents(str(data / "documents.tsv"))

    dev = Judges(documents, data / "queries.dev.tsv", data / "qrels.dev.txt")
    shards = build_shards(data, dataset, work, dev.queries)
    left_out, queries, qrels = write_choosing(data, work)
    choosing = Choosing(
        shards=build_shards(data, dataset, work, left_out),
        judges=Judges(documents, queries, qrels),
        judged=("--documents", str(data / "documents.tsv"), "--queries", str(queries), "--qrels", str(qrels)),
        seed=options.seeds[0],
        store=store,
        threads=options.threads,
    )
    table = {"random": [dev.measure(RandomOrder(documents.ids))], "bm25": [dev.measure(dev.bm25)]}
    facts: dict[str, dict] = {}
    trials: dict[str, list[dict]] = {}
    members: dict[str, tuple[dict, list[dict]]] = {}  # of each recipe its choosing model and those that are reported

    def add(name: str, chose: dict, models: Sequence[dict], **known: object) -> None:
        weight = choosing.weight(chose)
        systems, rate = encoded([model["data"] for model in models], documents.titles)
        table[name] = [dev.measure(system) for system in systems]
        table[f"{name} + bm25"] = [dev.with_bm25(system, weight) for system in systems]
        facts[name] = {**known, "titles_per_core_second": round(rate)}
        facts[f"{name} + bm25"] = {"weight": weight}
        value = {
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": f"python benchmarks/quality.py {' '.join(sys.argv[1:])}",
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, no accelerator",
            "dataset": options.dataset,
            "seeds": options.seeds,
            "chosen_on": f"{len(choosing.judges.collection.qrels)} train queries left out of training, by {CHOOSES}",
            "choosing_pairs": choosing.shards["counts"]["train_pairs"],
            "reported_on": f"dev, at least {MIN_JUDGED} judgments",
            "train_pairs": shards["counts"]["train_pairs"],
            "n": len(dev.collection.qrels),
            **rows_of(table, facts),
            "trials": trials,
        }
        (RESULTS / f"quality-{options.dataset}.json").write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")

    for given in options.recipes or dataset.recipes:
        chosen, trials[given] = choosing.recipe(given)
        models = [train(chosen, seed, shards["path"], store, options.threads) for seed in options.seeds]
        members[given] = choosing.train(chosen), models
        seconds = sum(model["core_seconds"] for model in models) / len(models)
        add(given, *members[given], chosen=chosen, train_core_seconds=round(seconds, 1))
    both = [members[given] for given in members if given.partition(":")[0] in SIDE_BY_SIDE]
    if len(both) > 1:
        combined = [
            clicktower("combine", "--models", *(model["path"] for model in of), "--into", str(store))[0]
            for of in ([one for one, _ in both], [model for _, of in both for model in of])
        ]
        seconds = sum(model["core_seconds"] for _, of in both for model in of)
        add(" and ".join(SIDE_BY_SIDE), combined[0], combined[1:], train_core_seconds=round(seconds, 1))
    print_table(table)


class Judges:
    """Judged queries, and what systems are worth on them."""

    def __init__(self, documents: Documents, queries: Path, qrels: Path) -> None:
        self.queries, grades = queries, first_grades(qrels)
        self.collection = judged_collection(documents, read_queries(str(queries)), grades, min_judged=MIN_JUDGED)
        self.documents, self.bm25 = documents, TitleBM25(documents.titles)

    def measure(self, system: System) -> Measured:
        return measure(system, self.collection)

    def with_bm25(self, system: System, weight: float) -> Measured:
        return self.measure(Hybrid(system, self.bm25, CrossFitted(of_half=(weight, weight), seed=0)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Choosing:
    """Trainings without the choosing queries, judged on them."""

    shards: dict
    judges: Judges
    judged: tuple[str, ...]  # the same as options of train
    seed: int
    store: Path
    threads: int

    def train(self, given: str, *more: str) -> dict:
        return train(given, self.seed, self.shards["path"], self.store, self.threads, *more)

    def recipe(self, given: str) -> tuple[str, list[dict]]:
        """(the recipe with the step and the epochs that rank best, all trials with their NDCG@10 after each epoch)."""
        named, trials = recipe(given.partition(":")[0]), []
        for factor in STEPS:
            step, epochs = f"optimiser.step={named.optimiser.step * factor:g}", max(MIN_EPOCHS, named.epochs)
            model = self.train(with_settings(given, step, f"epochs={epochs}"), *self.judged)
            curve = json.loads(Path(model["data"], "curves.json").read_text(encoding="utf-8"))
            trials.append({"setting": step, "by_epoch": [round(epoch[f"dev_{CHOOSES}"], 4) for epoch in curve]})
        best = max(trials, key=lambda trial: max(trial["by_epoch"]))
        epochs = 1 + int(np.argmax(best["by_epoch"]))
        return with_settings(given, best["setting"], f"epochs={epochs}"), trials

    def weight(self, model: dict) -> float:
        """Of BM25, added to the model's cosine: what ranks best."""
        (system,), _ = encoded([model["data"]], self.judges.documents.titles)
        judged = judged_pairs(self.judges.collection.qrels)
        cosine, bm25 = (
            np.nan_to_num(scores_of_pairs(self.judges.measure(one).judged, judged), neginf=-9)
            for one in (system, self.judges.bm25)
        )
        means = [ndcg_of_judged(judged, cosine + weight * bm25, (10,), "exponential")[10].mean() for weight in WEIGHTS]
        return WEIGHTS[int(np.argmax(np.round(means, 12)))]


def with_settings(given: str, *settings: str) -> str:
    name, _, before = given.partition(":")
    return f"{name}:{','.join(one for one in (before, *settings) if one)}"


def write_choosing(data: Path, work: Path) -> tuple[Path, Path, Path]:
    """(queries to leave out of training: those that choose and dev; the judged ones that choose; their qrels)."""
    work.mkdir(parents=True, exist_ok=True)
    train, dev = (read_queries(str(data / f"queries.{part}.tsv")) for part in ("train", "dev"))
    taken = held_out(map(normalise, train.values()), salt=CHOOSE_SALT, share=CHOOSE_SHARE)
    chosen = {id: text for (id, text), is_taken in zip(train.items(), taken, strict=True) if is_taken}
    of = first_grades(data / "qrels.train.txt")
    grades = {id: of[id] for id in chosen if len(of.get(id, {})) >= MIN_JUDGED}
    lines = {
        "left-out.tsv": [f"{id}\t{text}\n" for id, text in (dev | chosen).items()],
        "choose.tsv": [f"{id}\t{chosen[id]}\n" for id in grades],
        "choose-qrels.txt": [f"{id} 0 {document} {grade}\n" for id in grades for document, grade in grades[id].items()],
    }
    for name, written in lines.items():
        (work / name).write_text("".join(written), encoding="utf-8")
    left_out, queries, qrels = (work / name for name in lines)
    return left_out, queries, qrels


def build_shards(data: Path, dataset: Dataset, work: Path, left_out: Path | None = None) -> dict:
    """The build stage's result, without the queries `left_out` (dev). k = 0: such a log has clicks by nobody."""
    clicks = data / "clicks.orcas.tsv"
    if dataset.grade:
        work.mkdir(parents=True, exist_ok=True)
        clicks = work / "clicks.orcas.tsv"
        clicks.write_text("".join(click_lines(data, dataset)), encoding="utf-8")
    store = str(work / "store")
    day, _ = clicktower("ingest", str(clicks), "--format", "orcas", "--into", store)
    documents, judged = str(data / "documents.tsv"), str(left_out or data / "queries.dev.tsv")
    shards, _ = clicktower(
        "build", "--days", day["path"], "--documents", documents, "--judged-queries", judged, "--k", "0",
        "--set", f"table_rows={dataset.table_rows}", "--set", "num_negatives=8", "--into", store,  # for n = 2 to 8
    )  # fmt: skip
    return shards


def click_lines(data: Path, dataset: Dataset) -> list[str]:
    """Judgments of high grades as lines of an ORCAS log; of a query the highest grades first, then as they stand."""
    queries, lines = read_queries(str(data / "queries.train.tsv")), []
    for query_id, grades in first_grades(data / "qrels.train.txt").items():
        high = [document for document, grade in grades.items() if grade >= dataset.grade]
        best_first = sorted(high, key=lambda document: -grades[document])[: dataset.most]
        lines += [f"{query_id}\t{queries[query_id]}\t{document}\t-\n" for document in best_first]
    return lines


def first_grades(path: Path) -> dict[str, dict[str, int]]:
    """TREC qrels; where a pair has two grades, which the pipeline refuses and sogou_qt has a few of, the first."""
    qrels: dict[str, dict[str, int]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        query_id, _, document_id, grade = line.split()
        qrels.setdefault(query_id, {}).setdefault(document_id, int(grade))
    return qrels


def train(given: str, seed: int, shards: str, store: Path, threads: int, *more: str) -> dict:
    """The train stage's result, with `core_seconds`; kept beside the store, since a reused model says nothing of it."""
    name, _, settings = given.partition(":")
    sets = [word for one in [*settings.split(","), f"seed={seed}"] if one for word in ("--set", one)]
    model, seconds = clicktower(
        "train", "--shards", shards, "--recipe", name, "--threads", str(threads), *sets, *more, "--into", str(store)
    )
    kept = store.parent / "core_seconds" / model["digest"]
    if not model["reused"]:
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(str(seconds))
    return model | {"core_seconds": float(kept.read_text())}


def encoded(folders: Sequence[str], titles: Sequence[str]) -> tuple[list[System], float]:
    """(a system of each model, titles that the first encodes in a second of one core)."""
    models = [load_encoder(folder) for folder in folders]
    models[0].encode(titles[:1], "document")
    began = time.process_time()
    first = title_ranking(models[0], titles, models[0].word_share)
    rate = len(titles) / (time.process_time() - began)
    return [first, *(title_ranking(model, titles, model.word_share) for model in models[1:])], rate


def rows_of(table: Mapping[str, Sequence[Measured]], facts: Mapping[str, dict]) -> dict:
    """Of each row its means with intervals; of each row minus BM25, and of each two towers, the differences."""
    by_seed = {name: np.stack([of_measures(one) for one in seeds]) for name, seeds in table.items()}
    means = {name: values_SQM.mean(axis=0) for name, values_SQM in by_seed.items()}
    alone = [name for name in means if name not in ("random", "bm25") and not name.endswith("+ bm25")]
    return {
        "systems": {
            name: {
                **facts.get(name, {}),
                **named(values_QM.mean(axis=0)),
                **{end: named(of) for end, of in zip(("low", "high"), bootstrap_interval(values_QM), strict=True)},
                "by_seed": [named(of) for of in by_seed[name].mean(axis=1)],
            }
            for name, values_QM in means.items()
        },
        "minus_bm25": differences({name: of - means["bm25"] for name, of in means.items() if name != "bm25"}),
        "between": differences({f"{one} - {two}": means[one] - means[two] for one, two in combinations(alone, 2)}),
    }


def differences(pairs: Mapping[str, np.ndarray]) -> dict:
    """Of some differences [queries, measures] the means, 95% intervals, and p, corrected for how many they are."""
    if not pairs:
        return {}
    values_QPM = np.stack([*pairs.values()], axis=1)
    columns = values_QPM.reshape(len(values_QPM), -1)
    low, high = (end.reshape(values_QPM.shape[1:]) for end in bootstrap_interval(columns))
    p_MP = randomisation_p(columns).reshape(values_QPM.shape[1:]).T
    p = np.array([holm(of) for of in p_MP]).T
    parts = {"mean": values_QPM.mean(axis=0), "low": low, "high": high, "p": p}
    return {name: {part: named(of[at]) for part, of in parts.items()} for at, name in enumerate(pairs)}


def of_measures(measured: Measured) -> np.ndarray:
    return np.stack([measured.per_query[name] for name in MEASURES], axis=1)


def named(values_M: np.ndarray) -> dict[str, float]:
    return dict(zip(MEASURES, np.round(values_M, 4).tolist(), strict=True))


def print_table(table: Mapping[str, Sequence[Measured]]) -> None:
    print(f"\n{'':<44}" + "".join(f"{name.removeprefix('collection_'):>12}" for name in MEASURES))
    for name, seeds in table.items():
        mean_M = np.mean([of_measures(one).mean(axis=0) for one in seeds], axis=0)
        print(f"{name:<44}" + "".join(f"{value:>12.4f}" for value in mean_M))


if __name__ == "__main__":
    main()
