"""What `train` makes by default: recipes that a user would pick, as they come, among judged and among all titles.

    CLICKTOWER_DATA=/path/to/data python benchmarks/default_recipe.py --work /tmp/quality --wordllama DIR --record

Trains each recipe with its own step and epochs on all train queries of each set (as quality.py makes them), and beside
them what many shops use (shares.py says what and how). A model is measured by its whole score, without terms (l = 0),
and by its vectors alone; everything else also with the help of BM25, whose share queries that report nothing chose by
the rule that chose ours (results/shares.json). Measures dev; nothing is chosen here. Values are means over the seeds of
each query; what the default leads each other row by has a 95% interval over the queries; core-seconds are the processor
time of all threads of one training.

Prints a table for each set, and with --record writes benchmarks/results/default-recipe.json. With --rows it keeps the
record of all other rows; the default is trained all the same, and must have the figures that the record has.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.machine import machine  # noqa: E402
from benchmarks.quality import DATASETS, RESULTS, Judges, WithTerms, build_shards, mean_core_seconds, train  # noqa: E402
from benchmarks.shares import MEASURES, RECORD, TRAINED_AS, Scores, add_options, named, peers, values_of, with_interval  # noqa: E402
from clicktower.schemas.documents import read_documents  # noqa: E402
from clicktower.training.model.embedding import TitleEmbeddings  # noqa: E402
from clicktower.training.model.model import load_encoder  # noqa: E402
from clicktower.training.model.recipe import DEFAULT, recipe  # noqa: E402
from clicktower.training.ranking.bm25 import TitleBM25  # noqa: E402

WITHOUT_WORDS = "lstm-96"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    file = RESULTS / "default-recipe.json"
    datasets = json.loads(file.read_text(encoding="utf-8"))["datasets"]
    for dataset in options.datasets:
        datasets[dataset] = with_record(compare(dataset, options), datasets.get(dataset), options.rows)
        value = {
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "seeds": options.seeds,
            "datasets": datasets,
        }
        if options.record:
            file.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def with_record(measured: dict, recorded: dict | None, rows: Sequence[str] | None) -> dict:
    """What was measured, with the record's rows that were not asked for; core-seconds of the record's rows are the
    record's, since a machine may do other work beside some rows.
    """
    if not rows or not recorded:
        return measured
    of_default = measured["systems"][DEFAULT]
    if of_default != recorded["systems"][DEFAULT]:
        raise SystemExit(f"The default has {of_default}, the record {recorded['systems'][DEFAULT]}. Measure all rows.")
    kept = ("seeds", "systems", "train_core_seconds", "default_minus")
    return recorded | {name: {**measured[name], **recorded[name], **new_rows(measured[name], rows)} for name in kept}


def new_rows(figures: dict, rows: Sequence[str]) -> dict:
    """Those of rows that were asked for, also with BM25's help, without terms and by vectors alone."""
    return {row: of for row, of in figures.items() if row.partition(",")[0].removesuffix(" + bm25") in rows}


def compare(dataset: str, options: argparse.Namespace) -> dict:
    """The figures of each row on a data set, and the default's leads."""
    data, work = Path(os.environ["CLICKTOWER_DATA"], dataset), Path(options.work, dataset)
    documents, of = read_documents(str(data / "documents.tsv")), DATASETS[dataset]
    dev = Judges(documents, data / "queries.dev.tsv", data / "qrels.dev.txt", of.language)
    shards = build_shards(data, of, work, dev.queries)
    values: dict[str, list[np.ndarray]] = {}  # of each row and seed: [queries, measures]
    seconds: dict[str, float | None] = {}
    for row, figures in [
        *of_models(dataset, options, dev, shards["path"], seconds),
        *of_peers(dataset, options, dev, shards["data"], seconds),
    ]:
        values.setdefault(row, []).append(figures)
    values["bm25"] = [values_of(dev.measure(dev.bm25))]
    values["bm25-printed"] = [values_of(dev.measure(TitleBM25(documents.titles, None, k1=1.2, b=0.75)))]
    means = {row: np.mean(of_seeds, axis=0) for row, of_seeds in values.items()}
    print(f"\n{dataset}, {shards['counts']['train_pairs']:,} pairs, {len(dev.collection.qrels):,} queries")
    print(f"{'':<36}" + "".join(f"{measure.removeprefix('collection_'):>12}" for measure in MEASURES))
    for row, values_QM in means.items():
        print(f"{row:<36}" + "".join(f"{figure:>12.4f}" for figure in values_QM.mean(axis=0)), seconds.get(row, ""))
    leads = {row: with_interval(means[DEFAULT] - values_QM) for row, values_QM in means.items() if row != DEFAULT}
    for row, ends in leads.items():
        at_10 = ", ".join(
            f"{measure} {ends['mean'][measure]:+.4f} [{ends['low'][measure]:+.4f}, {ends['high'][measure]:+.4f}]"
            for measure in ("ndcg@10", "collection_ndcg@10")
        )
        print(f"{DEFAULT} minus {row}: {at_10}", flush=True)
    return {
        "train_pairs": shards["counts"]["train_pairs"],
        "n": len(dev.collection.qrels),
        "seeds": {row: len(of_seeds) for row, of_seeds in values.items()},
        "systems": {row: named(values_QM.mean(axis=0)) for row, values_QM in means.items()},
        "train_core_seconds": seconds,
        "default_minus": leads,
    }


def of_models(
    dataset: str, options: argparse.Namespace, dev: Judges, shards: str, seconds: dict[str, float | None]
) -> Iterator[tuple[str, np.ndarray]]:
    """(row, measures of each query) of our recipes, for each seed."""
    for row in (*TRAINED_AS, WITHOUT_WORDS):
        if options.rows and row not in (DEFAULT, *options.rows):
            continue
        given, shares = f"{TRAINED_AS.get(row, row)}:{DATASETS[dataset].settings}", recipe(row).clicks
        models = [
            train(given, seed, shards, Path(options.work, dataset, "store"), options.threads) for seed in options.seeds
        ]
        seconds[row] = mean_core_seconds(models)
        for model in models:
            scores = Scores(load_encoder(model["data"]), dev, words=shares.word_share > 0)
            yield row, values_of(dev.measure(scores.by(shares.word_share, shares.lexical_share)))
            if shares.lexical_share:
                yield f"{row}, without terms", values_of(dev.measure(scores.by(shares.word_share, 0.0)))
                yield f"{row}, vectors alone", values_of(dev.measure(scores.by(0.0, 0.0)))


def of_peers(
    dataset: str, options: argparse.Namespace, dev: Judges, shards: str, seconds: dict[str, float | None]
) -> Iterator[tuple[str, np.ndarray]]:
    """The same of what others use, each also with BM25's help."""
    chosen = json.loads(RECORD.read_text(encoding="utf-8"))["chosen"]
    for row, encoders in peers(options, dataset, shards, options.seeds):
        if trained := [core_seconds for _, core_seconds in encoders if core_seconds]:
            seconds[row] = round(float(np.mean(trained)))
        for encoder, _ in encoders:
            alone = TitleEmbeddings(encoder, dev.documents.titles)
            yield row, values_of(dev.measure(alone))
            helped = WithTerms(alone, dev.bm25, chosen[row]["lexical_share"])
            yield f"{row} + bm25", values_of(dev.measure(helped))


if __name__ == "__main__":
    main()
