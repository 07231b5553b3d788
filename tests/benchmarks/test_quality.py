"""benchmarks/quality.py: the queries that choose are neither trained on nor reported on."""

import numpy as np
import pytest

from benchmarks import quality
from benchmarks.quality import MIN_JUDGED, Choosing, differences, with_settings, write_choosing
from clicktower.schemas.judgments import read_qrels, read_queries
from clicktower.training.model.recipe import recipe


def lines(path, written):
    path.write_text("".join(f"{line}\n" for line in written), encoding="utf-8")


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    lines(folder / "queries.train.tsv", [f"t{n}\tquery number {n}" for n in range(1_000)])
    lines(folder / "queries.dev.tsv", [f"d{n}\tother {n}" for n in range(20)])
    judged = [f"t{n} 0 doc{at} {at % 4}" for n in range(1_000) for at in range(MIN_JUDGED - n % 2)]
    lines(folder / "qrels.train.txt", judged)
    return folder


def test_a_fifth_of_the_train_queries_and_all_of_dev_are_left_out_and_only_train_queries_choose(data, tmp_path):
    left_out, queries, qrels = write_choosing(data, tmp_path / "work")
    out, choose = read_queries(str(left_out)), read_queries(str(queries))
    assert len(out) - 20 == pytest.approx(200, abs=50)
    assert out.keys() >= read_queries(str(data / "queries.dev.tsv")).keys()
    assert choose.items() <= out.items()
    assert {name[0] for name in choose} == {"t"}
    assert all(int(name[1:]) % 2 == 0 for name in choose)  # the others have too few judgments
    grades = read_qrels(str(qrels))
    assert grades.keys() == choose.keys()
    assert all(len(of) == MIN_JUDGED for of in grades.values())


def test_who_is_left_out_depends_on_the_text_of_a_query_alone(data, tmp_path):
    def texts(folder):
        return set(read_queries(str(write_choosing(data, folder)[0])).values())

    before = texts(tmp_path / "before")
    train = [line.partition("\t")[2].upper() for line in (data / "queries.train.tsv").read_text().splitlines()]
    lines(data / "queries.train.tsv", [f"t{n}\t{text}" for n, text in enumerate(reversed(train))])
    assert {text.lower() for text in texts(tmp_path / "after")} == before


def test_the_step_and_the_epochs_that_rank_best_are_taken(tmp_path, monkeypatch):
    curves = {0.5: [0.1, 0.2], 1: [0.3, 0.5, 0.4], 2: [0.4, 0.4]}
    asked = []

    def told(given, seed, shards, store, threads, *judged):
        asked.append((shards, judged))
        name = given.partition(":")[0]
        step = float(given.partition("optimiser.step=")[2].partition(",")[0])
        rows = ",".join(f'{{"dev_ndcg@10": {value}}}' for value in curves[step / recipe(name).optimiser.step])
        (tmp_path / "curves.json").write_text(f"[{rows}]", encoding="utf-8")
        return {"data": str(tmp_path)}

    monkeypatch.setattr(quality, "train", told)
    choosing = Choosing(
        shards={"path": "left out"}, printed_shards={"path": "of clicked titles"}, clicks={"path": "held out"},
        judges=None, judged=("--qrels", "some"), seed=1, store=tmp_path, threads=1,
    )  # fmt: skip
    chosen, trials = choosing.recipe("lstm-96:max_words=32")
    assert chosen == "lstm-96:max_words=32,optimiser.step=0.004,epochs=2"
    assert [trial["by_epoch"] for trial in trials] == list(curves.values())
    chosen, _ = choosing.recipe("paper-lstm-96")
    assert chosen == "paper-lstm-96:optimiser.step=0.001,epochs=2"
    # Judgments choose nothing of what is as printed.
    assert asked == [("left out", ("--qrels", "some"))] * 3 + [("held out", ())] * 3
    asked.clear()
    for name in ("lstm-96:optimiser.step=0.004", "paper-lstm-96:optimiser.step=0.001"):
        choosing.train(name)
    assert asked == [("left out", ()), ("of clicked titles", ())]
    assert with_settings("dssm", "epochs=2") == "dssm:epochs=2"


def test_a_row_is_its_recipe_with_its_own_n_and_what_the_data_set_needs():
    assert quality.given("lstm-96-n2", "") == "lstm-96:objective.num_negatives=2"
    assert quality.given("paper-lstm-96-n2", "") == "paper-lstm-96-n2"  # a recipe of its own
    assert quality.given("dssm", "max_words=32") == "dssm:max_words=32"


def test_p_is_corrected_for_how_many_differences_there_are():
    rng = np.random.default_rng(0)
    clear = rng.normal(0.1, 0.05, (200, 4))
    alone = differences({"clear": clear})["clear"]
    among = differences({"clear": clear, **{str(n): rng.normal(0, 1, (200, 4)) for n in range(9)}})["clear"]
    assert alone["mean"] == among["mean"]
    assert alone["low"]["ndcg@10"] > 0
    assert among["p"]["ndcg@10"] == pytest.approx(10 * alone["p"]["ndcg@10"], abs=1e-3)
