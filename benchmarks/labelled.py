"""How well click models tell labelled pairs apart that they never saw, beside similarities by words.

    CLICKTOWER_DATA=/path/to/data python benchmarks/labelled.py --store /tmp/labelled \
        --model bag-512=/tmp/quality/homedepot/store/train/DIGEST --model lstm-96=... [--sets stsb]

Models are those that benchmarks/quality.py trains on product clicks; several of one name are seeds of it. Builds the
labelled shards of question_pairs, stsb and snli by the commands a user types, and writes
benchmarks/results/labelled.json: every measure of every system with its interval, and the mean and range over seeds.
Word mover's distance, which no model changes, is measured with the first model only.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

RESULT = Path(__file__).parent / "results" / "labelled.json"
QUESTIONS = ["--first", "2", "--second", "3", "--label", "1", "--no-header"]
SCORED = ["--first", "6", "--second", "7", "--label", "5", "--no-header", "--label-kind", "value"]
SETS = {
    "question_pairs": ["{0}/question_pairs/train.tsv", "--dev", "{0}/question_pairs/dev.tsv", *QUESTIONS],
    "question_pairs_train_alone": ["{0}/question_pairs/train.tsv", *QUESTIONS],
    "stsb": ["{0}/stsb/train.tsv", "--dev", "{0}/stsb/dev.tsv", *SCORED, "--set", "lowest=0", "--set", "highest=5"],
    "snli": ["{0}/snli/validation.tsv", "--first", "premise", "--second", "hypothesis", "--label", "label"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True)
    parser.add_argument("--model", action="append", required=True, help="NAME=FOLDER")
    parser.add_argument("--sets", nargs="*", choices=SETS, default=list(SETS))
    arguments = parser.parse_args()
    models = [model.split("=", 1) for model in arguments.model]
    found = {name: measure(name, models, arguments.store) for name in arguments.sets}
    RESULT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def measure(name: str, models: list[list[str]], store: str) -> dict[str, Any]:
    """What one set gives: the build's ledger, the systems by words, and each model by its seeds."""
    built = build(SETS[name], store)
    seeds = defaultdict[str, list[dict]](list)
    by_words: dict[str, Any] = {}
    for at, (model, trained) in enumerate(models):
        words = ["--set", "word_movers=false"] if at else []
        given = ["--model", trained, "--labelled", built["path"], "--into", store, *words]
        metrics = command("evaluate-labelled", *given)["metrics"]
        by_words = by_words or {system: row for system, row in metrics["systems"].items() if system != "model"}
        to_words = {system: row for system, row in metrics["difference"].items() if system != "model"}
        seeds[model].append({**metrics["systems"]["model"], "difference": to_words})
        print(name, model, {m: round(v["value"], 3) for m, v in metrics["systems"]["model"].items()})
    return {
        "counts": built["counts"],
        "ledger": built["ledger"],
        "by_words": by_words,
        "models": {model: {"seeds": rows, **over_seeds(rows)} for model, rows in seeds.items()},
    }


def build(words: list[str], store: str) -> dict[str, Any]:
    """The labelled shards of one of SETS."""
    folder = os.environ["CLICKTOWER_DATA"]
    return command("build-labelled", *(word.format(folder) for word in words), "--into", store)


def over_seeds(rows: list[dict]) -> dict[str, dict[str, float]]:
    """The mean, least and greatest value of every measure."""
    values = {m: [row[m]["value"] for row in rows] for m in rows[0] if m != "difference"}
    return {m: {"mean": sum(v) / len(v), "least": min(v), "most": max(v)} for m, v in values.items()}


def command(*words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "clicktower.flows.cli", *words, "--json"], stdout=subprocess.PIPE, check=True, text=True
    )
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
