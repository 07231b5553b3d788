import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval

from clicktower.schemas import storage
from clicktower.schemas.documents import read_documents
from clicktower.schemas.errors import StageError, UsageError
from clicktower.schemas.judgments import Judged, read_qrels, read_queries, read_run
from clicktower.schemas.section import changed
from clicktower.schemas.stage import StageResult, open_result, silent
from clicktower.training.evaluation.evaluate_stage import EvaluateConfig, evaluate
from clicktower.training.evaluation.measured_row import evaluate_model
from clicktower.training.evaluation.row import ComparisonInputs, Row
from clicktower.training.model.embedding import TitleEmbeddings
from clicktower.training.model.model import load_model
from clicktower.training.model.recipe import recipe
from clicktower.training.ranking.measure import collection_of, judged_collection, measure
from clicktower.training.ranking.title_ranking import TitleRanking
from clicktower.training.trainer.launch import fingerprints
from tests.recipes import varied
from tests.rounding import rounded
from tests.trained_model import trained_stage

CONFIG = EvaluateConfig(num_resamples=200, top_k=10)
WORDS = ["steel", "angle", "bracket", "hose", "garden", "grinder", "shelf", "pipe", "copper", "nail", "2x4", "ørn"]


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, str]:
    """60 documents, 20 queries and 8 judgments each, from a seed."""
    folder = tmp_path_factory.mktemp("judged")
    rng = np.random.default_rng(0)
    titles = [" ".join(rng.choice(WORDS, 3)) for _ in range(60)]
    (folder / "documents.tsv").write_text("".join(f"d{i}\t{title}\n" for i, title in enumerate(titles)))
    pairs = rng.choice(len(WORDS) ** 2, 20, replace=False)  # no text twice
    queries = [f"{WORDS[pair // len(WORDS)]} {WORDS[pair % len(WORDS)]}" for pair in pairs]
    (folder / "queries.tsv").write_text("".join(f"q{i}\t{text}\n" for i, text in enumerate(queries)))
    lines = [f"q{q} 0 d{d} {rng.integers(0, 4)}\n" for q in range(20) for d in rng.permutation(60)[:8]]
    (folder / "qrels.txt").write_text("".join(lines))
    return {name: str(folder / f"{name}.{end}") for name, end in
            (("documents", "tsv"), ("queries", "tsv"), ("qrels", "txt"))}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return trained_stage(str(tmp_path_factory.mktemp("store")), labels={"simulated": True})


@pytest.fixture(scope="module")
def evaluated(files, model, tmp_path_factory):
    return evaluate(model, **files, store=str(tmp_path_factory.mktemp("evaluated")), config=CONFIG)


def test_the_table_is_what_trec_eval_says_of_the_run_files(evaluated, files):
    qrels = read_qrels(files["qrels"])
    as_gains = {q: {d: 2**grade - 1 for d, grade in grades.items()} for q, grades in qrels.items()}
    metrics = evaluated.manifest.outcome.metrics
    assert metrics["n"] == 20
    for system in ("model", "bm25", "random"):
        for suffix, measures in (("run", {"ndcg@1": "ndcg_cut.1", "ndcg@3": "ndcg_cut.3", "ndcg@10": "ndcg_cut.10"}),
                                 ("collection.run", {"collection_ndcg@10": "ndcg_cut.10",
                                                     "collection_mrr@10": "recip_rank",
                                                     "collection_recall@10": "recall.10"})):  # fmt: skip
            run = read_run(f"{evaluated.data}/runs/{system}.{suffix}")
            values = pytrec_eval.RelevanceEvaluator(as_gains, set(measures.values())).evaluate(run)
            for name, trec_name in measures.items():
                expected = np.mean([values[q][trec_name.replace(".", "_")] for q in qrels])
                assert metrics["systems"][system][name]["mean"] == pytest.approx(expected, abs=1e-9)


def test_a_second_model_stands_beside_the_baselines_that_the_store_has_and_other_judgments_make_them_anew(
    files, model, tmp_path
):
    other, store = trained_stage(str(tmp_path / "models"), seed=2), str(tmp_path / "store")
    titles = Path(files["documents"]).read_text() + "".join(f"d with space {word}\t{word}\n" for word in WORDS)
    (tmp_path / "documents.tsv").write_text(titles)
    files = files | {"documents": str(tmp_path / "documents.tsv")}
    evaluate(model, **files, store=store, config=CONFIG)

    def evaluated_in(store: str, **others: str) -> tuple[StageResult, set[str]]:
        told = set[str]()
        result = evaluate(
            other, **files | others, store=store, config=replace(CONFIG, num_examples=5),
            progress=lambda what, *_: told.add(what),
        )  # fmt: skip
        return result, told & {"rank with bm25", "rank with random"}

    (beside, ranked), (alone, _) = evaluated_in(store), evaluated_in(str(tmp_path / "another"))
    assert not ranked
    names = list(storage.list_files(alone.data))
    assert len(names) == 9
    for name in names:
        assert storage.read_bytes(f"{beside.data}/{name}") == storage.read_bytes(f"{alone.data}/{name}"), name
    fewer = tmp_path / "qrels.txt"
    fewer.write_text("".join(Path(files["qrels"]).read_text().splitlines(keepends=True)[8:]))
    assert evaluated_in(store, qrels=str(fewer))[1] == {"rank with bm25", "rank with random"}


@pytest.mark.slow
def test_a_list_of_adult_words_of_ones_own_decides_and_names_the_result(files, model, evaluated, tmp_path):
    (tmp_path / "own.txt").write_text("steel\n")
    own = {"adult_list": str(tmp_path / "own.txt"), "store": str(tmp_path)}
    found = evaluate(model, **files, **own, config=CONFIG)
    adult = sum("steel" in text for text in read_queries(files["queries"]).values())
    assert 0 < adult < 20
    assert found.manifest.outcome.counts["queries_left_out_adult"] == adult
    assert found.manifest.outcome.metrics["n"] == 20 - adult
    assert found.manifest.digest != evaluated.manifest.digest
    assert "adult_list" not in evaluated.manifest.request.inputs
    judged = replace(Judged(**files), adult_list=own["adult_list"])
    assert list(collection_of(judged).qrels) == json.loads(Path(found.data, "per_query.json").read_text())["query_ids"]
    assert list(fingerprints(Judged(**files))) == ["documents", "queries", "qrels"]


def test_words_and_terms_with_a_share_of_a_score_count_in_an_evaluation_and_in_a_comparison(files, tmp_path):
    words = trained_stage(str(tmp_path), recipe=varied(recipe("lstm-96"), cells=8, word_share=0.4, lexical_share=0.2))
    found = evaluate(words, **files, store=str(tmp_path), config=CONFIG)
    documents, encoder = read_documents(files["documents"]), load_model(open_result(words).data)
    collection = judged_collection(documents, read_queries(files["queries"]), read_qrels(files["qrels"]))
    expected = measure(TitleRanking(encoder, documents.titles, "english"), collection, CONFIG.rules)
    run = read_run(f"{found.data}/runs/model.run")
    assert all(run[query] == rounded(scores) for query, scores in expected.judged.items())
    inputs = ComparisonInputs(
        documents=documents, collection=collection, training_queries=(), training_titles=(), config=CONFIG
    )
    row = Row(name="words", title="words", family="model", source=words)
    assert evaluate_model(row, open_result(words), inputs, silent).measured.judged == expected.judged
    cosines = measure(TitleEmbeddings(encoder, documents.titles), collection, CONFIG.rules)
    assert cosines.judged != expected.judged
    alone = read_run(f"{found.data}/runs/vectors.run")
    assert all(alone[query] == rounded(scores) for query, scores in cosines.judged.items())


def test_rows_that_are_no_documents_are_named_and_ids_with_spaces_keep_runs_whole(files, model, tmp_path):
    titles = dict(line.split("\t") for line in Path(files["documents"]).read_text().splitlines())
    rows = [{"id": document_id, "title": title} for document_id, title in titles.items()]
    rows[5:5] = [{"id": None, "title": "steel"}, {"id": "x\nq0 Q0 d1 1 99 y", "title": "steel"}]
    rows.append({"id": "AB 12", "title": "steel angle bracket hose"})
    (tmp_path / "documents.jsonl").write_text("\n".join(map(json.dumps, rows)))
    changed_files = files | {"documents": str(tmp_path / "documents.jsonl")}
    outcome = (found := evaluate(model, **changed_files, store=str(tmp_path), config=CONFIG)).manifest.outcome
    assert (outcome.counts["documents"], outcome.counts["documents_skipped"]) == (61, 2)
    assert sum("skipped: documents.jsonl:" in warning for warning in outcome.metrics["warnings"]) == 2
    run = read_run(f"{found.data}/runs/bm25.collection.run")
    assert {document for scores in run.values() for document in scores} <= {*titles, "AB%2012"}
    assert any("AB%2012" in scores for scores in run.values())


def test_judgments_from_clicks_are_labelled_in_whatever_is_measured_with_them(evaluated, files, model, tmp_path):
    renamed = dict(files)
    for name in ("queries", "qrels"):
        lines = Path(files[name]).read_text().splitlines(keepends=True)
        (tmp_path / name).write_text("".join(f"click-derived-{line}" for line in lines))
        renamed[name] = str(tmp_path / name)
    by_clicks = evaluate(model, **renamed, store=str(tmp_path / "store"), config=CONFIG).manifest.outcome
    by_judges = evaluated.manifest.outcome
    assert by_clicks.labels == {"simulated": True, "judgments": "click-derived"}
    assert by_judges.labels == {"simulated": True}
    assert any("derived from clicks" in warning for warning in by_clicks.metrics["warnings"])
    assert not any("clicks" in warning for warning in by_judges.metrics["warnings"])


def test_metrics_state_their_rules_intervals_and_the_paired_difference(evaluated):
    metrics = evaluated.manifest.outcome.metrics
    for system in metrics["systems"].values():
        for interval in system.values():
            assert interval["low"] <= interval["mean"] <= interval["high"]
    difference = metrics["difference"]
    assert (difference["of"], difference["to"]) == ("model", "bm25")
    for name, against in difference["measures"].items():
        means = [metrics["systems"][system][name]["mean"] for system in ("model", "bm25")]
        assert against["mean"] == pytest.approx(means[0] - means[1])
        assert 0 < against["p"] <= against["p_holm"] <= 1
    assert metrics["gain"] == "exponential"
    assert {"ties", "unjudged", "no_results", "no_relevant"} <= set(metrics["rules"])
    for name in metrics["run_files"].values():
        assert read_run(f"{evaluated.data}/{name}")


def test_examples_and_per_query_values_are_written_and_labels_inherited(evaluated):
    shown = json.loads(Path(evaluated.data, "examples.json").read_text())
    assert len(shown) == 10
    assert evaluated.manifest.outcome.metrics["example_queries"] == [example["query"] for example in shown]
    per_query = json.loads(Path(evaluated.data, "per_query.json").read_text())
    table = json.loads(Path(evaluated.data, "table.json").read_text())
    assert np.mean(per_query["systems"]["bm25"]["ndcg@3"]) == pytest.approx(table["systems"]["bm25"]["ndcg@3"]["mean"])
    assert evaluated.manifest.outcome.labels == {"simulated": True}


def test_the_same_request_is_reused_and_a_changed_one_is_not(files, model, tmp_path):
    first = evaluate(model, **files, store=str(tmp_path), config=CONFIG)
    assert evaluate(model, **files, store=str(tmp_path), config=CONFIG).reused
    linear = evaluate(model, **files, store=str(tmp_path), config=replace(CONFIG, gain="linear"))
    assert not linear.reused
    assert linear.folder != first.folder
    Path(first.data, "table.json").write_text("{}")
    again = evaluate(model, **files, store=str(tmp_path), config=CONFIG)
    assert not again.reused
    assert "table.json" in again.repaired[0]
    assert again.manifest.outcome == first.manifest.outcome


@pytest.mark.parametrize("missing", ["documents", "queries", "qrels"])
def test_a_missing_file_is_wrong_usage(files, model, tmp_path, missing):
    with pytest.raises(UsageError, match="no such file"):
        evaluate(model, **files | {missing: "nowhere.tsv"}, store=str(tmp_path), config=CONFIG)
    assert not list(tmp_path.iterdir())


def test_qrels_of_another_collection_leave_no_output(files, model, tmp_path):
    other = tmp_path / "qrels.txt"
    other.write_text("q1 0 unheard-of 2\n")
    with pytest.raises(StageError, match="None of the 1 judged documents is among the"):
        evaluate(model, **files | {"qrels": str(other)}, store=str(tmp_path / "store"), config=CONFIG)
    assert not list(tmp_path.glob("store/**/*.json"))


@pytest.mark.parametrize(
    "change", [{"cutoffs": (0,)}, {"gain": "odd"}, {"top_k": 5}, {"confidence": 1.0}, {"min_judged": 0}]
)
def test_a_config_that_means_nothing_is_refused(change):
    with pytest.raises(UsageError, match="it must be"):
        changed(CONFIG, change)


def test_ids_with_white_space_stay_in_one_field_of_the_runs(model, tmp_path):
    titles = {"d 1": "steel angle", "d1 Q0 d2 1 9.0 t": "steel pipe", "d3": "garden hose"}
    (tmp_path / "documents.jsonl").write_text(
        "".join(json.dumps({"id": id, "title": title}) + "\n" for id, title in titles.items())
    )
    ratings = [{"docId": id, "rating": grade} for grade, id in enumerate(titles)]
    judged = {"name": "r", "judgmentRatings": [{"query": "steel angle", "ratings": ratings}]}
    (tmp_path / "judged.json").write_text(json.dumps(judged))
    files = {
        "documents": f"{tmp_path}/documents.jsonl",
        **dict.fromkeys(("queries", "qrels"), f"{tmp_path}/judged.json"),
    }
    found = evaluate(model, **files, store=str(tmp_path), config=CONFIG)
    assert found.manifest.outcome.counts["judgments_of_unknown_documents"] == 0
    for name in found.manifest.outcome.metrics["run_files"].values():
        (results,) = read_run(f"{found.data}/{name}").values()
        assert set(results) == {"d%201", "d1%20Q0%20d2%201%209.0%20t", "d3"}
