import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from clicktower.schemas.errors import UsageError
from clicktower.schemas.judgments import read_qrels
from clicktower.training.evaluation.compare_stage import UnfinishedComparison, compare
from clicktower.training.evaluation.compare_table import orders
from clicktower.training.evaluation.evaluate_stage import EvaluateConfig
from clicktower.training.evaluation.row import Row
from clicktower.training.evaluation.rows import all_rows, select_rows
from clicktower.training.model.recipe import Compute, Recipe
from clicktower.training.ranking.ndcg import holm, ndcg
from tests.recipes import varied
from tests.training.evaluation.judged_shop import judged_shop
from tests.training.trainings import train

CONFIG = EvaluateConfig(num_resamples=200, top_k=10, num_examples=4)
NAMES = ["random", "ulm", "bm25", "dssm", "lstm-32"]


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> dict:
    shards, files = judged_shop(tmp_path_factory.mktemp("shop"))
    return {"shards": shards, "files": files}


def small(recipe: Recipe) -> Recipe:
    return varied(
        recipe,
        cells=16,
        **({"hidden": 16} if hasattr(recipe.tower, "hidden") else {}),
        epochs=1,
        minibatch=32,
        micro_batch=32,
    )


@cache
def small_rows() -> list[Row]:
    """All rows, with towers of a test's size under the names of the paper's."""
    return _small(all_rows())


def rows(names=NAMES, **given) -> list[Row]:
    return select_rows(_small(all_rows(**given)) if given else small_rows(), names)


def _small(rows: list[Row]) -> list[Row]:
    return [replace(row, recipe=small(row.recipe)) if row.recipe else row for row in rows]


def train_here(inputs: dict, store: str, row: Row, **changes) -> None:
    """Train a row's tower in this process, so that a comparison finds it and starts none."""
    train(inputs["shards"], store=store, recipe=varied(row.recipe, **changes), threads=1)


@pytest.fixture(scope="module")
def compared(inputs, tmp_path_factory):
    """(store, result, what was told of each row): one tower was trained before, the other is by the comparison."""
    store = str(tmp_path_factory.mktemp("compared"))
    [dssm] = rows(["dssm"])
    train_here(inputs, store, dssm)
    ended = []
    result = compare(rows(), **inputs, store=store, config=CONFIG, compute=Compute(threads=1), render=str,
                     row_ended=lambda one, done, total: ended.append((one.row.name, done, total)))  # fmt: skip
    assert len(list(Path(store, "train").iterdir())) == 2, "what is in the store counts"
    return store, result, ended


@pytest.mark.slow
def test_the_printed_baselines_are_rows_beside_ours_and_their_settings_are_in_the_request(inputs, tmp_path):
    pytest.importorskip("gensim")
    names = ["bm25", "doc2vec", "doc2vec-printed", "plsa", "plsa-printed"]

    def made(prior: float) -> dict[str, dict]:
        chosen_rows = rows(names, topics=4, word_prior=prior)
        result = compare(chosen_rows, **inputs, store=str(tmp_path), config=CONFIG)
        return {row["name"]: row for row in result.manifest.outcome.metrics["rows"]}

    first, other = made(0.01), made(0.0)
    assert len({first[name]["digest"] for name in names}) == len(names)
    assert {name for name in names if first[name]["digest"] != other[name]["digest"]} == {"plsa-printed"}
    assert {name for name in names if not other[name]["reused"]} == {"plsa-printed"}
    assert first["plsa-printed"]["paper_to_bm25"] == first["plsa"]["paper_to_bm25"]


def test_the_order_of_rows_is_compared_with_the_papers_as_scipy_does_it():
    rng = np.random.default_rng(3)
    printed = select_rows(
        small_rows(), ["ulm-printed", "bm25-printed", "paper-dssm", "paper-lstm-32", "paper-bilstm-96"]
    )
    skill = [0.2, 0.1, 0.3, 0.5, 0.4]  # of each row: the paper's order but for two pairs
    values = {m: rng.normal(skill, 1.0, (60, 5)) for m in ("ndcg@1", "ndcg@3", "ndcg@10")}
    per_query = {row.name: {m: of[:, at] for m, of in values.items()} for at, row in enumerate(printed)}
    config = EvaluateConfig(num_resamples=400, seed=4)
    found = orders(printed, per_query, config)
    assert list(found) == ["as printed"]
    assert found["as printed"]["rows"] == [row.name for row in printed]
    draws = np.random.default_rng(4).integers(60, size=(400, 60))
    for at, (measure, of) in enumerate(values.items()):
        papers = [row.paper[at] for row in printed]
        of_draws = [stats.kendalltau(of[draw].mean(axis=0), papers).statistic for draw in draws]
        ends = np.quantile(of_draws, [0.025, 0.975])
        output = found["as printed"][measure]
        assert output["tau"] == pytest.approx(stats.kendalltau(of.mean(axis=0), papers).statistic)
        assert [output["low"], output["high"]] == pytest.approx(list(ends))
        assert output["low"] < output["high"]
    assert orders(printed[:2], per_query, config) == {}


@pytest.mark.slow
def test_every_row_is_there_in_the_papers_order_with_its_figures_beside_the_papers(compared):
    _, result, ended = compared
    metrics = result.manifest.outcome.metrics
    assert [row["name"] for row in metrics["rows"]] == NAMES
    assert len({row["digest"] for row in metrics["rows"]}) == len(NAMES), "each row is measured on its own"
    assert all(row["state"] == "done" for row in metrics["rows"])
    assert ended == [(name, at, len(NAMES)) for at, name in enumerate(NAMES, 1)]
    by_name = {row["name"]: row for row in metrics["rows"]}
    assert by_name["dssm"]["paper"] == {"ndcg@1": 31.0, "ndcg@3": 34.4, "ndcg@10": 41.7}
    assert by_name["dssm"]["paper_to_bm25"] == {"ndcg@1": 0.5, "ndcg@3": 1.6, "ndcg@10": 2.9}  # 31.0 - 30.5, ...
    assert by_name["random"]["paper"] is None
    assert by_name["lstm-32"]["dimensions"] == 16
    assert by_name["lstm-32"]["train_seconds"] > 0
    assert by_name["bm25"]["train_seconds"] is None
    assert by_name["bm25"]["to_against"] is None
    page = Path(result.data, "compare.md").read_text()
    assert "BM25" in page


@pytest.mark.slow
def test_the_means_are_those_of_the_run_files_and_the_tests_are_corrected_over_the_rows(compared, inputs):
    store, result, _ = compared
    qrels = read_qrels(inputs["files"].qrels)
    metrics = result.manifest.outcome.metrics
    values = {}
    for row in metrics["rows"]:
        (folder,) = Path(store, "measure", row["digest"]).glob("attempt-*")
        values[row["name"]] = {}
        run = {}
        for line in Path(folder, "judged.run").read_text().splitlines():
            query_id, _, document_id, _, score, _ = line.split()
            run.setdefault(query_id, {})[document_id] = float(score)
        expected = {k: values.mean() for k, values in ndcg(qrels, run).items()}
        for cutoff in (1, 3, 10):
            assert row["values"][f"ndcg@{cutoff}"]["mean"] == pytest.approx(expected[cutoff], abs=1e-12)
            values[row["name"]][cutoff] = expected[cutoff]
    others = [row for row in metrics["rows"] if row["name"] != "bm25"]
    for cutoff in (1, 3, 10):
        at = [row["to_against"][f"ndcg@{cutoff}"] for row in others]
        assert [one["p_holm"] for one in at] == pytest.approx(holm([one["p"] for one in at]))
        for row, one in zip(others, at, strict=True):
            assert one["mean"] == pytest.approx(values[row["name"]][cutoff] - values["bm25"][cutoff], abs=1e-12)


@pytest.mark.slow
def test_the_difference_shows_the_best_row_beside_the_chosen_one_with_grades(compared, inputs):
    _, result, _ = compared
    metrics = result.manifest.outcome.metrics
    best = max((r for r in metrics["rows"] if r["name"] != "bm25"), key=lambda r: r["values"]["ndcg@10"]["mean"])
    difference = metrics["difference"]
    assert (difference["of"], difference["to"], difference["measure"]) == (best["name"], "bm25", "ndcg@10")
    qrels = read_qrels(inputs["files"].qrels)
    assert difference["queries"]
    for query in difference["queries"]:
        assert (query["of"] > query["to"]) == (query["why"] == "gain")
        for ranking in query["rankings"].values():
            assert [one["rank"] for one in ranking] == list(range(1, len(ranking) + 1))
            assert all(one["grade"] == qrels[query["query_id"]][one["id"]] for one in ranking)


@pytest.mark.slow
def test_slices_hold_each_query_once_but_those_of_unknown_frequency(compared):
    _, result, _ = compared
    metrics = result.manifest.outcome.metrics
    for name, parts in metrics["slices"].items():
        of_row = metrics["rows"][0]["slices"][name]
        assert set(of_row) <= set(parts)
        counted = sum(part["n"] for part in of_row.values())
        assert counted <= metrics["n"] if name == "frequency" else counted == metrics["n"]


@pytest.mark.slow
def test_the_same_comparison_is_reused_and_another_reuses_its_rows(compared, inputs):
    store, result, _ = compared
    again = compare(rows(), **inputs, store=store, config=CONFIG, compute=Compute(threads=1))
    assert again.reused
    assert again.manifest.digest == result.manifest.digest
    against = compare(rows(["random", "bm25", "dssm"]), **inputs, store=store, config=CONFIG, against="random",
                      compute=Compute(threads=1))  # fmt: skip
    assert not against.reused
    assert all(row["reused"] for row in against.manifest.outcome.metrics["rows"])
    values = {row["name"]: row["values"] for row in result.manifest.outcome.metrics["rows"]}
    for row in against.manifest.outcome.metrics["rows"]:
        assert {m: v["mean"] for m, v in row["values"].items()} == {
            m: v["mean"] for m, v in values[row["name"]].items()
        }


@pytest.mark.slow
def test_a_finished_row_needs_its_model_no_more(inputs, compared, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(compared[0], store)
    shutil.rmtree(store / "train")
    compare(rows(["ulm", "bm25", "dssm"]), **inputs, store=str(store), config=CONFIG, compute=Compute(threads=1))
    assert not (store / "train").exists()


@pytest.mark.slow
def test_a_row_that_fails_stops_no_other_and_is_tried_again(inputs, compared, tmp_path):
    store, _, _ = compared
    run = tmp_path / "mine.run"
    run.write_text("q0 Q0 d0 1 nan mine\n")
    asked = rows(["bm25", "mine", "random"], runs={"mine": str(run)})
    with pytest.raises(UnfinishedComparison, match="1 of 3 rows failed:") as caught:
        compare(asked, **inputs, store=store, config=CONFIG)
    states = {row["name"]: row["state"] for row in caught.value.comparison["rows"]}
    assert states == {"random": "done", "bm25": "done", "mine": "failed"}
    run.write_text("q0 Q0 d0 1 0.5 mine\n")
    result = compare(asked, **inputs, store=store, config=CONFIG)
    row = next(row for row in result.manifest.outcome.metrics["rows"] if row["name"] == "mine")
    assert row["state"] == "done"
    assert row["family"] == "run"


@pytest.mark.slow
def test_several_seeds_make_a_row_of_their_mean(inputs, compared):
    store, result, _ = compared
    train_here(inputs, store, rows(["dssm"])[0], seed=2)
    two = compare(
        rows(["bm25", "dssm"]), **inputs, store=store, config=CONFIG, seeds=[1, 2], compute=Compute(threads=1)
    )
    row = two.manifest.outcome.metrics["rows"][1]
    manifest = json.loads(Path(store, "measure", row["digest"], "manifest.json").read_text())
    by_seed = [one["ndcg@10"] for one in manifest["outcome"]["metrics"]["by_seed"]]
    assert len(by_seed) == 2
    assert row["values"]["ndcg@10"]["mean"] == pytest.approx(np.mean(by_seed))
    first = next(row for row in result.manifest.outcome.metrics["rows"] if row["name"] == "dssm")
    assert by_seed[0] == pytest.approx(first["values"]["ndcg@10"]["mean"])


@pytest.mark.slow
def test_a_row_says_in_how_many_updates_its_gradients_were_scaled_down(inputs, tmp_path):
    store = str(tmp_path)
    asked = rows(["bm25", "paper-lstm-32"])
    [of_model] = asked[1:]
    trained = train(inputs["shards"], store=store, recipe=of_model.recipe, threads=1)
    steps = [json.loads(line) for line in Path(trained.data, "steps.jsonl").read_text().splitlines()]
    most = of_model.recipe.optimiser.clip_norm
    scaled = [max(step["gradient_norm_query"], step["gradient_norm_document"]) > most for step in steps]
    result = compare(asked, **inputs, store=store, config=CONFIG, compute=Compute(threads=1))
    bm25, tower = result.manifest.outcome.metrics["rows"]
    assert bm25["notes"] == []
    share = f"{np.mean(scaled):.0%}"
    assert tower["notes"] == [f"gradients above th_G = 5 were scaled down to it in {share} of the updates"]


@pytest.mark.slow
def test_the_hybrid_is_made_from_the_best_tower_with_weights_of_the_other_half(inputs, compared):
    store, _, _ = compared
    result = compare(rows(["bm25", "dssm", "lstm-32", "hybrid"]), **inputs, store=store, config=CONFIG,
                     compute=Compute(threads=1))  # fmt: skip
    found = {row["name"]: row for row in result.manifest.outcome.metrics["rows"]}
    best = max(("dssm", "lstm-32"), key=lambda name: found[name]["values"]["ndcg@10"]["mean"])
    assert found["hybrid"]["made_from"] == [best, "bm25"]
    assert "each chosen on the other half" in found["hybrid"]["notes"][0]
    alone = compare(rows(["bm25", "hybrid"]), **inputs, store=store, config=CONFIG)
    assert [row["state"] for row in alone.manifest.outcome.metrics["rows"]] == ["done", "empty"]


class LongestTitles:
    """A baseline that is no part of the package: the longer a title, the better, whatever is asked."""

    parameters = 0

    def __init__(self, titles) -> None:
        self._lengths_N = np.array([len(title) for title in titles], np.float32)

    def scores(self, queries) -> np.ndarray:
        return np.tile(self._lengths_N, (len(queries), 1))


@pytest.mark.slow
def test_a_baseline_is_a_class_and_a_row(inputs, compared):
    store, _, _ = compared
    longest = Row(name="longest", title="the longest titles", family="lexical",
                  make=lambda given, _: LongestTitles(given.documents.titles))  # fmt: skip
    result = compare([*rows(["bm25"]), longest], **inputs, store=store, config=CONFIG)
    _, row = result.manifest.outcome.metrics["rows"]
    assert (row["name"], row["state"], row["parameters"], row["paper_to_bm25"]) == ("longest", "done", 0, None)
    assert 0 < row["values"]["ndcg@10"]["mean"] < 1
    assert row["to_against"]["ndcg@10"]["p"] <= 1


@pytest.mark.slow
def test_without_a_run_skip_thought_is_a_row_that_says_why_it_is_empty(inputs, compared):
    store, _, _ = compared
    result = compare(rows(["bm25", "skip-thought"]), **inputs, store=store, config=CONFIG)
    row = result.manifest.outcome.metrics["rows"][0]
    assert (row["name"], row["state"], row["values"]) == ("skip-thought", "empty", {})
    assert "--run skip-thought=FILE" in row["why"]


@pytest.mark.slow
def test_what_is_printed_and_what_is_tuned_are_rows_of_their_own(inputs, compared):
    tables = {row.name: row.table for row in all_rows()}
    printed = [name for name, table in tables.items() if table == "as printed"]
    assert printed == [name for name in tables if "paper-" in name or "-printed" in name]
    assert len(printed) == sum(table == "tuned" for table in tables.values()) == 16
    asked = rows(["bm25", "paper-lstm-96-n8"])
    assert asked[1].recipe.clicks.num_negatives == 8
    result = compare(asked, **inputs, store=compared[0], config=CONFIG)
    row = result.manifest.outcome.metrics["rows"][1]
    assert (row["title"], row["table"], row["state"]) == ("LSTM, 96 cells, n = 8, as printed", "as printed", "empty")
    assert "build --set num_negatives=8" in row["why"], "the shop's shards hold four"


@pytest.mark.parametrize("what", [{"tie_towers": True}, {"cells": 24}, {"num_negatives": 3}, {"window": 7}])
def test_a_row_that_is_set_to_be_another_does_not_stand_beside_the_papers(what):
    """As printed it is empty, as nothing is printed of it; tuned it stands for itself."""

    def change(recipe: Recipe) -> Recipe:
        return varied(recipe, **what) if hasattr(recipe.tower, "window") or "window" not in what else recipe

    before = {row.name: row for row in all_rows()}
    others = [row for row in all_rows(change=change) if row.recipe != before[row.name].recipe]
    printed = [row for row in others if row.table == "as printed"]
    assert {bool(row.needs) for row in printed} == {True}
    assert not any(row.paper or row.table for row in others if row not in printed)


def test_what_the_paper_leaves_open_may_be_set():
    before = all_rows()
    for row, was in zip(all_rows(change=lambda recipe: varied(recipe, epochs=2, step=0.01)), before, strict=True):
        assert (row.title, row.paper, row.needs) == (was.title, was.paper, was.needs)


@pytest.mark.parametrize(
    ("names", "changes", "said"),
    [
        (["lstm"], {}, "no row named lstm"),
        (["dssm"], {}, "is no row bm25 to test the others against."),
        (["bm25"], {"config": replace(CONFIG, cutoffs=(5,))}, "at 1, 3 and 10"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_is_trained(inputs, tmp_path, names, changes, said):
    with pytest.raises(UsageError, match=said):
        compare(rows(names), **inputs, store=str(tmp_path), **{"config": CONFIG, **changes})
    assert not list(tmp_path.iterdir())


def test_the_number_of_topics_is_part_of_the_row():
    plsa = next(row for row in all_rows(topics=100) if row.name == "plsa")
    assert (plsa.title, plsa.settings) == ("PLSA, 100 topics", {"topics": 100})
    with pytest.raises(UsageError, match="at least 1"):
        all_rows(topics=0)


def test_a_name_that_is_taken_is_refused():
    with pytest.raises(UsageError, match="a row named bm25 already"):
        all_rows(runs={"bm25": "x"})
