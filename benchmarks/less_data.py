"""What fewer clicks cost, and the privacy gate: the default by its whole score and without terms, on product titles.

    CLICKTOWER_DATA=/path/to/data python benchmarks/less_data.py --work /tmp/quality

Trains on a tenth and three tenths of the train queries of clicks.orcas.tsv, chosen by a keyed hash (the tenth is among
the three tenths; all of them are default_recipe.py's rows), and on the simulated log at k = 5 and 1. Measured on dev:
means over the seeds of each query, paired intervals over queries. Prints each row and writes
benchmarks/results/less-data-homedepot.json.
"""

import argparse
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.quality import DATASETS, RESULTS, Judges, build_shards, clicktower, mean_core_seconds, train  # noqa: E402
from benchmarks.shares import TRAINED_AS, Scores, named, values_of, with_interval  # noqa: E402
from clicktower.beam_jobs.build.click_shards import held_out  # noqa: E402
from clicktower.schemas.documents import read_documents  # noqa: E402
from clicktower.schemas.judgments import read_queries  # noqa: E402
from clicktower.schemas.text_contract import normalise  # noqa: E402
from clicktower.training.model.model import load_encoder  # noqa: E402
from clicktower.training.model.recipe import DEFAULT, recipe  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True, help="folder for the store, as quality.py's")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    data, work = Path(os.environ["CLICKTOWER_DATA"], "homedepot"), Path(options.work, "homedepot")
    documents = read_documents(str(data / "documents.tsv"))
    dev = Judges(documents, data / "queries.dev.tsv", data / "qrels.dev.txt", DATASETS["homedepot"].language)
    shares = recipe(DEFAULT).clicks
    day = ingest_log(data, work)

    bm25_QM = values_of(dev.measure(dev.bm25))
    value = {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": f"python benchmarks/less_data.py {' '.join(sys.argv[1:])}",
        "seeds": options.seeds,
        "n": len(bm25_QM),
        "rows": {},
    }
    for name, shards in {
        **{f"{share:.0%} of the queries": part_of(data, work, share) for share in (0.1, 0.3)},
        **{f"the log, k = {k}": of_log(data, work, day["path"], k) for k in (5, 1)},
    }.items():
        trained = [
            train(TRAINED_AS[DEFAULT], seed, shards["path"], work / "store", options.threads) for seed in options.seeds
        ]
        scores = [Scores(load_encoder(one["data"]), dev, words=True) for one in trained]
        whole, without_terms = (
            np.mean([values_of(dev.measure(of.by(shares.word_share, terms))) for of in scores], axis=0)
            for terms in (shares.lexical_share, 0.0)
        )
        pairs = {
            "whole - without terms": whole - without_terms,
            "whole - bm25": whole - bm25_QM,
            "without terms - bm25": without_terms - bm25_QM,
        }
        value["rows"][name] = {
            "pairs": shards["counts"]["train_pairs"],
            "core_seconds": mean_core_seconds(trained),
            "whole": named(whole.mean(axis=0)),
            "without terms": named(without_terms.mean(axis=0)),
            **{what: with_interval(of) for what, of in pairs.items()},
        }
        print(name, json.dumps(value["rows"][name]))
        (RESULTS / "less-data-homedepot.json").write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def part_of(data: Path, work: Path, share: float) -> dict:
    """The build stage's result with this share of the train queries."""
    train_queries, dev = (read_queries(str(data / f"queries.{part}.tsv")) for part in ("train", "dev"))
    kept = held_out(map(normalise, train_queries.values()), salt="less", share=share)
    left_out = dev | {id: text for (id, text), keep in zip(train_queries.items(), kept, strict=True) if not keep}
    (work / f"less-{share}.tsv").write_text(
        "".join(f"{id}\t{text}\n" for id, text in left_out.items()), encoding="utf-8"
    )
    return build_shards(data, DATASETS["homedepot"], work, work / f"less-{share}.tsv")


def ingest_log(data: Path, work: Path) -> dict:
    """The ingest stage's result of the simulated log over these data's queries."""
    log = map(str, sorted((data.parent / "homedepot_log").glob("*.gz")))
    return clicktower("ingest", *log, "--format", "ubi", "--into", str(work / "store"))[0]


def of_log(data: Path, work: Path, day: str, k: int) -> dict:
    """The build stage's result of the simulated log, with its privacy gate at k."""
    return clicktower(
        "build", "--days", day, "--documents", str(data / "documents.tsv"), "--judged-queries",
        str(data / "queries.dev.tsv"), "--k", str(k), "--set", "num_negatives=8", "--into", str(work / "store"),
    )[0]  # fmt: skip


if __name__ == "__main__":
    main()
