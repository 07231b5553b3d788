"""benchmarks/shares.py: the shares that queries choose, and the scores that they choose by."""

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.shares import Scores, choose
from clicktower.training.ranking.bm25 import TitleBM25
from clicktower.training.ranking.title_ranking import TitleRanking
from tests.training.ranking.projection_encoder import ProjectionEncoder


def curve(**of_pairs):
    """Rows of w, l and measures; NDCG@10 of judged titles, and NDCG@10 and recall@100 of all, count."""
    return [[w, terms, 0, 0, judged, overall / 2, 0, overall / 2] for w, terms, judged, overall in of_pairs.values()]


def test_a_pair_has_most_over_all_titles_among_those_that_lose_nothing_among_judged_ones():
    one = curve(a=(0.0, 0.0, 0.50, 0.1), b=(0.0, 0.2, 0.54, 0.3), c=(0.0, 0.4, 0.50, 0.9), d=(0.5, 0.0, 0.4, 0.2))
    two = curve(a=(0.0, 0.0, 0.50, 0.1), b=(0.0, 0.2, 0.47, 0.4), c=(0.0, 0.4, 0.49, 0.9), d=(0.5, 0.0, 0.4, 0.2))
    # The second set alone forbids both; on the mean only 0.4 loses.
    assert choose([one, two]) == (0.0, 0.2)
    assert choose([one]) == (0.0, 0.4)
    assert choose([two]) == (0.5, 0.0)


@pytest.mark.parametrize("shares", [(0.0, 0.0), (0.375, 0.0), (0.0, 0.2), (0.5, 0.3)])
def test_the_scores_are_those_of_the_product(shares):
    titles, queries = ["steel angle bracket", "garden hose, 50 ft", "hose"], {"1": "angle brackets", "2": "hose hose"}
    bm25 = TitleBM25(titles, "english")
    judges = SimpleNamespace(
        documents=SimpleNamespace(titles=titles),
        collection=SimpleNamespace(queries=queries),
        terms=bm25.relative_scores(list(queries.values())),
    )
    found = Scores(ProjectionEncoder(), judges, words=True).by(*shares).scores(["hose hose", "angle brackets"])
    words, terms = shares
    encoder = ProjectionEncoder()
    encoder.word_share = words
    product = TitleRanking(encoder, titles, "english", lexical_share=terms)
    np.testing.assert_allclose(found, product.scores(["hose hose", "angle brackets"]), rtol=1e-6)
