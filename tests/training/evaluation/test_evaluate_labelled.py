import numpy as np
import pyarrow as pa
import pytest

from clicktower.beam_jobs.labelled.labelled_rows import LabelledColumns, LabelledConfig, LabelledMapping
from clicktower.beam_jobs.labelled.labelled_stage import build_labelled_shards
from clicktower.schemas.errors import StageError, UsageError
from clicktower.training.evaluation.evaluate_labelled_stage import EvaluateLabelledConfig, evaluate_labelled
from clicktower.training.ranking.ndcg import bootstrap_interval
from clicktower.training.trainer.labelled_shards import read_labelled
from tests.trained_model import trained_stage

CONFIG = EvaluateLabelledConfig(num_resamples=200)
WORDS = ["steel", "angle", "bracket", "hose", "garden", "grinder", "shelf", "pipe", "copper", "nail", "2x4", "ørn"]
COLUMNS = {"first": 1, "second": 2, "label": 3}


def _built(folder, lines, columns=COLUMNS, **config):
    file = folder / "lines.tsv"
    file.write_text("".join("\t".join(map(str, line)) + "\n" for line in lines), encoding="utf-8")
    mapping = LabelledMapping(columns=LabelledColumns(**columns), header=False)
    config = LabelledConfig(mapping=mapping, **({"dev_share": 0.3} | config))
    return build_labelled_shards([str(file)], store=str(folder / "store"), config=config)


def _pairs(rng):
    """200 pairs that share most words, or none, with the number of words they share."""
    for number in range(200):
        first = [f"n{number}", *rng.permutation(WORDS)[:4]]
        shared = number % 2 * 3
        second = [f"m{number}", *first[1 : 1 + shared], *(f"o{number}x{i}" for i in range(4 - shared))]
        yield " ".join(first), " ".join(second), shared


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return trained_stage(str(tmp_path_factory.mktemp("store")), labels={"simulated": True})


@pytest.fixture(scope="module")
def classes(tmp_path_factory):
    lines = [(a, b, int(shared > 0)) for a, b, shared in _pairs(np.random.default_rng(0))]
    return _built(tmp_path_factory.mktemp("classes"), lines)


@pytest.fixture(scope="module")
def evaluated(model, classes, tmp_path_factory):
    return evaluate_labelled(model, classes.folder, store=str(tmp_path_factory.mktemp("store")), config=CONFIG)


def test_given_word_vectors_are_a_row_of_their_own(model, classes, tmp_path):
    data = read_labelled(classes.data)
    known = sorted({word for text in data.train.texts for word in text.split()})
    lines = [f"{word} {' '.join(str(int(at == n)) for at in range(len(known)))}\n" for n, word in enumerate(known)]
    (tmp_path / "vectors.txt").write_text("".join(lines))
    given = {"store": str(tmp_path), "word_vectors": str(tmp_path / "vectors.txt")}
    config = EvaluateLabelledConfig(num_resamples=200, word_movers=False)
    measured = evaluate_labelled(model, classes.folder, config=config, **given).manifest
    assert measured.outcome.metrics["systems"]["word-movers-vectors"]["auc"]["value"] == 1
    assert (
        measured.digest != evaluate_labelled(model, classes.folder, store=str(tmp_path), config=config).manifest.digest
    )


def test_every_system_is_measured_on_the_held_out_pairs(evaluated, classes):
    metrics, data = evaluated.manifest.outcome.metrics, read_labelled(classes.data)
    assert metrics["n"] == len(data.dev) == classes.manifest.outcome.counts["dev_rows"]
    assert list(metrics["systems"]) == ["model", "tf-idf", "bm25", "word-movers", "constant"]
    # Pairs share three words of five or none at all: words alone tell them apart.
    for system in ("tf-idf", "bm25", "word-movers"):
        assert metrics["systems"][system]["auc"]["value"] == 1
        assert metrics["systems"][system]["accuracy"]["value"] == 1
    majority = np.bincount(data.train.labels).argmax()
    constant = metrics["systems"]["constant"]
    assert constant["accuracy"]["value"] == pytest.approx((data.dev.labels == majority).mean())
    assert constant["auc"]["value"] == 0.5
    assert evaluated.manifest.outcome.labels == {"simulated": True}


def test_figures_follow_from_the_scores_beside_them(evaluated):
    metrics = evaluated.manifest.outcome.metrics
    with pa.memory_map(f"{evaluated.data}/scores.arrow") as file:
        scores = pa.ipc.open_file(file).read_all()
    chosen, label = metrics["thresholds"]["model"], scores["label"].to_numpy()
    similar = scores["model"].to_numpy() >= chosen["cuts"][0]
    right = np.where(similar, int(chosen["classes"][1]), int(chosen["classes"][0])) == label
    found = metrics["systems"]["model"]["accuracy"]
    assert found["value"] == pytest.approx(right.mean())
    low, high = bootstrap_interval(right, num_resamples=200)
    assert (found["low"], found["high"]) == pytest.approx((low[0], high[0]))
    to_itself = metrics["difference"]["model"]["accuracy"]
    assert to_itself == {"value": 0, "low": 0, "high": 0}


def test_values_are_measured_by_rank_correlation(model, tmp_path):
    rng = np.random.default_rng(1)
    built = _built(tmp_path, [(a, b, shared + rng.random()) for a, b, shared in _pairs(rng)], label="value")
    config = EvaluateLabelledConfig(num_resamples=200, word_movers=False)
    metrics = evaluate_labelled(model, built.folder, store=str(tmp_path), config=config).manifest.outcome.metrics
    assert list(metrics["systems"]) == ["model", "tf-idf", "bm25"]
    assert 0.7 < metrics["systems"]["bm25"]["spearman"]["value"] < 1
    assert not metrics["thresholds"]


@pytest.mark.slow
def test_what_cannot_be_measured_says_why(model, tmp_path):
    store = {"store": str(tmp_path), "config": CONFIG}
    (tmp_path / "all").mkdir()
    (tmp_path / "texts").mkdir()
    no_dev = _built(tmp_path / "all", [("a", "b", 0), ("c", "d", 1)], dev_share=0)
    with pytest.raises(StageError, match="is held out:"):
        evaluate_labelled(model, no_dev.folder, **store)
    lines = [(f"text {i}", i % 2) for i in range(40)]
    texts = _built(tmp_path / "texts", lines, {"text": 1, "label": 2})
    with pytest.raises(UsageError, match=r"the model was not trained on labels."):
        evaluate_labelled(model, texts.folder, **store)
    with pytest.raises(StageError, match=r"A file is missing or unreadable"):
        evaluate_labelled(model, model, **store)
