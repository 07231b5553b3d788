"""What training on labels gives, beside similarities by words and by a click model that saw no label.

    CLICKTOWER_DATA=/path/to/data python benchmarks/classifiers.py --store /tmp/labelled [--seeds 1 2 3] [--sets snli]

Builds the labelled shards of question_pairs and snli by the commands a user types, trains every recipe of RECIPES with
each seed, and measures all held-out rows. What learnt questions is also measured on stsb, which none saw, by Spearman's
correlation of its similarity. `few` asks what unlabelled texts are worth: a tower that learnt to repeat all training
questions is told the labels of the first 1,000 or 4,000 lines, beside one that begins with them. Prints a line a model
and writes benchmarks/results/classifiers.json: every measure of every system with its interval, and the mean and range
over seeds.
"""

import argparse
import json
import os
import platform
import sys
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks.labelled import SETS, build, command, over_seeds  # noqa: E402

RESULT = Path(__file__).parent / "results" / "classifiers.json"
NO_PRETRAINING = ["objective.pretrain=none"]
# What var-siamese trains first, but for reformulating, which needs labels (training.run.launch.pretraining).
REPEATING = [
    "objective=generate", "objective.decoder_cells=96", "objective.decoder_columns=64", "objective.vocabulary=3000",
    "objective.word_dropout=0.4", "objective.kappa_rate=0.001", "objective.kappa_middle=6000", "epochs=10",
]  # fmt: skip
FEW, FEW_EPOCHS = (1_000, 4_000), 8
RECIPES = {
    "question_pairs": {
        "siamese-lstm": [],
        "siamese-max": [],
        "var-siamese": [],
        "var-siamese, repeat alone": ["recipe=var-siamese", "objective.pretrain.reformulate=false",
                                      "objective.pretrain.paraphrase="],
        "var-siamese, no pretraining": ["recipe=var-siamese", *NO_PRETRAINING],
    },
    "snli": {
        "siamese-lstm": [],
        "siamese-max": [],
        "gated-attention": [],
        "gated-attention, penalty 0": ["recipe=gated-attention", "tower.penalty=0"],
        "gated-attention, penalty 0.3": ["recipe=gated-attention", "tower.penalty=0.3"],  # the paper's
    },
}  # fmt: skip
OWN = ("classifier", "w2", "model")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--sets", nargs="*", choices=[*RECIPES, "few"], default=[*RECIPES, "few"])
    options = parser.parse_args()
    found = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    for name in options.sets:
        found[name] = (
            few(options.seeds, options.store) if name == "few" else measure(name, options.seeds, options.store)
        )
    found["machine"] = {"python": platform.python_version(), "measured": datetime.now(UTC).isoformat()[:16]}
    RESULT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def measure(name: str, seeds: list[int], store: str) -> dict[str, Any]:
    """What one set gives: the systems by words, and each recipe by its seeds."""
    built, scored = build(SETS[name], store), build(SETS["stsb"], store)
    by_words: dict[str, Any] = {}
    models = defaultdict[str, list[dict]](list)
    for seed in seeds:
        for row, settings in RECIPES[name].items():
            recipe = next((word.removeprefix("recipe=") for word in settings if word.startswith("recipe=")), row)
            fields = [f"seed={seed}", *(word for word in settings if not word.startswith("recipe="))]
            trained = _train(built, store, recipe, fields)
            words = ["--set", "word_movers=false"] if by_words else []
            given = ["--model", trained, "--labelled", built["path"], "--into", store]
            metrics = command("evaluate-labelled", *given, *words)["metrics"]
            systems = metrics["systems"]
            by_words = by_words or {system: value for system, value in systems.items() if system not in OWN}
            of_seed = {f"{system}, {kind}": value for system in OWN for kind, value in systems.get(system, {}).items()}
            if metrics.get("overlap"):
                of_seed["overlap of hops"] = {"value": metrics["overlap"]["mean"]}
            if name == "question_pairs":
                given = ["--model", trained, "--labelled", scored["path"], "--into", store]
                others = command("evaluate-labelled", *given, "--set", "word_movers=false")["metrics"]["systems"]
                of_seed |= {
                    f"{system}, spearman on stsb": others[system]["spearman"] for system in OWN if system in others
                }
            models[row].append(of_seed)
            print(name, row, seed, {kind: round(value["value"], 3) for kind, value in of_seed.items()}, flush=True)
    return {
        "counts": built["counts"],
        "by_words": by_words,
        "models": {row: {"seeds": of_seeds, **over_seeds(of_seeds)} for row, of_seeds in models.items()},
    }


def few(seeds: list[int], store: str) -> dict[str, Any]:
    """Of each number of labelled lines, with and without texts learnt before: each seed's classifier."""
    whole = build(SETS["question_pairs"], store)
    lines = (
        (Path(os.environ["CLICKTOWER_DATA"]) / "question_pairs" / "train.tsv").read_text(encoding="utf-8").split("\n")
    )
    models = defaultdict[str, list[dict]](list)
    for number in FEW:
        some = Path(store) / f"questions-{number}.tsv"
        some.write_text("\n".join(lines[:number]) + "\n", encoding="utf-8")
        built = build([str(some), *SETS["question_pairs"][1:]], store)
        for seed in seeds:
            said = _train(whole, store, "var-siamese", [f"seed={seed}", *REPEATING])
            for row, start in ((f"{number:,} labels", []), (f"{number:,} labels, texts first", ["--start", said])):
                settings = [f"seed={seed}", f"epochs={FEW_EPOCHS}", *NO_PRETRAINING]
                given = ["--model", _train(built, store, "var-siamese", settings, *start), "--labelled", built["path"]]
                metrics = command("evaluate-labelled", *given, "--into", store, "--set", "word_movers=false")["metrics"]
                models[row].append(metrics["systems"]["classifier"])
                print("few", row, seed, {k: round(v["value"], 3) for k, v in models[row][-1].items()}, flush=True)
    return {"models": {row: {"seeds": of_seeds, **over_seeds(of_seeds)} for row, of_seeds in models.items()}}


def _train(built: dict[str, Any], store: str, recipe: str, settings: list[str], *more: str) -> str:
    """The folder of a model."""
    sets = [word for setting in settings for word in ("--set", setting)]
    return command("train", "--shards", built["path"], "--into", store, "--recipe", recipe, *sets, *more)["path"]


if __name__ == "__main__":
    main()
