from itertools import product
from math import log, sqrt

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from clicktower.schemas.lexical_contract import Analyser
from clicktower.training.evaluation.labelled_systems import (
    LexicalSimilarity,
    WordMovers,
    by_linear_programme,
    cosines,
    least_total,
)
from clicktower.training.ranking.bm25 import K1, B, TitleBM25
from tests.rounding import rounded

TRAINING = ["deck paint red", "deck screw", "red paint", "garden hose", "screw screw hose"]
NEW = ["red deck", "unseen words deck", "hose"]
TEXTS = [*TRAINING, *NEW]


def test_tf_idf_by_hand():
    # Of five training texts "red" and "deck" are in two each; "unseen" and "words" in none.
    two, none = log(6 / 3) + 1, log(6 / 1) + 1
    expected = two**2 / sqrt(2 * two**2) / sqrt(two**2 + 2 * none**2)
    found = LexicalSimilarity(TEXTS, len(TRAINING)).tf_idf(np.array([5, 5, 5]), np.array([6, 5, 7]))
    assert found == pytest.approx([expected, 1, 0])


# Stems, punctuation, pairs of a script without spaces, a repeated word, and texts without a term.
TRAINING_WITH_STEMS = ["Pipe brackets, galvanized", "bracket for pipes", "pipe pipe hose", "O'Neil's pipes"]
ENGLISH = [*TRAINING_WITH_STEMS, "东京塔 pipe", "&", "?!"]


@pytest.mark.parametrize("language", ["english", "none"])
def test_tf_idf_is_that_of_scikit_learn_over_our_terms(language):
    vectors = TfidfVectorizer(analyzer=Analyser(language).terms).fit(TRAINING_WITH_STEMS).transform(ENGLISH).toarray()
    # A term that no training text has: scikit-learn drops it, we count it as rare as possible.
    known = [0, 1, 2, 3, 5, 6]
    first, second = (np.array(column) for column in zip(*product(known, known), strict=True))
    lexical = LexicalSimilarity(ENGLISH, 4, language)
    assert lexical.tf_idf(first, second) == pytest.approx((vectors[first] * vectors[second]).sum(axis=1))


def test_texts_of_the_same_terms_are_equal_and_one_without_a_term_is_like_none():
    lexical = LexicalSimilarity(ENGLISH, 4)
    first, second = np.array([0, 0, 5, 5, 0]), np.array([1, 2, 6, 5, 5])
    same = LexicalSimilarity(["Brackets, pipe!", "pipe's bracket", "hose"], 3)
    for similarity, of_same in ((lexical.tf_idf, same.tf_idf), (lexical.bm25, same.bm25)):
        found = similarity(first, second)
        assert 1 > found[0] > found[1] > 0
        assert found[2:].tolist() == [0, 0, 0]
        assert of_same(np.array([0]), np.array([1])) == pytest.approx([1])


def test_symmetric_bm25_over_stems_by_hand():
    # Terms: pipe, bracket | pipe | hose. N = 3, mean length 4/3; df of pipe 2, of bracket 1.
    pipe, bracket = log(1 + 1.5 / 2.5), log(1 + 2.5 / 1.5)
    two, one = K1 * (1 - B + B * 2 / (4 / 3)), K1 * (1 - B + B * 1 / (4 / 3))
    in_two, in_one = 1 / (1 + two), 1 / (1 + one)
    expected = (pipe * in_one + pipe * in_two) / ((pipe + bracket) * in_two + pipe * in_one)
    found = LexicalSimilarity(["Pipe brackets", "pipes,", "hose"], 3).bm25(np.array([0]), np.array([1]))
    assert found == pytest.approx([expected])


def test_symmetric_bm25_is_that_of_the_title_ranking_both_ways_over_what_each_scores_itself():
    bm25 = TitleBM25(TRAINING)
    places = [(a, b) for a in range(len(TRAINING)) for b in range(len(TRAINING))]

    def score(a: int, b: int) -> float:
        return sum(part for _, part in bm25.parts(TRAINING[a], TRAINING[b]))

    expected = [(score(a, b) + score(b, a)) / (score(a, a) + score(b, b)) for a, b in places]
    first, second = (np.array(column) for column in zip(*places, strict=True))
    lexical = LexicalSimilarity(TEXTS, len(TRAINING))
    assert lexical.bm25(first, second) == pytest.approx(expected)
    assert lexical.bm25(np.array([5]), np.array([6]))[0] < lexical.bm25(np.array([5]), np.array([5]))[0] == 1


def test_the_word_mover_s_distance_by_hand():
    # "ab" has the trigrams #ab, ab#; "abc" #ab, abc, bc#: one of two and three in common, cosine 1 / sqrt(6).
    near = sqrt(2 - 2 / sqrt(6))
    texts = ["ab", "abc", "xyz", "ab xyz", "xyz ab", "ab ab abc"]
    found = WordMovers(texts).distances(np.array([0, 0, 3, 3, 3, 5]), np.array([1, 2, 4, 1, 2, 0]))
    # "ab xyz" -> "abc": half of it goes `near`, half sqrt(2); -> "xyz": half stays, half goes sqrt(2).
    # "ab ab abc" -> "ab": two thirds stay, one goes `near`.
    expected = [near, sqrt(2), 0, (near + sqrt(2)) / 2, sqrt(2) / 2, near / 3]
    assert found == pytest.approx(expected, abs=1e-7)


def test_the_word_mover_s_distance_on_given_vectors_by_hand(tmp_path):
    (tmp_path / "vectors.txt").write_text("far 9 9\nab 0 0\nabc 3 4\nxyz 0 2\n")
    texts = ["ab", "abc", "xyz other", "ab xyz", "other"]
    movers = WordMovers(texts, str(tmp_path / "vectors.txt"))
    found = movers.distances(np.array([0, 0, 3, 3, 4]), np.array([1, 2, 1, 2, 0]))
    # "other" has no vector: it is left out, and the text that is nothing else is as far as the farthest pair, 5.
    assert found == pytest.approx([5, 2, (5 + sqrt(9 + 4)) / 2, 1, 5])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.lists(st.integers(1, 6), min_size=1, max_size=5),
       st.integers(0, 9))  # fmt: skip
def test_an_assignment_of_units_moves_as_little_as_the_linear_programme(supply, demand, seed):
    # The same units on both sides: each side's counts times the other side's sum.
    a, b = np.array(supply) * sum(demand), np.array(demand) * sum(supply)
    ways = np.random.default_rng(seed).random((len(a), len(b)))
    assert least_total(ways, a, b) == pytest.approx(by_linear_programme(ways, a, b), rel=1e-6)


def test_on_a_line_the_least_total_is_wasserstein_s_distance():
    rng = np.random.default_rng(0)
    x, y = rng.random(40), rng.random(41)  # 1,640 units: too many to assign one by one
    ways = np.abs(x[:, None] - y[None])
    found = least_total(ways, np.full(40, 41), np.full(41, 40)) / (40 * 41)
    assert found == pytest.approx(scipy.stats.wasserstein_distance(x, y), rel=1e-6)


class _Sides:
    """Vectors of two dimensions: by the query side at an angle of the text's number, by the document side twice it."""

    def encode(self, texts, side):
        angles = np.array([float(text) for text in texts]) * (1 if side == "query" else 2)
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def test_crossed_cosines_are_the_mean_of_both_directions():
    texts, first, second = ["9", "0.1", "0.4"], np.array([1]), np.array([2])
    # Query 0.1 and document 0.8; query 0.4 and document 0.2.
    crossed = (np.cos(0.7) + np.cos(0.2)) / 2
    assert cosines(_Sides(), texts, first, second, "crossed") == rounded([crossed])
    assert cosines(_Sides(), texts, first, second, "query") == rounded([np.cos(0.3)])
    assert cosines(_Sides(), texts, first, second, "document") == rounded([np.cos(0.6)])
