"""Table IV, as printed and tuned, and towers of ours on real judgments, by settings that other queries chose.

    CLICKTOWER_DATA=/path/to/data python benchmarks/quality.py --dataset homedepot --work /tmp/quality [--seeds 1 2 3]

Trains on what stands for clicks: homedepot's clicks.orcas.tsv, elsewhere the train judgments of high grades, written as
such a log. Everything goes through the commands a user types (ingest, build, train); baselines are compare's.

Choosing and reporting are apart. A fifth of the train queries, by a keyed hash of their text, is left out of training
and chooses, with the first seed and the same budget for each row: the step (half of the recipe's, itself, twice) and
the epochs. Of tuned rows what ranks the judgments of those queries best; of rows as printed what ranks their clicked
titles best among negatives (where train judgments stand for clicks, these). Their negatives are of the clicked titles,
as in the paper. Rows of MIXED also get BM25 with the weight that ranks best. Then each row is trained on all train
queries with every seed, and dev, which nothing here has looked at, is measured once. What the recipes bring with them
was chosen earlier: of tuned ones with dev of homedepot in sight, of those as printed on held-out clicks of homedepot
(docs/model.md), which is why they keep their values there.

Prints each row, and writes quality-DATASET.json, with every trial, to benchmarks/results after each. A command that was
killed is given again and continues: what is in the store below --work, some 25 GB, is not made again (sogou_qt, whose
table is six times as large, takes 150). Values are means over the seeds of each query, intervals a bootstrap over
queries; p is by paired randomisation, corrected by Holm over the rows; orders are Kendall's tau with the paper's of the
rows that are there. Times are seconds of one core (the processor time of all threads), so that other work on the
machine does not show.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from itertools import combinations
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.machine import machine  # noqa: E402
from clicktower.beam_jobs.build.click_shards import held_out  # noqa: E402
from clicktower.schemas.documents import Documents, read_documents  # noqa: E402
from clicktower.schemas.judgments import read_queries  # noqa: E402
from clicktower.schemas.lexical_contract import DEFAULT_LANGUAGE, Language  # noqa: E402
from clicktower.schemas.stage import silent  # noqa: E402
from clicktower.schemas.text_contract import normalise  # noqa: E402
from clicktower.training.evaluation.compare_stage import training_clicks  # noqa: E402
from clicktower.training.evaluation.compare_table import orders  # noqa: E402
from clicktower.training.evaluation.evaluate_stage import EvaluateConfig  # noqa: E402
from clicktower.training.evaluation.measured_row import RelativeBM25, evaluate_baseline  # noqa: E402
from clicktower.training.evaluation.row import ComparisonInputs  # noqa: E402
from clicktower.training.evaluation.rows import all_rows  # noqa: E402
from clicktower.training.model.model import load_encoder  # noqa: E402
from clicktower.training.model.recipe import recipe  # noqa: E402
from clicktower.training.ranking.bm25 import TitleBM25  # noqa: E402
from clicktower.training.ranking.hybrid import scores_of_pairs  # noqa: E402
from clicktower.training.ranking.measure import Measured, System, judged_collection, measure  # noqa: E402
from clicktower.training.ranking.ndcg import bootstrap_interval, holm, judged_pairs, ndcg_of_judged, randomisation_p  # noqa: E402  # noqa: E402
from clicktower.training.ranking.title_ranking import TitleRanking, mixed  # noqa: E402

RESULTS = Path(__file__).parent / "results"
MEASURES = ("ndcg@1", "ndcg@3", "ndcg@10", "collection_recall@100")
CHOOSES = "ndcg@10"
MIN_JUDGED = 5
CHOOSE_SHARE, CHOOSE_SALT = 0.2, "choose"
CHOOSE_SPLIT = (f"dev_share={CHOOSE_SHARE}", f"split_salt={CHOOSE_SALT}")
STEPS, MIN_EPOCHS = (0.5, 1, 2), 10  # of the recipe's step; epochs are chosen up to the recipe's own, or up to ten
LEXICAL_SHARES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5)
PRINTED_EPOCHS = 20  # up to which those of rows as printed are chosen
PRINTED_POOL = "pool=clicked"  # the paper's negatives are of its training data


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    """What stands for clicks, and what every tower is trained with (`field=value,field=value`).

    Clicks are judgments of `grade` and above, at most `most` of a query; with grade 0, the data's own file of clicks.
    """

    grade: int = 0
    most: int = 0
    table_rows: int = 65_536
    settings: str = ""
    language: Language = DEFAULT_LANGUAGE


# Documents of some 150 words: the first 32 of them (benchmarks/README.md).
MAX_WORDS = 32
FIRST_WORDS = f"max_words={MAX_WORDS},overflow=truncate"

DATASETS = {
    "homedepot": Dataset(),
    "dbpedia_entity": Dataset(grade=1, most=100),
    "nfcorpus": Dataset(grade=2, most=8, settings=FIRST_WORDS),
    # Pairs of characters fall outside a-z and 0-9: each distinct one needs a row of the hashed part of the table.
    "sogou_qt": Dataset(grade=2, most=100, table_rows=400_000, language="none"),
}
PRINTED_CHOSEN_ON = "homedepot"  # its held-out clicks chose what the rows as printed have
ROWS = {row.name: row for row in all_rows()}
BASELINES = (
    "random", "doc2vec", "doc2vec-printed", "ulm", "ulm-printed", "bm25", "bm25-printed", "plsa", "plsa-printed",
)  # fmt: skip
TOWERS = tuple(name for name, row in ROWS.items() if row.recipe and row.paper)
OURS = ("lstm-pool-192",)
CLAIMED = "paper-lstm-96"  # the row that the paper claims to be above the others
MIXED = ("lstm-96", "lstm-pool-192", "dssm", "paper-lstm-96")  # rows also with BM25, and compared with each other


def clicktower(*arguments: str) -> tuple[dict, float]:
    """(the JSON result of a command, the seconds of a core that it took)."""
    print("clicktower", *arguments, file=sys.stderr)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "clicktower.flows.cli", *arguments, "--json"]
    value = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return value, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True, choices=DATASETS)
    parser.add_argument("--work", required=True, help="folder for the store")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="training seeds; the first chooses")
    parser.add_argument(
        "--rows", nargs="+", choices=[name for name, row in ROWS.items() if row.recipe], default=[*TOWERS, *OURS],
        metavar="ROW", help="some towers of `clicktower compare` instead of all; the record then has these alone",
    )  # fmt: skip
    parser.add_argument(
        "--choices", type=Path, metavar="FILE", help="a record whose choices tuned rows take instead of choosing anew"
    )
    parser.add_argument("--record", type=Path, default=RESULTS, help="folder for quality-DATASET.json")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    dataset = DATASETS[options.dataset]
    data, work = Path(os.environ["CLICKTOWER_DATA"]) / options.dataset, Path(options.work) / options.dataset
    store, documents = work / "store", read_documents(str(data / "documents.tsv"))

    dev = Judges(documents, data / "queries.dev.tsv", data / "qrels.dev.txt", dataset.language)
    shards = build_shards(data, dataset, work, dev.queries)
    printed_shards = build_shards(data, dataset, work, dev.queries, PRINTED_POOL)
    left_out, queries, qrels = write_choosing(data, work)
    choosing = Choosing(
        shards=build_shards(data, dataset, work, left_out),
        printed_shards=build_shards(data, dataset, work, left_out, PRINTED_POOL),
        clicks=build_shards(data, dataset, work, dev.queries, PRINTED_POOL, *CHOOSE_SPLIT),
        judges=Judges(documents, queries, qrels, dataset.language),
        judged=("--documents", str(data / "documents.tsv"), "--queries", str(queries), "--qrels", str(qrels)),
        seed=options.seeds[0],
        store=store,
        threads=options.threads,
    )
    choices = json.loads(options.choices.read_text(encoding="utf-8")) if options.choices else {"when": None}
    table = {name: [measured] for name, measured in dev.baselines(shards["path"]).items()}
    facts: dict[str, dict] = {}
    trials: dict[str, list[dict]] = {}
    for number, name in enumerate(options.rows, 1):
        chosen, as_printed = given(name, dataset.settings), ROWS[name].table == "as printed"
        if choices["when"] and not as_printed:
            chosen, trials[name] = choices["systems"][name]["chosen"], choices["trials"][name]
        elif not (options.dataset == PRINTED_CHOSEN_ON and as_printed):
            chosen, trials[name] = choosing.recipe(chosen)
        path = (printed_shards if as_printed else shards)["path"]
        models = [train(chosen, seed, path, store, options.threads) for seed in options.seeds]
        systems, rate = encoded([model["data"] for model in models], dev)
        table[name] = [dev.measure(system) for system in systems]
        facts[name] = {
            "chosen": chosen,
            "train_core_seconds": mean_core_seconds(models),
            "titles_per_core_second": round(rate),
        }
        if recipe(chosen.partition(":")[0]).optimiser.clip_norm:  # of updates, in which th_G acted
            facts[name]["clipped_share"] = round(float(np.mean([by_epoch(m, "clipped_share") for m in models])), 3)
        if name in MIXED:
            share = choosing.lexical_share(choosing.train(chosen))
            table[f"{name} + bm25"] = [dev.with_bm25(system, share) for system in systems]
            facts[f"{name} + bm25"] = {"lexical_share": share}
        value = {
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": f"python benchmarks/quality.py --dataset {options.dataset} --work WORK"
            f" --seeds {' '.join(map(str, options.seeds))} --rows {' '.join(options.rows[:number])}"
            + (f" --choices {options.choices}" if options.choices else ""),
            "machine": machine(),
            "dataset": options.dataset,
            "seeds": options.seeds,
            "chosen_on": f"{len(choosing.judges.collection.qrels)} train queries left out of training, by {CHOOSES};"
            f" as printed: their {choosing.clicks['counts']['dev_pairs']} clicks among negatives",
            "choices_of": choices["when"],  # the record whose choices the tuned rows took
            "choosing_pairs": choosing.shards["counts"]["train_pairs"],
            "reported_on": f"dev, at least {MIN_JUDGED} judgments",
            "train_pairs": shards["counts"]["train_pairs"],
            "n": len(dev.collection.qrels),
            **rows_of(table, facts),
            "trials": trials,
        }
        record = options.record / f"quality-{options.dataset}.json"
        record.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
        print_row(name, table[name])


def given(name: str, settings: str) -> str:
    """A row of `clicktower compare` as its recipe and what it sets: lstm-96-n2 is lstm-96 with another n."""
    made = ROWS[name].recipe
    assert made
    n = f"objective.num_negatives={made.clicks.num_negatives}" if made != recipe(made.name) else ""
    return with_settings(made.name, n, settings)


class Judges:
    """Judged queries, and what systems are worth on them."""

    def __init__(self, documents: Documents, queries: Path, qrels: Path, language: Language) -> None:
        self.queries, self.documents, self.language = queries, documents, language
        grades = first_grades(qrels)
        self.collection = judged_collection(documents, read_queries(str(queries)), grades, min_judged=MIN_JUDGED)
        self.bm25 = TitleBM25(documents.titles, language)

    @cached_property
    def terms(self) -> np.ndarray:
        """L of each judged query and all titles (title_ranking), float32 [queries, titles]."""
        return self.bm25.relative_scores(list(self.collection.queries.values()))

    def measure(self, system: System) -> Measured:
        return measure(system, self.collection)

    def inputs(self, shards: str) -> ComparisonInputs:
        """What baselines are made of."""
        clicks, clicked = (list(training_clicks(shards, of)) for of in ("query", "clicked"))
        return ComparisonInputs(
            documents=self.documents, collection=self.collection, config=EvaluateConfig(language=self.language),
            training_queries=clicks, training_titles=clicked,
        )  # fmt: skip

    def baselines(self, shards: str) -> dict[str, Measured]:
        """The rows of `clicktower compare` that are no towers."""
        inputs = self.inputs(shards)
        return {name: evaluate_baseline(ROWS[name], inputs, silent).measured for name in BASELINES}

    def with_bm25(self, system: System, share: float) -> Measured:
        return self.measure(WithTerms(system, self.bm25, share))


class WithTerms:
    """A system with BM25's help: the terms have a share of its score (title_ranking)."""

    def __init__(self, system: System, bm25: TitleBM25, share: float) -> None:
        self._system, self._bm25, self._share = system, bm25, share

    def scores(self, queries: Sequence[str]) -> np.ndarray:
        return mixed(self._system.scores(queries), None, self._bm25.relative_scores(queries), 0.0, self._share)


@dataclass(frozen=True, kw_only=True, slots=True)
class Choosing:
    """Trainings without the choosing queries, judged on them; in `clicks` those are the held-out part of the shards.

    Rows as printed train on `printed_shards`.
    """

    shards: dict
    printed_shards: dict
    clicks: dict
    judges: Judges
    judged: tuple[str, ...]  # the same as options of train
    seed: int
    store: Path
    threads: int

    def train(self, given: str) -> dict:
        shards = self.printed_shards if recipe(given.partition(":")[0]).as_printed else self.shards
        return train(given, self.seed, shards["path"], self.store, self.threads)

    def recipe(self, given: str) -> tuple[str, list[dict]]:
        """(the recipe with the step and the epochs that rank best, all trials with their NDCG@10 after each epoch)."""
        named, trials = recipe(given.partition(":")[0]), []
        shards, judged, most = self.shards, self.judged, max(MIN_EPOCHS, named.epochs)
        if named.as_printed:
            shards, judged, most = self.clicks, (), PRINTED_EPOCHS
        for factor in STEPS:
            step = f"optimiser.step={named.optimiser.step * factor:g}"
            tried = with_settings(given, step, f"epochs={most}")
            model = train(tried, self.seed, shards["path"], self.store, self.threads, *judged)
            trials.append({"setting": step, "by_epoch": by_epoch(model, f"dev_{CHOOSES}")})
        best = max(trials, key=lambda trial: max(trial["by_epoch"]))
        epochs = 1 + int(np.argmax(best["by_epoch"]))
        return with_settings(given, best["setting"], f"epochs={epochs}"), trials

    def lexical_share(self, model: dict) -> float:
        """Of BM25 in a score beside the model: what ranks best."""
        (system,), _ = encoded([model["data"]], self.judges)
        judged = judged_pairs(self.judges.collection.qrels)
        nearness, terms = (
            np.nan_to_num(scores_of_pairs(self.judges.measure(one).judged, judged), neginf=-9)
            for one in (system, RelativeBM25(self.judges.bm25))
        )
        means = [
            ndcg_of_judged(judged, mixed(nearness, None, terms, 0.0, share), (10,), "exponential")[10].mean()
            for share in LEXICAL_SHARES
        ]
        return LEXICAL_SHARES[int(np.argmax(np.round(means, 12)))]


def with_settings(given: str, *settings: str) -> str:
    name, _, before = given.partition(":")
    return ":".join(one for one in (name, ",".join(one for one in (before, *settings) if one)) if one)


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


def build_shards(data: Path, dataset: Dataset, work: Path, left_out: Path | None = None, *more: str) -> dict:
    """The build stage's result, without the queries `left_out` (dev). k = 0: such a log has clicks by nobody.

    `more`: settings of the build.
    """
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
        *(word for one in more for word in ("--set", one)),
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
    """The train stage's result, with `core_seconds`; kept beside the store, since a reused model says nothing of it:
    None where the benchmark was killed before that."""
    name, _, settings = given.partition(":")
    sets = [word for one in [*settings.split(","), f"seed={seed}"] if one for word in ("--set", one)]
    model, seconds = clicktower(
        "train", "--shards", shards, "--recipe", name, "--threads", str(threads), *sets, *more, "--into", str(store)
    )
    kept = store.parent / "core_seconds" / model["digest"]
    if not model["reused"]:
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(str(seconds))
    return model | {"core_seconds": float(kept.read_text()) if kept.exists() else None}


def mean_core_seconds(models: Sequence[dict]) -> float | None:
    """Of several trainings; None where those of one are not known."""
    seconds = [model["core_seconds"] for model in models]
    return None if None in seconds else round(sum(seconds) / len(seconds), 1)


def by_epoch(model: dict, measure: str) -> list[float]:
    """What a training measured after each epoch."""
    curve = json.loads(Path(model["data"], "curves.json").read_text(encoding="utf-8"))
    return [round(epoch[measure], 4) for epoch in curve]


def encoded(folders: Sequence[str], judges: Judges) -> tuple[list[System], float]:
    """(a system of each model, titles that the first encodes in a second of one core)."""
    models, titles = [load_encoder(folder) for folder in folders], judges.documents.titles
    models[0].encode(titles[:1], "document")
    began = time.process_time()
    systems: list[System] = [TitleRanking(models[0], titles, judges.language, bm25=judges.bm25)]
    rate = len(titles) / (time.process_time() - began)
    return [*systems, *(TitleRanking(model, titles, judges.language, bm25=judges.bm25) for model in models[1:])], rate


def rows_of(table: Mapping[str, Sequence[Measured]], facts: Mapping[str, dict]) -> dict:
    """Of each row its means with intervals and minus BM25; what MIXED and CLAIMED are compared with; orders of rows."""
    by_seed = {name: np.stack([of_measures(one) for one in seeds]) for name, seeds in table.items()}
    means = {name: values_SQM.mean(axis=0) for name, values_SQM in by_seed.items()}
    rows = [row for name, row in ROWS.items() if name in means]
    compared = combinations([name for name in MIXED if name in means], 2)
    claimed = [row.name for row in rows if row.paper and row.table in (None, "as printed") and row.name != CLAIMED]
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
        "between": differences({f"{one} - {two}": means[one] - means[two] for one, two in compared}),
        f"{CLAIMED} minus": differences({name: means[CLAIMED] - means[name] for name in claimed if CLAIMED in means}),
        "orders": orders(rows, per_query(means), EvaluateConfig()),
        "orders_by_seed": [
            orders(rows, per_query({name: of[seed % len(of)] for name, of in by_seed.items()}), EvaluateConfig())
            for seed in range(max(map(len, by_seed.values())))
        ],
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


def per_query(values: Mapping[str, np.ndarray]) -> dict[str, dict[str, np.ndarray]]:
    return {name: dict(zip(MEASURES, values_QM.T, strict=True)) for name, values_QM in values.items()}


def of_measures(measured: Measured) -> np.ndarray:
    return np.stack([measured.per_query[name] for name in MEASURES], axis=1)


def named(values_M: np.ndarray) -> dict[str, float]:
    return dict(zip(MEASURES, np.round(values_M, 4).tolist(), strict=True))


def print_row(name: str, seeds: Sequence[Measured]) -> None:
    means = named(np.mean([of_measures(one).mean(axis=0) for one in seeds], axis=0))
    print(f"{name:<24}" + "".join(f"{measure:>24} {value:.4f}" for measure, value in means.items()), flush=True)


if __name__ == "__main__":
    main()
