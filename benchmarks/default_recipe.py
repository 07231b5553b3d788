"""Which recipe `train` takes by default: those that a user would pick, as they come, among judged and among all titles.

    CLICKTOWER_DATA=/path/to/data python benchmarks/default_recipe.py --work /tmp/quality [--datasets homedepot ...]

Trains each recipe with its own step and epochs on all train queries of each set (as quality.py makes them), and beside
them what many shops train (peers/mean_bags.py): a bag, and with --wordllama a static table of word pieces, as it comes
and tuned. Measures dev; nothing is chosen here. Values are means over the seeds of each query; the default's lead over
each other row has a 95% interval over the queries; core-seconds are the processor time of all threads of one training.

Prints a table for each set, and with --record writes benchmarks/results/default-recipe.json.
"""

import argparse
import json
import os
import platform
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.peers import mean_bags  # noqa: E402
from benchmarks.quality import DATASETS, FIRST_WORDS, MAX_WORDS, RESULTS, Judges, build_shards, mean_core_seconds, train  # noqa: E402
from benchmarks.shard_pairs import read_shard_pairs  # noqa: E402
from benchmarks.word_matches import MEASURES, named, values_of, with_interval  # noqa: E402
from clicktower.schemas.documents import read_documents  # noqa: E402
from clicktower.training.model.embedding import TitleEmbeddings  # noqa: E402
from clicktower.training.model.model import load_encoder  # noqa: E402
from clicktower.training.model.named_recipes import DEFAULT  # noqa: E402
from clicktower.training.ranking.word_matches import title_ranking  # noqa: E402

RECIPES = (DEFAULT, "bag-pool-512-words", "lstm-96")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True, help="folder for the stores, as quality.py's")
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=list(DATASETS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--wordllama", type=Path, help="where `pip install --no-deps --target` put wordllama 0.4")
    parser.add_argument("--record", action="store_true", help=f"write {RESULTS / 'default-recipe.json'}")
    options = parser.parse_args()
    value = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, no accelerator",
        "seeds": options.seeds,
        "datasets": {},
    }
    torch.set_num_threads(options.threads)
    for name in options.datasets:
        value["datasets"][name] = compare(name, options)
        if options.record:
            RESULTS.joinpath("default-recipe.json").write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def compare(dataset: str, options: argparse.Namespace) -> dict:
    """The figures of each recipe on a data set, and the default's leads."""
    work, seeds, threads = Path(options.work) / dataset, options.seeds, options.threads
    data = Path(os.environ["CLICKTOWER_DATA"]) / dataset
    documents = read_documents(str(data / "documents.tsv"))
    dev = Judges(documents, data / "queries.dev.tsv", data / "qrels.dev.txt")
    shards = build_shards(data, DATASETS[dataset], work, dev.queries)
    means, seconds = {}, {}
    for recipe in RECIPES:
        with_settings = f"{recipe}:{DATASETS[dataset].settings}"
        models = [train(with_settings, seed, shards["path"], work / "store", threads) for seed in seeds]
        seconds[recipe] = mean_core_seconds(models)
        encoders = [load_encoder(model["data"]) for model in models]
        ranked = [title_ranking(encoder, documents.titles, encoder.word_share) for encoder in encoders]
        means[recipe] = np.mean([values_of(dev.measure(system)) for system in ranked], axis=0)
    clicks = read_shard_pairs(shards["data"]).filter(~pl.col("dev"))
    pairs = list(zip(clicks["query"].to_list(), clicks["title"].to_list(), strict=True))
    max_words = MAX_WORDS if DATASETS[dataset].settings == FIRST_WORDS else None
    peers = {"bag-2019": partial(mean_bags.bag_2019, pairs, max_words=max_words)}
    if options.wordllama:
        folder = options.wordllama / "wordllama"
        untuned = mean_bags.static_table(folder, max_words)
        means["static-table"] = values_of(dev.measure(TitleEmbeddings(untuned, documents.titles)))
        peers["static-table-tuned"] = partial(mean_bags.tuned_table, folder, pairs, max_words=max_words)
    for peer, trained in peers.items():
        bags, core_seconds = zip(*(trained(seed=seed) for seed in seeds), strict=True)
        seconds[peer] = round(float(np.mean(core_seconds)))
        means[peer] = np.mean([values_of(dev.measure(TitleEmbeddings(bag, documents.titles))) for bag in bags], axis=0)
    means["bm25"] = values_of(dev.measure(dev.bm25))
    print(f"\n{dataset}, {shards['counts']['train_pairs']:,} pairs, {len(dev.collection.qrels):,} queries")
    print(f"{'':<24}" + "".join(f"{measure.removeprefix('collection_'):>12}" for measure in MEASURES))
    for row, values_QM in means.items():
        print(f"{row:<24}" + "".join(f"{figure:>12.4f}" for figure in values_QM.mean(axis=0)), seconds.get(row, ""))
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
        "systems": {row: named(values_QM.mean(axis=0)) for row, values_QM in means.items()},
        "train_core_seconds": seconds,
        "default_minus": leads,
    }


if __name__ == "__main__":
    main()
