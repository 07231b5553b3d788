"""Evaluation on labelled rows: model + labelled shards -> accuracy, area under ROC or Spearman, with intervals.

    python: evaluate_labelled("store/train/DIGEST", "store/build-labelled/DIGEST", store="store",
    config=EvaluateLabelledConfig())

Every choice (thresholds, which class is the similar one, how rare a word is) is made on the training part; every figure
is of the held-out part. Writes below STORE/evaluate-labelled/DIGEST/ATTEMPT/:

    table.json      what `metrics` of the manifest holds
    scores.arrow    for every held-out row, in the order of the shards: its label and every system's score; of a
                    classifier the probability of each class
    examples.json   of a classifier: held-out rows with their texts (the user's own, as they were given) that say most
                    about it: where it was surest, right or wrong, and where it was least sure
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from clicktower.schemas import storage
from clicktower.schemas.errors import StageError
from clicktower.schemas.manifest import Outcome, to_bytes
from clicktower.schemas.section import DEFAULT_LANGUAGE, Confidence, Count, Language, Seed, section
from clicktower.schemas.stage import Progress, Stage, StageResult, open_result, require_present, run_stage, silent
from clicktower.training.analysis.traces import mean_overlap, trace, write_table
from clicktower.training.evaluation.labelled_systems import (
    CLASSIFIER,
    COSINE,
    VECTOR_MOVERS,
    W2,
    WORD_MOVERS,
    Scores,
    systems_of,
)
from clicktower.training.model.embedding import TextEncoder
from clicktower.training.model.model import Model, load_encoder
from clicktower.training.model.model_folder import model_source
from clicktower.training.ranking.labelled_measures import (
    Measure,
    accuracy,
    area_of_probabilities,
    choose_thresholds,
    histograms,
    mean_area_under_roc,
    reliability,
    spearman,
)
from clicktower.training.ranking.ndcg import percentiles, resample
from clicktower.training.towers.tower_kinds import SelfAttentive
from clicktower.training.trainer.labelled_shards import LabelledData, LabelledRows, read_labelled

# Version 1 had no classifier, 2 no histograms, confusion, reliability, overlap and examples, 3 no right ones.
EVALUATE_LABELLED = Stage("evaluate-labelled", version=5)
MAX_CLASSES = 20  # that one similarity can usefully distinguish, or a confusion table can show
EXAMPLES = "examples.json"
MOST = 10  # example rows of each kind
ATTENDED = 3  # those with attention: a picture for each text

RULES = {
    "chosen_on": "training rows: thresholds, the order of the classes, how rare a word is",
    "accuracy": "a score's class by the thresholds with the most right answers on the training rows",
    "auc": "area under ROC, ties half; of more than two classes the mean over all pairs of them",
    "classifier": "the class with the highest probability; its area is of the probabilities (Hand and Till 2001)",
    "w2": "minus the 2-Wasserstein distance of the two texts' distributions",
    "naive-bayes": "multinomial over words, add-one smoothing, of all training texts",
    "spearman": "rank correlation, equal values share their mean rank",
    "model": "cosine; crossed: the mean of both directions, query side against document side",
    "tf-idf": "cosine of tf * (ln((1 + N) / (1 + df)) + 1), over the terms of the lexical contract",
    "bm25": "(s(a, b) + s(b, a)) / (s(a, a) + s(b, b)), over the same terms",
    "word-movers": "minus the exact word mover's distance over letter-trigram counts of words, of length 1",
    "word-movers-vectors": "the same over the given vectors of the words that they have (Kusner et al. 2015)",
    "constant": "one score for all rows: its accuracy is the majority rate",
    "calibration_error": "the mean over rows of |said - right| of their bin (Guo et al. 2017, eq. 3)",
    "overlap": "the mean of A A' off its diagonal over the distinct held-out texts",
    "interval": "percentile bootstrap over the held-out rows, the same draws for all systems",
}


@section
class EvaluateLabelledConfig:
    """How similarities are evaluated.

    Args:
        sides: Which towers of a model read the two texts; crossed is what clicks train.
        max_train_pairs: Thresholds are chosen on a sample of this many training pairs if there are more.
        language: The language of the terms of TF-IDF and BM25 (docs/model.md).
        word_movers: Measure word mover's distance too: seconds for a thousand pairs.
        confidence: The confidence of intervals.
        num_resamples: Resamples of the bootstrap.
        seed: The seed of the resamples and of the sample.
    """

    sides: Literal["crossed", "query", "document"] = "crossed"
    max_train_pairs: Count = 5_000
    language: Language = DEFAULT_LANGUAGE
    word_movers: bool = True
    confidence: Confidence = 0.95
    num_resamples: Count = 2_000
    seed: Seed = 0


def evaluate_labelled(
    model: str,
    labelled: str,
    *,
    store: str,
    config: EvaluateLabelledConfig,
    word_vectors: str | None = None,
    progress: Progress = silent,
) -> StageResult:
    """The evaluated similarities: `metrics` holds the table of the model and of the baselines.

    model: the folder of a training or a release, or a release's URI. labelled: the folder of a `build-labelled`.
    word_vectors: a file of word vectors (model.word_vectors), for a row of word mover's distance on it. Raises
    UsageError or StageError for folders that are missing or of another kind, and if nothing is held out.
    """
    trained, built = model_source(model), open_result(labelled)
    inputs = {"model": trained.digest, "labelled": built.manifest.digest}
    if word_vectors:
        inputs["word_vectors"] = storage.fingerprint(word_vectors)

    def produce(folder: str) -> Outcome:
        require_present([*trained.outputs, built])
        data, encoder = read_labelled(built.data), load_encoder(trained.folder)
        _require_measurable(data, labelled)
        num_sampled = config.max_train_pairs if data.classes else 0
        drawn = np.random.default_rng(config.seed).permutation(len(data.train))[:num_sampled]
        sampled = data.train.take(np.sort(drawn))
        scores, refused = systems_of(
            encoder, data, sampled, sides=config.sides, language=config.language, word_movers=config.word_movers,
            word_vectors=word_vectors, progress=progress,
        )  # fmt: skip
        progress("resample", 0, None)
        metrics = table(scores, sampled.labels, data.dev.labels, data.classes, config)
        metrics |= {"unit": data.unit, "no_classifier": refused}
        metrics |= _details(scores, data, metrics["thresholds"])
        metrics["overlap"] = _overlap(encoder, data, config.sides, progress)
        storage.write_atomic(storage.join(folder, "table.json"), to_bytes(metrics))
        write_table(storage.join(folder, "scores.arrow"), _score_table(scores, data))
        if CLASSIFIER in scores:
            assert isinstance(encoder, Model)  # others have no classifier
            attentive = encoder if isinstance(encoder.recipe.tower, SelfAttentive) else None
            shown = examples(scores[CLASSIFIER][1], data.dev, data.classes, attentive)
            storage.write_atomic(storage.join(folder, EXAMPLES), to_bytes(shown))
        return Outcome(
            counts={"train_rows": len(data.train), "sampled_train_rows": len(sampled), "dev_rows": len(data.dev)},
            metrics=metrics,
            labels=dict(trained.labels),
        )

    return run_stage(store, EVALUATE_LABELLED.request(config, inputs), produce, progress)


def table(
    scores: Mapping[str, Scores],
    train_labels: np.ndarray,
    dev_labels: np.ndarray,
    classes: tuple[str, ...],
    config: EvaluateLabelledConfig,
) -> dict[str, Any]:
    """Every measure of every system with its interval, and the difference of the first to each of the others.

    classes: of the labels, which are indices into them; None if labels are values.
    """
    measures: list[Measure] = []
    thresholds: dict[str, Any] = {}
    for name, (of_train, of_dev) in scores.items():
        if not classes:
            measures.append(spearman(of_dev, dev_labels))
            continue
        if of_dev.ndim == 2:
            measures.append(accuracy(of_dev.argmax(axis=1) == dev_labels))
            measures.append(area_of_probabilities(of_dev, dev_labels))
            continue
        chosen = choose_thresholds(of_train, train_labels, len(classes))
        measures.append(accuracy(chosen.classes_of(of_dev) == dev_labels))
        measures.append(mean_area_under_roc(of_dev, dev_labels, chosen.order))
        cuts = [None if np.isinf(cut) else float(cut) for cut in chosen.cuts]
        thresholds[name] = {"cuts": cuts, "classes": [classes[k] for k in chosen.order]}
    names = ["accuracy", "auc"] if classes else ["spearman"]

    def every(times_SQ: np.ndarray) -> np.ndarray:
        return np.stack([measure(times_SQ) for measure in measures], axis=1)

    num_pairs = len(dev_labels)
    shape = (-1, len(scores), len(names))
    values_NM = every(np.ones((1, num_pairs))).reshape(shape)[0]
    draws_RNM = resample(every, num_pairs, num_resamples=config.num_resamples, seed=config.seed).reshape(shape)
    return {
        "ours": next(iter(scores)),
        "n": num_pairs,
        "classes": list(classes),
        "systems": _with_intervals(values_NM, draws_RNM, list(scores), names, config.confidence),
        "difference": _with_intervals(
            values_NM[0] - values_NM, draws_RNM[:, [0]] - draws_RNM, list(scores), names, config.confidence
        ),
        "thresholds": thresholds,
        "confidence": config.confidence,
        "rules": RULES,
    }


def _details(scores: Mapping[str, Scores], data: LabelledData, thresholds: Mapping[str, Any]) -> dict[str, Any]:
    """The distributions of our similarities and of word mover's distance, and our classifier against the labels."""
    labels, shown = data.dev.labels, (W2, COSINE, WORD_MOVERS, VECTOR_MOVERS)
    similarities = {name: scores[name][1] for name in shown if name in thresholds}
    cuts = {name: thresholds[name]["cuts"] for name in similarities}
    result: dict[str, Any] = {
        "histograms": histograms(
            similarities, labels, len(data.classes), cuts, distances=(W2, WORD_MOVERS, VECTOR_MOVERS)
        ),
        "classifier": None,
    }
    if CLASSIFIER in scores:
        probability_QC = scores[CLASSIFIER][1]
        few = len(data.classes) <= MAX_CLASSES
        result["classifier"] = {
            "confusion": confusion(probability_QC, labels) if few else None,
            **reliability(probability_QC, labels),
        }
    return result


def confusion(probability_QC: np.ndarray, labels: np.ndarray) -> list[list[int]]:
    """How many rows of each class (first index) are classified as each class (second index), [C][C]."""
    from sklearn.metrics import confusion_matrix  # loads in a second

    return confusion_matrix(labels, probability_QC.argmax(axis=1), labels=range(probability_QC.shape[1])).tolist()


def _overlap(encoder: TextEncoder, data: LabelledData, sides: str, progress: Progress) -> dict[str, Any] | None:
    if not isinstance(encoder, Model):
        return None
    texts = [data.dev.texts[at] for at in np.unique(np.concatenate(data.dev.sides)).tolist()]
    progress("attention", 0, None)
    mean = mean_overlap(encoder, texts, "document" if sides == "document" else "query")
    if mean is None:
        return None
    return {"mean": mean, "texts": len(texts), "hops": encoder.recipe.tower.rows}


def examples(
    probability_QC: np.ndarray, rows: LabelledRows, classes: Sequence[str], attentive: Model | None
) -> dict[str, list[dict[str, Any]]]:
    """`surest_right`, `surest_wrong`, `least_sure`: at most MOST rows each, the most telling first; of equal ones the
    earlier.

    A row: texts, label, said, probability (of what was said), of_label (the probability of the label). attentive: a
    self-attentive model, whose attention on the first rows' texts is kept too: words, hops [hops][words].
    """
    predicted, sure = probability_QC.argmax(axis=1), probability_QC.max(axis=1)
    surest = np.argsort(-sure, kind="stable")
    is_right = (predicted == rows.labels)[surest]

    def example(row: int, with_attention: bool) -> dict[str, Any]:
        texts = [rows.texts[side[row]] for side in rows.sides]
        result = {
            "texts": texts,
            "label": classes[rows.labels[row]],
            "said": classes[predicted[row]],
            "probability": float(sure[row]),
            "of_label": float(probability_QC[row, rows.labels[row]]),
        }
        if attentive and with_attention:
            read = [trace(attentive, text, "query") for text in texts]
            result["attention"] = [
                {"words": list(text_trace.words), "hops": np.asarray(text_trace.attention).tolist()}
                for text_trace in read
            ]
        return result

    chosen = {
        "surest_right": surest[is_right],
        "surest_wrong": surest[~is_right],
        "least_sure": np.argsort(sure, kind="stable"),
    }
    return {
        kind: [example(row, number < ATTENDED) for number, row in enumerate(places[:MOST].tolist())]
        for kind, places in chosen.items()
    }


def _with_intervals(
    values_NM: np.ndarray, draws_RNM: np.ndarray, systems: list[str], measures: list[str], confidence: float
) -> dict[str, dict[str, dict[str, float]]]:
    columns = [column.tolist() for column in (values_NM, *percentiles(draws_RNM, confidence))]
    return {
        system: {
            measure: dict(zip(("value", "low", "high"), figures, strict=True))
            for measure, *figures in zip(measures, *of_system, strict=True)
        }
        for system, *of_system in zip(systems, *columns, strict=True)
    }


def _score_table(scores: Mapping[str, Scores], data: LabelledData) -> pa.Table:
    columns = {"label": data.dev.labels}
    for name, (_, of_dev) in scores.items():
        if of_dev.ndim == 2:
            columns |= {f"{name}.{label}": of_dev[:, at] for at, label in enumerate(data.classes)}
        else:
            columns[name] = of_dev
    return pa.table(columns)


def _require_measurable(data: LabelledData, labelled: str) -> None:
    if not len(data.dev):
        raise StageError(
            f"None of the labelled rows in {labelled} is held out: a threshold would be measured on what chose it.",
            "Build them with a dev_share above 0, or with --dev.",
        )
    if data.unit == "texts" and not data.classes:
        raise StageError(
            f"The labelled rows in {labelled} are single texts with values: there is neither a similarity to measure"
            " nor a class.",
            "Build them with --label-kind class, or give labelled pairs.",
        )
    if data.unit == "pairs" and len(data.classes) > MAX_CLASSES:
        raise StageError(
            f"The labelled rows in {labelled} have {len(data.classes):,} classes, and thresholds of a similarity tell"
            f" at most {MAX_CLASSES} apart usefully.",
            "Build them with --label-kind value if the labels are numbers.",
        )
