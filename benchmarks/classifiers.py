"""What training on labels gives, beside similarities by words: chosen on one share of the rows, reported on another.

    CLICKTOWER_DATA=/path/to/data python benchmarks/classifiers.py --store /tmp/labelled [--seeds 1 2 3] [--sets snli]

Builds the labelled shards of question_pairs (its own dev file), snli (a tenth held out by the hash) and, as single
texts, the hypotheses of snli without their premises, whose class their words half give away. A fifth of the
training rows, in whole components of sentences, chooses Adam's step and the epochs of every row alike: some steps, one
training each with seed 1, the best area under ROC after any epoch (TRIED). Then each row is trained on all training
rows with each seed and measured once on the held-out rows. What learnt questions is also measured on stsb, by
Spearman's correlation of its similarity. `few` asks what unlabelled texts are worth: a tower that learnt to repeat all
training questions is told 1,000 or 4,000 labels, beside one that begins with them.

Writes benchmarks/results/classifiers.json: what was chosen and from what; of every row its figures by seed, their mean
with an interval of 95% over the held-out rows, and the difference to the row it stands beside (the same resamples).
With --rows the others stay as they are recorded.
"""

import argparse
import io
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from gensim.models import Word2Vec

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a file, not as a module of the package

from benchmarks import labelled  # noqa: E402
from benchmarks.labelled import QUESTIONS, over_seeds  # noqa: E402
from clicktower.flows.cli import run  # noqa: E402
from clicktower.schemas.text_contract import words  # noqa: E402
from clicktower.training.evaluation import evaluate_labelled_stage  # noqa: E402
from clicktower.training.evaluation.labelled_systems import LexicalSimilarity  # noqa: E402
from clicktower.training.ranking.labelled_measures import Measure, accuracy, area_of_probabilities, mean_area_under_roc  # noqa: E402
from clicktower.training.ranking.ndcg import percentiles, resample  # noqa: E402
from clicktower.training.trainer.labelled_shards import read_labelled  # noqa: E402

RESULT = Path(__file__).parent / "results" / "classifiers.json"
SETS = labelled.SETS | {"hypotheses": ["{0}/snli/validation.tsv", "--text", "hypothesis", "--label", "label"]}
TEXTS = ["--text", "2", "--label", "1", "--no-header"]
CHOOSE_BY = "dev_area_under_roc"
TRIED = {  # (Adam's steps, epochs)
    "question_pairs": ((0.001, 0.002), 4),
    "snli": ((0.0005, 0.001, 0.002), 8),
    "hypotheses": ((0.0005, 0.001, 0.002), 8),
    "few": ((0.001, 0.002), 8),
}
CHOOSING_SHARE = ["--set", "dev_share=0.2", "--set", "split_salt=choosing"]  # another salt: the hash took its rows
RESAMPLES = 2_000
REPEATING = [
    "objective=generate", "objective.word_dropout=0.4", "objective.kappa_rate=0.001", "objective.kappa_middle=6000",
    "optimiser.step=0.001", "epochs=10",
]  # fmt: skip
# What var-siamese trains first, and the same with reconstruction alone.
TEXTS_FIRST = {
    "VAE, repeat": REPEATING,
    "VAE, repeat/reformulate": [*REPEATING, "objective.reformulate=true", "objective.paraphrase=1"],
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """A recipe with settings. `start`: of TEXTS_FIRST; `like`: whose choice it has; `beside`: compared with which."""

    recipe: str
    settings: tuple[str, ...] = ()
    start: str = ""
    like: str = ""
    beside: str = "siamese-lstm"


def _penalised(penalty: str) -> Row:
    return Row(recipe="gated-attention", settings=(f"tower.penalty={penalty}",), beside="gated-attention, penalty 0")


def _of_texts(recipe: str, *settings: str) -> Row:
    return Row(recipe=recipe, settings=("objective.features=plain", *settings), beside="BiLSTM, max")


_NOT_PRETRAINED = Row(recipe="var-siamese", settings=("objective.pretrain=none",))
_PLAIN = "var-siamese, no pretraining"
_PRETRAINED = replace(_NOT_PRETRAINED, like=_PLAIN, beside=_PLAIN)
ROWS: Mapping[str, Mapping[str, Row]] = {
    "question_pairs": {
        "siamese-lstm": Row(recipe="siamese-lstm"),
        "siamese-max": Row(recipe="siamese-max"),
        "siamese-gru": Row(recipe="siamese-gru"),
        "siamese-cnn": Row(recipe="siamese-cnn"),
        "siamese-swem": Row(recipe="siamese-swem"),
        "siamese-swem, aver": Row(recipe="siamese-swem", settings=("tower.aggregate=aver",), like="siamese-swem"),
        "siamese-swem, max": Row(recipe="siamese-swem", settings=("tower.aggregate=max",), like="siamese-swem"),
        _PLAIN: _NOT_PRETRAINED,
        "var-siamese": replace(_PRETRAINED, start="VAE, repeat/reformulate"),
        "var-siamese, reconstruction alone": replace(_PRETRAINED, start="VAE, repeat"),
    },
    "snli": {
        "siamese-lstm": Row(recipe="siamese-lstm"),
        "siamese-max": Row(recipe="siamese-max"),
        "gated-attention, penalty 0": Row(recipe="gated-attention", settings=("tower.penalty=0",)),
        **{f"gated-attention, penalty {penalty}": _penalised(penalty) for penalty in ("0.1", "0.3", "1")},
    },
    "hypotheses": {
        "BiLSTM, max": _of_texts("siamese-max"),
        "CNN, max": _of_texts("siamese-cnn"),
        "self-attention, penalty 0": _of_texts("attentive-texts", "tower.penalty=0"),
        "self-attention, penalty 0.1": _of_texts("attentive-texts"),
        "self-attention, penalty 1": _of_texts("attentive-texts", "tower.penalty=1"),
    },
}
FEW = (1_000, 4_000)
OWN = ("classifier", "w2", "model")


@dataclass(frozen=True, slots=True)
class Bench:
    store: str
    seeds: Sequence[int]
    threads: int
    some: Sequence[str]  # rows; none: all

    def measure(self, name: str) -> dict[str, Any]:
        """What one set gives: the systems by words, and each row by its seeds."""
        built = build(SETS[name], self.store)
        part = self.choosing_part(built, name)
        found, scores = {}, {}
        for row, of_row in ROWS[name].items():
            if self.some and row not in self.some:
                continue
            chosen = found[of_row.like]["chosen"] if of_row.like else self.choose(part, of_row, *TRIED[name])
            started = self.texts_first(built, of_row.start) if of_row.start else None
            models = self.models(built, of_row, chosen, started)
            found[row], scores[row] = self.evaluated(models, built, stsb=name == "question_pairs")
            found[row] |= {"chosen": chosen}
            _tell(name, row, chosen, found[row])
            if started:
                found[of_row.start], scores[of_row.start] = self.evaluated(started, built, stsb=True)
        given = ["--word-vectors", self.word_vectors(built)] if name == "question_pairs" else []
        systems = command("evaluate-labelled", "--model", models[0]["path"], "--labelled", built["path"],
                          "--into", self.store, *given)["metrics"]["systems"]  # fmt: skip
        return {
            "counts": built["counts"],
            "chosen_on": part["counts"],
            "by_words": {
                **{system: value for system, value in systems.items() if system not in OWN},
                **({} if name == "hypotheses" else {"bm25, words by white space": by_white_space(built)}),
            },
            "models": _with_intervals(found, scores, ROWS[name], built["counts"]["dev_rows"]),
        }

    def few(self) -> dict[str, Any]:
        """Of each number of labelled rows, with and without texts learnt before: each seed's classifier."""
        whole = build(SETS["question_pairs"], self.store)
        part = self.choosing_part(whole, "question_pairs")
        texts = self.texts_first(whole, "VAE, repeat")
        found, scores, rows = {}, {}, {}
        for number in FEW:
            some, of_part = (self.rows_of(each, f"some-{number}", number, dev=True) for each in (whole, part))
            for start in ("", "VAE, repeat"):
                name = f"{number:,} labels" + (", pretrained" if start else "")
                rows[name] = Row(
                    recipe="var-siamese", settings=_NOT_PRETRAINED.settings, start=start, beside=f"{number:,} labels"
                )
                chosen = self.choose(of_part, rows[name], *TRIED["few"], texts if start else None)
                models = self.models(some, rows[name], chosen, texts if start else None)
                found[name], scores[name] = self.evaluated(models, some, stsb=False)
                found[name] |= {"chosen": chosen}
                _tell("few", name, chosen, found[name])
        return {"models": _with_intervals(found, scores, rows, whole["counts"]["dev_rows"])}

    def word_vectors(self, built: dict[str, Any]) -> str:
        """A file of what word2vec (gensim's skip-grams) learns from the training texts: GloVe's are not at hand."""
        texts = read_labelled(built["data"]).train.texts
        learnt = Word2Vec(
            [words(text) for text in texts], vector_size=100, sg=1, epochs=20, min_count=2, seed=1, workers=1
        )
        file = Path(self.store) / f"{built['digest']}-word2vec.txt"
        learnt.wv.save_word2vec_format(str(file))
        return str(file)

    def texts_first(self, built: dict[str, Any], name: str) -> list[dict[str, Any]]:
        """The models of TEXTS_FIRST, by seed."""
        return [
            self.train(built, Row(recipe="var-siamese"), [f"seed={seed}", *TEXTS_FIRST[name]]) for seed in self.seeds
        ]

    def choosing_part(self, built: dict[str, Any], name: str) -> dict[str, Any]:
        """Shards of the training rows of a build alone, a fifth of them held out to choose on."""
        return self.rows_of(built, f"{name}-training")

    def rows_of(self, built: dict[str, Any], name: str, most: int | None = None, dev: bool = False) -> dict[str, Any]:
        """Shards of the first `most` training rows; with `dev` the build's own held-out rows are held out."""
        data, folder = read_labelled(built["data"]), Path(self.store) / built["digest"]
        folder.mkdir(exist_ok=True)
        files = []
        for part, rows in (("train", data.train.take(np.arange(len(data.train))[:most])), ("dev", data.dev)):
            columns = [[data.classes[label] for label in rows.labels.tolist()]]
            columns += [[rows.texts[at] for at in side.tolist()] for side in rows.sides]
            lines = map("\t".join, zip(*columns, strict=True))
            files.append(folder / f"{name}-{part}.tsv")
            files[-1].write_text("\n".join(lines) + "\n", encoding="utf-8")
        held_out = ["--dev", str(files[1])] if dev else CHOOSING_SHARE
        return build([str(files[0]), *held_out, *(QUESTIONS if data.unit == "pairs" else TEXTS)], self.store)

    def choose(
        self,
        part: dict[str, Any],
        row: Row,
        steps: Sequence[float],
        epochs: int,
        starts: Sequence[dict[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """The step and the epochs that are best on the held-out fifth of the training rows.

        Rows that begin with learnt texts begin with the first of `starts` here, which saw these rows' texts, no label.
        """
        curves = {}
        for step in steps:
            fields = ["seed=1", f"optimiser.step={step}", f"epochs={epochs}"]
            tried = self.train(part, row, fields, starts[0] if starts else None)
            points = json.loads((Path(tried["data"]) / "curves.json").read_text(encoding="utf-8"))
            curves[step] = [point[CHOOSE_BY] for point in points]
        step = max(steps, key=lambda each: max(curves[each]))
        return {"step": step, "epochs": int(np.argmax(curves[step])) + 1, "area_under_roc": curves}

    def models(
        self, built: dict[str, Any], row: Row, chosen: Mapping[str, Any], starts: Sequence[dict] | None = None
    ) -> list[dict[str, Any]]:
        """A row's models with what was chosen, by seed."""
        fields = [f"optimiser.step={chosen['step']}", f"epochs={chosen['epochs']}"]
        return [
            self.train(built, row, [f"seed={seed}", *fields], starts[at] if starts else None)
            for at, seed in enumerate(self.seeds)
        ]

    def evaluated(
        self, models: Sequence[dict[str, Any]], built: dict[str, Any], *, stsb: bool
    ) -> tuple[dict[str, Any], list[dict[str, Measure]]]:
        """(figures by seed, with their mean and range; each seed's measures of its scores)."""
        quick = ["--set", "word_movers=false", "--set", "num_resamples=10"]
        rows, measures = [], []
        for model in models:
            given = ["--model", model["path"], "--into", self.store, *quick]
            result = command("evaluate-labelled", *given, "--labelled", built["path"])
            table = pa.ipc.open_file(f"{result['data']}/scores.arrow").read_all()
            measures.append(_measures(table, result["metrics"]))
            once = np.ones((1, len(table)))
            row = {name: {"value": float(measure(once)[0])} for name, measure in measures[-1].items()}
            if result["metrics"].get("overlap"):
                row["overlap of hops"] = {"value": result["metrics"]["overlap"]["mean"]}
            if stsb:
                scored = build(SETS["stsb"], self.store)["path"]
                others = command("evaluate-labelled", *given, "--labelled", scored)["metrics"]["systems"]
                row |= {
                    f"{system}, spearman on stsb": {"value": others[system]["spearman"]["value"]}
                    for system in OWN
                    if system in others
                }
            rows.append(row)
        return {"seeds": rows, **over_seeds(rows)}, measures

    def train(
        self, built: dict[str, Any], row: Row, fields: Sequence[str], start: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """The model of a row: its folder and data."""
        sets = [word for field in (*row.settings, *fields) for word in ("--set", field)]
        begun = ["--start", start["path"]] if start else []
        given = ["--shards", built["path"], "--into", self.store, "--threads", str(self.threads)]
        return command("train", *given, "--recipe", row.recipe, *sets, *begun)


def by_white_space(built: dict[str, Any]) -> dict[str, Any]:
    """What symmetric BM25 is worth if white space alone separates words, measured as `evaluate-labelled` does."""
    data, config = read_labelled(built["data"]), evaluate_labelled_stage.EvaluateLabelledConfig()
    drawn = np.random.default_rng(config.seed).permutation(len(data.train))[: config.max_train_pairs]
    sampled, num_training = data.train.take(np.sort(drawn)), len(data.train.texts)
    first, second = (
        np.concatenate([of_train, of_dev + num_training])
        for of_train, of_dev in zip(sampled.sides, data.dev.sides, strict=True)
    )
    scores = LexicalSimilarity([*data.train.texts, *data.dev.texts], num_training, None).bm25(first, second)
    halves = {"bm25": (scores[: len(sampled)], scores[len(sampled) :])}
    found = evaluate_labelled_stage.table(halves, sampled.labels, data.dev.labels, data.classes, config)
    return found["systems"]["bm25"]


def _measures(table: pa.Table, metrics: Mapping[str, Any]) -> dict[str, Measure]:
    """What an evaluation's scores of its held-out rows are worth, by name."""
    labels = table["label"].to_numpy()
    found: dict[str, Measure] = {}
    classifier = [name for name in table.column_names if name.startswith("classifier.")]
    if classifier:
        probability_QC = np.stack([table[name].to_numpy() for name in classifier], axis=1)
        found["classifier, accuracy"] = accuracy(probability_QC.argmax(axis=1) == labels)
        found["classifier, auc"] = area_of_probabilities(probability_QC, labels)
    for system in ("w2", "model"):
        if system in table.column_names:
            order = [metrics["classes"].index(name) for name in metrics["thresholds"][system]["classes"]]
            found[f"{system}, auc"] = mean_area_under_roc(table[system].to_numpy(), labels, np.array(order))
    return found


def _with_intervals(
    found: Mapping[str, dict[str, Any]],
    measures: Mapping[str, list[dict[str, Measure]]],
    rows: Mapping[str, Row],
    num_rows: int,
) -> dict[str, Any]:
    """The rows, with the intervals of their means over seeds and of their differences to the rows they stand beside."""
    names = [(row, measure) for row, of_seeds in measures.items() for measure in of_seeds[0]]

    def means(times_SQ: np.ndarray) -> np.ndarray:
        return np.stack(
            [np.mean([seed[measure](times_SQ) for seed in measures[row]], axis=0) for row, measure in names], axis=1
        )

    draws_RM = resample(means, num_rows, num_resamples=RESAMPLES)
    at = {name: place for place, name in enumerate(names)}
    for (row, measure), place in at.items():
        figures = found[row][measure]
        figures["low"], figures["high"] = (float(end) for end in percentiles(draws_RM[:, place], 0.95))
        other = rows[row].beside if row in rows else ""
        if other != row and (other, measure) in at:
            low, high = percentiles(draws_RM[:, place] - draws_RM[:, at[other, measure]], 0.95)
            ahead = figures["mean"] - found[other][measure]["mean"]
            figures["ahead"] = {"of": other, "mean": ahead, "low": float(low), "high": float(high)}
    return dict(found)


def build(words: Sequence[str], store: str) -> dict[str, Any]:
    """The labelled shards of one of SETS, or of files."""
    folder = os.environ["CLICKTOWER_DATA"]
    return command("build-labelled", *(word.format(folder) for word in words), "--into", store)


def command(*words: str) -> dict[str, Any]:
    """What a command says, run in this process: hundreds of starts would take as long as the trainings."""
    with redirect_stdout(io.StringIO()) as said:
        code = run([*words, "--json"])
    if code:
        sys.exit(f"{' '.join(words)}: {said.getvalue()}")
    return json.loads(said.getvalue())


def _tell(name: str, row: str, chosen: Mapping[str, Any], figures: Mapping[str, Any]) -> None:
    means = {measure: round(of["mean"], 4) for measure, of in figures.items() if isinstance(of, dict) and "mean" in of}
    print(name, row, chosen["step"], chosen["epochs"], means, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--sets", nargs="*", choices=[*ROWS, "few"], default=[*ROWS, "few"])
    parser.add_argument("--rows", nargs="*", default=[], help="some rows of the sets instead of all")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    bench = Bench(options.store, options.seeds, options.threads, options.rows)
    found = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    for name in options.sets:
        measured = bench.few() if name == "few" else bench.measure(name)
        if options.rows and name in found:
            measured["models"] = {**found[name]["models"], **measured["models"]}
        found[name] = measured
        found["machine"] = {"python": platform.python_version(), "measured": datetime.now(UTC).isoformat()[:16]}
        RESULT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
