"""Everything `measure` says of a system, against trec_eval on the whole run: nothing of ours is between the two."""

import numpy as np
import pyarrow as pa
import pytest
import pytrec_eval

from clicktower.schemas.documents import DOCUMENT, Documents
from clicktower.training.ranking.measure import Rules, judged_collection, measure

NUM_QUERIES, K = 10_000, 15
# As strings d10 comes before d2 and 1 before 10; code points and UTF-8 bytes order the last ones as UTF-16 does not.
IDS = [f"{prefix}{i}" for i in (1, 2, 9, 10, 11, 20, 100) for prefix in ("d", "D-", "", "é", "中", "😀", "ﬀ")]


class Drawn:
    """A system whose scores are a table: row i for the query "query i"."""

    def __init__(self, scores_QN: np.ndarray) -> None:
        self._scores_QN = scores_QN

    def scores(self, queries: list[str]) -> np.ndarray:
        return self._scores_QN[[int(query.split()[1]) for query in queries]].astype(np.float32)


@pytest.fixture(scope="module")
def drawn() -> tuple[dict, dict, np.ndarray]:
    """(queries, qrels, scores float64) full of ties: few levels, some a hair apart, negative grades, unknown documents,
    queries without a word and queries without a relevant document."""
    rng = np.random.default_rng(11)
    levels = rng.integers(1, 7, NUM_QUERIES)[:, None]
    scores_QN = rng.integers(0, levels, (NUM_QUERIES, len(IDS))) / 3 - 1
    scores_QN += rng.choice([0, 1e-9, 1e-8, 1e-5], scores_QN.shape)
    known = [*IDS, "gone", "d3"]
    queries, qrels = {}, {}
    for number in range(NUM_QUERIES):
        judged = rng.permutation(len(known))[: rng.integers(1, 25)]
        highest = 1 if number % 13 == 0 else 4
        grades = rng.integers(-1 if number % 5 == 0 else 0, highest, len(judged))  # trec_eval crashes below -1
        queries[f"q{number}"] = f"query {number}" if number % 17 else " "
        qrels[f"q{number}"] = {known[d]: g for d, g in zip(judged.tolist(), grades.tolist(), strict=True)}
    return queries, qrels, scores_QN


def test_every_measure_equals_trec_evals_on_10_000_tie_heavy_queries(drawn):
    queries, qrels, scores_QN = drawn
    table = pa.table({"id": IDS, "title": IDS}, schema=DOCUMENT)
    collection = judged_collection(Documents(table=table, num_untitled=0), queries, qrels)
    found = measure(Drawn(scores_QN), collection, Rules(gain="linear", top_k=K)).per_query

    whole = {
        query_id: dict(zip(IDS, scores.tolist(), strict=True))
        for (query_id, text), scores in zip(queries.items(), scores_QN, strict=True)
        if text.strip()
    }
    of_judged = {q: {d: score for d, score in run.items() if d in qrels[q]} for q, run in whole.items()}

    def trec_eval(run: dict, measures: set[str]) -> dict[str, np.ndarray]:
        values = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
        names = [measure.replace(".", "_") for measure in measures]
        return {name: np.array([values.get(q, {}).get(name, 0.0) for q in qrels]) for name in names}

    theirs = trec_eval(of_judged, {"ndcg_cut.1", "ndcg_cut.3", "ndcg_cut.10"})
    of_all = trec_eval(whole, {"recall.10", f"recall.{K}", "recip_rank", "ndcg_cut.10"})
    reciprocal = of_all["recip_rank"]  # has no cutoff there
    expected = {
        "ndcg@1": theirs["ndcg_cut_1"],
        "ndcg@3": theirs["ndcg_cut_3"],
        "ndcg@10": theirs["ndcg_cut_10"],
        "collection_recall@10": of_all["recall_10"],
        f"collection_recall@{K}": of_all[f"recall_{K}"],
        f"collection_mrr@{K}": np.where(reciprocal > 1 / (K + 0.5), reciprocal, 0.0),
        "collection_ndcg@10": of_all["ndcg_cut_10"],
    }
    assert list(found) == list(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-12, err_msg=name)
        assert 0.05 < values.mean() < 0.95, name  # the comparison is about real rankings
    assert ((reciprocal > 0) & (reciprocal < 1 / (K + 0.5))).sum() > 10  # some first come after rank K
    for name in ("collection_recall@10", "ndcg@10"):
        assert not found[name][::17].any()  # no word, no results
