"""The one score of a model: vectors, words and terms (training/ranking/title_ranking.py)."""

import numpy as np
import pytest

from clicktower.training.model.embedding import TitleEmbeddings
from clicktower.training.ranking.bm25 import TitleBM25
from clicktower.training.ranking.title_ranking import TitleRanking, WordMatches, mixed
from tests.rounding import assert_equal_but_for_rounding
from tests.training.ranking.projection_encoder import ProjectionEncoder

TITLES = [
    "steel angle brackets",
    "garden hose, 50 ft",
    "bracket Angle steel steel",
    "angle grinder",
    "hose",
    "鋼の角 hose",
]
QUERIES = ["angle bracket", "hose", "unseen", "&"]


def test_hand_worked():
    # (1 - 0.25) ((1 - 0.5) 0.6 + 0.5 * 0.8) + 0.25 * 1 = 0.775
    scores = mixed(np.float32([0.6]), np.float32([0.8]), np.float32([1.0]), 0.5, 0.25)
    assert scores.dtype == np.float32
    assert scores.tolist() == pytest.approx([0.775])


@pytest.mark.parametrize(("words", "lexical"), [(0.0, 0.0), (0.25, 0.0), (0.0, 0.2), (0.375, 0.2)])
def test_a_score_is_the_weighted_mean_of_texts_words_and_terms(words, lexical):
    encoder = ProjectionEncoder()
    cosines, matches = (system(encoder, TITLES).scores(QUERIES) for system in (TitleEmbeddings, WordMatches))
    terms = TitleBM25(TITLES, "english").relative_scores(QUERIES)
    encoder.word_share, encoder.lexical_share = words, lexical
    ranking = TitleRanking(encoder, TITLES, "english")
    of_vectors = (1 - words) * cosines.astype(np.float64) + words * matches
    assert_equal_but_for_rounding(ranking.scores(QUERIES), (1 - lexical) * of_vectors + lexical * terms)
    np.testing.assert_array_equal(ranking.vectors.scores(QUERIES), cosines)


def test_a_title_equal_to_the_query_has_all_its_terms():
    index = TitleBM25(TITLES)
    relative = index.relative_scores(["steel angle bracket", "hose new", "&"])
    assert relative[0, 0] == pytest.approx(1.0)
    assert relative[0, 1] == 0
    # Of two terms a title has the commoner: the other, which no title has, counts as the rarest.
    assert 0 < relative[1, 4] < 0.5
    assert not relative[2].any()
    rows = np.array([4, 0])
    assert (index.relative_scores_of("hose new", rows) == relative[1][rows]).all()
