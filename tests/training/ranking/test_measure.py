import numpy as np
import pyarrow as pa
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from clicktower.schemas.documents import DOCUMENT, Documents, read_documents
from clicktower.schemas.errors import StageError
from clicktower.schemas.judgments import read_qrels, read_queries
from clicktower.training.evaluation.evaluate_stage import EvaluateConfig, examples, warnings
from clicktower.training.model.embedding import TitleEmbeddings
from clicktower.training.ranking.bm25 import TitleBM25
from clicktower.training.ranking.measure import RandomOrder, Rules, judged_collection, judged_qrels, measure
from tests.training.ranking.projection_encoder import ProjectionEncoder

TITLES = {
    "d1": "steel angle bracket",
    "d2": "garden hose 50 ft",
    "d3": "Steel Angle Bracket",  # the same title as d1
    "d4": "angle grinder",
    "d5": "brackets for shelves",
    "d6": "rubber garden hose",
}
QUERIES = {"q1": "angle bracket", "q2": "hose", "q3": "  ", "q4": "grinder", "q5": "spigot", "unjudged": "steel"}
QRELS = {
    "q1": {"d1": 3, "d3": 3, "d4": 1, "d2": 0},
    "q2": {"d2": 2, "d6": 3, "gone": 3},
    "q3": {"d1": 3},
    "q4": {"d1": 0, "d2": 0},
    "q5": {"d6": 1},
    "no text": {"d1": 1},
}


def documents(titles: dict[str, str] = TITLES) -> Documents:
    table = pa.table({"id": list(titles), "title": list(titles.values())}, schema=DOCUMENT)
    return Documents(table=table, num_untitled=0)


def test_what_cannot_be_measured_is_left_out_and_counted():
    collection = judged_collection(documents(), QUERIES, QRELS)
    assert list(collection.qrels) == ["q1", "q2", "q3", "q4", "q5"]
    assert collection.searchable == ["q1", "q2", "q4", "q5"]
    assert collection.counts == {
        "queries": 5, "judgments": 11, "documents": 6, "documents_without_title": 0, "queries_of_one_grade": 3,
        "queries_without_relevant": 1, "queries_without_words": 1, "queries_left_out_without_text": 1,
        "queries_left_out_adult": 0, "queries_left_out_spam": 0, "queries_of_equal_text": 0,
        "queries_left_out_below_min_judged": 0, "judgments_of_unknown_documents": 1, "judgments_of_several_grades": 0,
    }  # fmt: skip
    fewer = judged_collection(documents(), QUERIES, QRELS, min_judged=3)
    assert list(fewer.qrels) == ["q1", "q2"]
    assert fewer.counts["queries_left_out_below_min_judged"] == 3


def test_adult_and_spam_queries_leave_the_judged_set_as_they_leave_a_log():
    queries = QUERIES | {"adult": "free porn", "spam": "www.win.example now"}
    qrels = QRELS | {"adult": {"d1": 3}, "spam": {"d2": 1, "d3": 2}}
    collection = judged_collection(documents(), queries, qrels)
    assert list(collection.qrels) == ["q1", "q2", "q3", "q4", "q5"]
    assert (collection.counts["queries_left_out_adult"], collection.counts["queries_left_out_spam"]) == (1, 1)
    assert "1 judged queries are adult and were left out, as they leave a log" in warnings(collection)
    own = judged_collection(documents(), queries, qrels, adult_terms=("hose",))
    assert list(own.qrels) == ["q1", "q3", "q4", "q5", "adult"]
    with pytest.raises(StageError, match=r"All 1 judged queries are adult or spam.*--adult-list"):
        judged_collection(documents(), {"q": "free porn"}, {"q": {"d1": 1}})


def test_a_blank_query_is_none_of_those_whose_text_is_its_id():
    kept, _ = judged_qrels({"hose": " ", "q": "hose", "": ""}, {"hose": {"d1": 1}, "q": {"d2": 2}, "": {"d3": 1}})
    assert kept == {"hose": {"d1": 1}, "q": {"d2": 2}, "": {"d3": 1}}


_TEXTS = st.sampled_from(["hose", "Hose", " hose ", "hoses", "free porn", "", " ", "drill"])
_JUDGMENTS = st.dictionaries(
    st.integers(0, 7), st.dictionaries(st.sampled_from(["d1", "d2", "d3"]), st.integers(0, 3), min_size=1)
)


@given(st.dictionaries(st.integers(0, 7), _TEXTS), _JUDGMENTS, st.integers(1, 2))
def test_queries_of_equal_text_are_one_with_the_judgments_of_all(texts, judged, min_judged):
    queries, qrels = ({str(key): value for key, value in of.items()} for of in (texts, judged))
    merged, kept = {}, {}
    for query_id, grades in qrels.items():  # a query at a time, a grade at a time
        text = queries.get(query_id)
        if text is None or text == "free porn":
            continue
        same = text.strip().lower() or query_id
        for document_id, grade in grades.items():
            merged.setdefault(same, (query_id, {}))[1].setdefault(document_id, []).append(grade)
    for query_id, of_pair in merged.values():
        if len(of_pair) >= min_judged:
            kept[query_id] = {d: sorted(grades)[(len(grades) - 1) // 2] for d, grades in of_pair.items()}
    relevant = any(grade > 0 for grades in kept.values() for grade in grades.values())
    if not relevant or not any(queries[query_id].strip() for query_id in kept):
        with pytest.raises(StageError):
            judged_qrels(queries, qrels, min_judged=min_judged)
        return
    found, counts = judged_qrels(queries, qrels, min_judged=min_judged)
    assert found == kept
    assert list(found) == list(kept)
    with_text = [query_id for query_id in qrels if query_id in queries]
    assert counts == {
        "queries_left_out_without_text": len(qrels) - len(with_text),
        "queries_left_out_adult": sum(queries[query_id] == "free porn" for query_id in with_text),
        "queries_left_out_spam": 0,
        "queries_of_equal_text": sum(queries[query_id] != "free porn" for query_id in with_text) - len(merged),
        "queries_left_out_below_min_judged": len(merged) - len(kept),
        "judgments_of_several_grades": sum(
            len(set(grades)) > 1 for _, of_pair in merged.values() for grades in of_pair.values()
        ),
    }


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"queries": {"other": "hose"}}, "None of the query ids of the 6 judged"),
        ({"min_judged": 5}, "No query has min_judged = 5 judgments; the most is 4"),
        ({"documents": documents({"other": "hose"})}, "None of the 11 judged documents"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(changed, found):
    given = {"documents": documents(), "queries": QUERIES, "qrels": QRELS} | changed
    with pytest.raises(StageError, match=found):
        judged_collection(given.pop("documents"), given.pop("queries"), given.pop("qrels"), **given)


@pytest.mark.parametrize("name", ["model", "bm25", "random"])
def test_measures_equal_trec_evals_on_the_same_runs(name):
    system = {
        "model": TitleEmbeddings(ProjectionEncoder(), list(TITLES.values())),
        "bm25": TitleBM25(list(TITLES.values())),
        "random": RandomOrder(list(TITLES)),
    }[name]
    collection = judged_collection(documents(), QUERIES, QRELS)
    found = measure(system, collection, Rules(gain="linear", top_k=4))

    def trec(run, measures):
        values = pytrec_eval.RelevanceEvaluator(dict(collection.qrels), set(measures)).evaluate(run)
        return [[values.get(q, {}).get(m.replace(".", "_"), 0.0) for m in measures] for q in collection.qrels]

    expected = np.hstack([
        trec(found.judged, ["ndcg_cut.1", "ndcg_cut.3", "ndcg_cut.10"]),
        trec(found.retrieved, ["recall.4", "recip_rank", "ndcg_cut.10"]),
    ])  # fmt: skip
    np.testing.assert_allclose(found.values_QM, expected, atol=1e-12)
    assert list(found.per_query) == [
        "ndcg@1", "ndcg@3", "ndcg@10", "collection_recall@4", "collection_mrr@4", "collection_ndcg@10",
    ]  # fmt: skip


def test_judged_runs_hold_the_judged_documents_and_collection_runs_the_best_of_all():
    collection = judged_collection(documents(), QUERIES, QRELS)
    found = measure(TitleBM25(list(TITLES.values())), collection, Rules(top_k=10))
    assert set(found.judged["q2"]) == {"d2", "d6"}  # "gone" is not in the collection
    assert found.judged["q3"] == {}  # no word, no result
    assert found.retrieved["q3"] == {}
    assert list(found.retrieved["q2"])[:2] == ["d6", "d2"]  # the shorter title first
    assert list(found.retrieved["q1"])[:2] == ["d3", "d1"]  # one title, one score: descending id
    assert set(found.retrieved["q1"]) == set(TITLES)


def test_documents_of_one_title_have_one_score():
    scores = TitleEmbeddings(ProjectionEncoder(), list(TITLES.values())).scores(["angle bracket", "hose"])
    assert scores.shape == (2, 6)
    assert (scores[:, 0] == scores[:, 2]).all()
    assert np.abs(scores).max() <= 1 + 1e-6


def test_random_order_depends_on_query_document_and_seed_alone():
    all_scores = RandomOrder(list(TITLES), seed=1).scores(list(QUERIES.values()))
    some = RandomOrder(["d4", "d1"], seed=1).scores(["hose"])
    assert some[0].tolist() == [all_scores[1, 3], all_scores[1, 0]]
    assert (RandomOrder(list(TITLES), seed=2).scores(list(QUERIES.values())) != all_scores).mean() > 0.9
    many = RandomOrder([str(i) for i in range(1000)]).scores([str(i) for i in range(100)])
    assert many.mean() == pytest.approx(0.5, abs=0.005)  # standard error 0.29 / sqrt(100,000) = 0.0009
    assert many.min() >= 0
    assert many.max() < 1


def test_an_embedding_that_is_not_finite_is_an_error():
    class Diverged(ProjectionEncoder):
        def encode(self, texts, side):
            return super().encode(texts, side) * np.float32(np.nan)

    with pytest.raises(StageError, match="not finite"):
        TitleEmbeddings(Diverged(), ["hose"])


def test_examples_say_why_they_are_shown_and_carry_grades():
    collection = judged_collection(documents(), QUERIES, QRELS)
    systems = {
        "model": measure(TitleEmbeddings(ProjectionEncoder(), list(TITLES.values())), collection, Rules(top_k=10)),
        "bm25": measure(TitleBM25(list(TITLES.values())), collection, Rules(top_k=10)),
    }
    shown = examples(collection, systems, EvaluateConfig())
    by_id = {example["query_id"]: example for example in shown}
    assert set(by_id) == {"q1", "q2", "q4", "q5"}  # all there are, each once
    assert by_id["q5"]["why"] in ("no shared word", "gain", "loss")
    for example in shown:
        ours, theirs = (example["measures"][name]["collection_ndcg@10"] for name in ("model", "bm25"))
        assert {"gain": ours > theirs, "loss": ours < theirs}.get(example["why"], True)
        for name in ("model", "bm25"):
            ranking = example["rankings"][name]
            assert [result["rank"] for result in ranking] == [1, 2, 3, 4, 5, 6]
            for result in ranking:
                assert result["title"] == TITLES[result["id"]]
                assert result["grade"] == QRELS[example["query_id"]].get(result["id"])


@pytest.mark.slow
def test_bm25_and_random_order_on_the_real_judgments(real_data):
    folder = real_data / "homedepot"
    found = read_documents(str(folder / "documents.tsv"))
    queries, qrels = read_queries(str(folder / "queries.dev.tsv")), read_qrels(str(folder / "qrels.dev.txt"))
    collection = judged_collection(found, queries, qrels, min_judged=5)
    assert collection.counts["queries"] == 1229
    # By white space, and as a shop runs it; the latter by Lucene's own tokens and SciPy (benchmarks/analysers.py).
    white_space = TitleBM25(found.titles, None, k1=1.2, b=0.75)
    for system, expected in ((white_space, [0.664, 0.698, 0.851]), (TitleBM25(found.titles), [0.668, 0.709, 0.856])):
        bm25 = measure(system, collection).per_query
        assert [round(bm25[f"ndcg@{k}"].mean(), 3) for k in (1, 3, 10)] == expected
    floor = measure(RandomOrder(found.ids), collection).per_query
    # One random order; its means move by about 0.01, 0.006 and 0.004 from one to the next.
    assert [floor[f"ndcg@{k}"].mean() for k in (1, 3, 10)] == pytest.approx([0.622, 0.663, 0.835], abs=0.012)
